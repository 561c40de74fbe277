"""What specbench itself takes, in time and memory, where there is much of everything.

    python -m benchmarks.scale [--quick] [--json] [--only PART]

Prints, each from a process of its own:

- resume: `specbench sweep --resume` of a run with so many trials, until it has its next proposal;
- report: `specbench report` of it; compare: `specbench compare-report` of two of them;
- trial: what a trial takes besides its server at the end of a search of 1,000, in parts: the
  search's ask and tell, the ledger's write (waited for until it is on the disk), and the rest
  (figures, samples, dashboard, state);
- window: what the load client keeps of each request of a window of 10,000, and how much it has
  grown after two of them.

The runs are made by `large_runs`. Times are CPU time of the process, so that other work on the
machine changes them little; peak memory is its resident set (`ru_maxrss`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRIALS = (1_000, 10_000, 100_000)
QUICK = (200, 1_000)
SEARCHED, LAST = 1000, 100
"""Trials of the search, and those at its end that are timed."""
REQUESTS, STEPS, TOKENS = 10_000, 10, 16
PARTS = ("ledger", "trial", "window")


def measured(*words: str) -> dict[str, Any]:
    """Run a part in a child; what it prints, with its wall time, CPU time and peak memory."""
    began = time.monotonic()
    command = [sys.executable, "-m", "benchmarks.scale", "--child", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = child.stdout.read().splitlines()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}")
    taken = {
        "wall_s": round(time.monotonic() - began, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6),
    }
    return {**taken, **(json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {})}


def of_ledgers(trials: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Resume, report and compare, by trials."""
    found: dict[str, dict[str, Any]] = {name: {} for name in ("resume", "report", "compare")}
    for count in trials:
        with tempfile.TemporaryDirectory() as folder:
            runs = [_made(Path(folder) / name, count, seed) for seed, name in enumerate("ab")]
            found["resume"][str(count)] = measured("resume", str(runs[0]))
            found["report"][str(count)] = measured("report", str(runs[0]))
            found["compare"][str(count)] = measured("compare", *map(str, runs))
    return found


def _made(folder: Path, trials: int, seed: int) -> Path:
    folder.mkdir()
    words = ("make", str(folder), str(trials), str(seed))
    return Path(measured(*words)["run"])


def _make(folder: str, trials: str, seed: str) -> None:
    from benchmarks.large_runs import large_run

    print(json.dumps({"run": str(large_run(Path(folder), int(trials), seed=int(seed)))}))


def _resume(run: str) -> None:
    """Ends where the first trial would begin."""
    from tuner.cli import main
    from tuner.runner import candidates

    def begin(*_: Any) -> None:
        sys.stdout.flush()
        os._exit(0)

    candidates._Candidates._begin = begin  # type: ignore[method-assign]
    main(["sweep", "--resume", run])


def _report(run: str) -> None:
    from tuner.cli import main

    main(["report", run])


def _compare(one: str, other: str) -> None:
    from tuner.cli import main

    main(["compare-report", one, other])


