"""python -m tests.fuzz --inputs 50000 --seed 1: damaged input to everything that is read.

Exit code 1 with the seeds of the inputs that were neither taken nor refused. One of them again:
--target NAME --only SEED.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz.targets import REFUSED, TARGETS, Target, one_sentence

LIMIT_S = 20
"""Of one input; more is a hang."""


@dataclass
class Outcome:
    """What became of a target's inputs."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    faults: list[tuple[int, str]] = field(default_factory=list)
    """Seed and traceback."""


class HangError(BaseException):
    """An input took longer than its limit."""


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise HangError


def fuzz(target: Target, seeds: range, folder: Path) -> Outcome:
    """Feed the target an input for each seed."""
    found = Outcome()
    before = signal.signal(signal.SIGALRM, _on_alarm)
    began = time.process_time()
    try:
        for seed in seeds:
            found.counts[_one(target, seed, folder, found)] += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    found.seconds = time.process_time() - began
    return found


def _one(target: Target, seed: int, folder: Path, found: Outcome) -> str:
    signal.alarm(LIMIT_S)
    try:
        target(random.Random(f"{target.__name__} {seed}"), folder)
    except REFUSED as error:
        try:
            one_sentence(error)
        except Exception:
            found.faults.append((seed, traceback.format_exc()))
            return "fault"
        return "refused"
    except (Exception, HangError):
        found.faults.append((seed, traceback.format_exc()))
        return "fault"
    finally:
        signal.alarm(0)
    return "taken"


def shares(inputs: int) -> dict[Target, int]:
    """Inputs by target, at least one each."""
    whole = sum(TARGETS.values())
    return {target: max(1, inputs * share // whole) for target, share in TARGETS.items()}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=[each.__name__ for each in TARGETS])
    parser.add_argument("--only", type=int, help="one input's seed")
    words = parser.parse_args()
    failed = total = 0
    with tempfile.TemporaryDirectory() as root:
        for target, count in shares(words.inputs).items():
            if words.target not in (None, target.__name__):
                continue
            first = words.only if words.only is not None else words.seed * 10**9
            seeds = range(first, first + (1 if words.only is not None else count))
            folder = Path(root) / target.__name__
            folder.mkdir()
            found = fuzz(target, seeds, folder)
            total, failed = total + len(seeds), failed + len(found.faults)
            said = ", ".join(f"{n} {what}" for what, n in sorted(found.counts.items()))
            print(f"{target.__name__:16} {said} ({found.seconds:.1f} s)", flush=True)
            for seed, text in found.faults[:3]:
                print(f"  --target {target.__name__} --only {seed}\n{text}", flush=True)
    print(f"{total} inputs, {failed} neither taken nor refused")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