class _Timed:
    """Sums what calls take, of the CPU and of the clock."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*words: Any, **named: Any) -> Any:
            cpu, wall = time.process_time(), time.monotonic()
            try:
                return call(*words, **named)
            finally:
                self.cpu_s += time.process_time() - cpu
                self.wall_s += time.monotonic() - wall

        return timed


def _trial(count: str, last: str) -> None:
    """The loop of a real run, with launches that have been performed before."""
    from benchmarks.large_runs import Quiet, instant_launches, sweep_text
    from tuner.config.loader import load_sweep
    from tuner.engines import make_engine
    from tuner.runner.sweep_run import begin_run, run_sweep
    from tuner.runs.run import Run
    from tuner.search.optuna_study import Study

    trials, timed = int(count), int(last)
    parts = {name: _Timed() for name in ("ask", "tell", "write", "all")}
    Study.propose = parts["ask"].around(Study.propose)  # type: ignore[method-assign]
    Study.tell = parts["tell"].around(Study.tell)  # type: ignore[method-assign]
    Run.append = parts["write"].around(Run.append)  # type: ignore[method-assign]
    begun: list[tuple[float, float]] = []

    class Listener(Quiet):
        def recorded(self, record: Any, standing: Any) -> None:  # noqa: ARG002
            if standing.done == trials - timed:
                begun.append((time.process_time(), time.monotonic()))
                for part in parts.values():
                    part.cpu_s = part.wall_s = 0.0
            if standing.done == trials and len(begun) == 1:
                begun.append((time.process_time(), time.monotonic()))
                for part in parts.values():
                    taken[id(part)] = part.cpu_s, part.wall_s

    taken: dict[int, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder, instant_launches(Path(folder)):
        file = Path(folder) / "search.yaml"
        file.write_text(sweep_text(trials, "tpe", points=2 * trials), encoding="utf-8")
        loaded = load_sweep(file)
        run = begin_run(Path(folder) / "runs", loaded, None)
        run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    (cpu, wall), (cpu_end, wall_end) = begun
    each = {
        f"{name}_ms": round(1000 * taken[id(part)][0] / timed, 2)
        for name, part in parts.items()
        if name != "all"
    }
    waited = 1000 * taken[id(parts["write"])][1] / timed
    found = {
        "trials": trials,
        **each,
        "write_wall_ms": round(waited, 2),
        "search_ms": round(sum(each.values()), 2),
        "all_ms": round(1000 * (cpu_end - cpu) / timed, 2),
        "all_wall_ms": round(1000 * (wall_end - wall) / timed, 2),
    }
    print(json.dumps(found))


def _window(count: str) -> None:
    """Windows of the load client on a simulated server: a tenth of the requests, then all of them
    in one, kept for a moment, then all of them once more."""
    from benchmarks.large_runs import a_server, prompts_of
    from tuner.loadgen.client import Load, run_window

    requests, load = prompts_of(int(count)), Load(concurrency=64, output_tokens=TOKENS)
    with a_server() as url:
        run_window(url, requests[: len(requests) // STEPS], load)
        before = _resident()
        window = run_window(url, requests, load)
        after = _resident()
        failed = sum(sample.error is not None for sample in window.samples)
        del window
        run_window(url, requests, load)
        end = _resident()
    found = {
        "requests": len(requests),
        "failed": failed,
        "resident_mb": round(before / 1e6, 1),
        "kept_bytes_per_request": round((after - before) / len(requests)),
        "grown_mb": round((end - before) / 1e6, 1),
    }
    print(json.dumps(found))


def _resident() -> int:
    import gc

    import psutil

    gc.collect()
    return int(psutil.Process().memory_info().rss)


CHILDREN = {
    "make": _make,
    "resume": _resume,
    "report": _report,
    "compare": _compare,
    "trial": _trial,
    "window": _window,
}


def main() -> None:
    """Print what was measured, as a table or as JSON."""
    if sys.argv[1:2] == ["--child"]:
        CHILDREN[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small numbers, under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    said = parser.parse_args()
    found: dict[str, Any] = {"command": " ".join(["python -m benchmarks.scale", *sys.argv[1:]])}
    if said.only in (None, "ledger"):
        found |= of_ledgers(QUICK if said.quick else TRIALS)
    if said.only in (None, "trial"):
        trials, last = (100, 20) if said.quick else (SEARCHED, LAST)
        found["trial"] = measured("trial", str(trials), str(last))
    if said.only in (None, "window"):
        found["window"] = measured("window", str(1000 if said.quick else REQUESTS))
    print(json.dumps(found, indent=2) if said.json else "\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for name in ("resume", "report", "compare"):
        for trials, taken in found.get(name, {}).items():
            lines.append(
                f"{name:8} {int(trials):>7,} trials: {taken['cpu_s']:6.1f} s of CPU, "
                f"{taken['wall_s']:6.1f} s, at most {taken['peak_mb']:,} MB"
            )
    for name in ("trial", "window"):
        if name in found:
            lines.append(f"{name}: {json.dumps(found[name])}")
    return lines


if __name__ == "__main__":
    main()
