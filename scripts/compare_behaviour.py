"""Record what specbench does in a worktree, and compare two recordings.

    python scripts/compare_behaviour.py record OLD recordings/old
    python scripts/compare_behaviour.py record NEW recordings/new --like recordings/old
    python scripts/compare_behaviour.py compare recordings/old recordings/new

A recording has one JSON file per item:

- plan: `specbench plan --json` of every file in sweeps/.
- run: `specbench report`, `specbench status --json` and `tuner.load_run` of every run folder.
  Simulated runs also have the result of `specbench sweep --resume --json`, which measures nothing.
- pair: `specbench compare-report --json` of every ordered pair of the runs in results/.
- sweep: a new run of each sweep in behaviour_sweeps/ on the simulated engine.

The recording keeps the sweep files and the run folders that it read. `--like` reads those of
another recording, so that plans, runs and pairs have equal inputs and are compared exactly. Only
the items of kind sweep depend on the clock. NOISE has their tolerances.

`compare` prints one line per item and exits with 1 if a difference is not in ACCEPTED.
"""

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import yaml

SCRIPT = Path(__file__).resolve()
SWEEPS = SCRIPT.parent / "behaviour_sweeps"
WRITTEN = ("report.md", "report.html", "best.sh", "best.yaml", "adaptive.json", "figures")
"""Names in a run folder that `specbench report` writes."""
CONFIGURATION = ("num_steps", "eagle_topk", "num_draft_tokens", "draft_tp")
EXACT_TEXT = ("verdict", "outcome", "failure", "check", "state", "stage")
"""Keys whose values are decisions. Elsewhere a text of several words is wording: only its
numbers are compared."""

ACCEPTED: tuple[tuple[str, str], ...] = (
    ("run/rate/report.md/*", "optional columns stand in the order of the metrics catalogue"),
)
"""Accepted differences: a pattern of ITEM/KEY, and the reason."""

IGNORED: tuple[str, ...] = (
    *("*/format", "*/specbench", "*/error", "sweep/*/run"),
    # Decisions between configurations that are tied, and limits of intervals.
    *("sweep/*/not_told_apart*", "sweep/*/by_kind*", "sweep/*/by_length*"),
    *("sweep/*/by_concurrency*", "sweep/*low", "sweep/*high"),
    # Latencies in the tail, and figures that depend on the CPU.
    *("sweep/*_p90", "sweep/*_p99", "sweep/*/ttft_ms_p50", "sweep/*/queue_ms_p50"),
    *("sweep/*/client_cpu_share", "sweep/*/wait_growth"),
)
"""Patterns of ITEM/KEY that are not compared."""

SELF_ENDING = ("kimi", "staged")
"""Sweeps that end when measured figures leave nothing to find. Noise decides what they launch."""

NOISE: tuple[tuple[str, float], ...] = (
    *((f"sweep/{name}/result/launches", 0.25) for name in SELF_ENDING),
    *((f"sweep/{name}/result/trials", 0.25) for name in SELF_ENDING),
    *((f"sweep/*/{name}/*", 0.1) for name in ("speedup", "confirmed", "settings_alone")),
    ("sweep/*/baseline_drift/*", 0.1),
    *((f"sweep/*{name}", 0.1) for name in ("_tok_s", "_ms", "_ms_p50", "request_s", "wall_s")),
)
"""Patterns of ITEM/KEY, and the relative difference that is noise. Other values are exact."""


@dataclass(frozen=True)
class Tree:
    """A worktree whose specbench is run."""

    path: Path
    folder: Path
    """Working folder of the commands. Sweeps and runs are named relative to this folder."""

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run this interpreter with the worktree's tuner. No setting of the caller reaches it."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "SPECBENCH_"))}
        return subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=self.folder,
            env=kept | {"PYTHONPATH": str(self.path)},
            capture_output=True,
            text=True,
        )

    def specbench(self, *arguments: str) -> dict[str, Any]:
        """Run a command of specbench. Return the exit code and the JSON that it prints, if any."""
        done = self.python("-m", "tuner", *arguments)
        text = self.neutral(done.stdout)
        if text.startswith("{"):
            return {"exit": done.returncode, "result": json.loads(text)}
        return {"exit": done.returncode, "error": done.stderr.strip().rpartition("\n")[2]}

    def frames(self, run: str) -> dict[str, Any]:
        """Return the frames of `tuner.load_run` as lists of rows. Return {} if the call fails."""
        printed = self.python(str(SCRIPT), "frames", run).stdout
        return dict(json.loads(printed)) if printed else {}

    def neutral(self, text: str) -> str:
        """Replace paths of this machine and names of tuner's modules, which may be renamed."""
        text = text.replace(str(self.folder), "FOLDER").replace(sys.executable, "PYTHON")
        text = text.replace(str(self.path), "TREE")
        return re.sub(r"\btuner([./])\w+(?:\1\w+)*", r"tuner\1MODULE", text)

    def check(self) -> None:
        """Raise SystemExit if Python does not import the tuner of the worktree."""
        found = self.python("-c", "import tuner; print(tuner.__file__)").stdout.strip()
        if not Path(found).is_relative_to(self.path):
            raise SystemExit(f"{self.path}: Python imports {found}. Name a worktree of specbench.")


def print_frames(run: str) -> None:
    """Print every frame of a run as JSON. `record` calls this in a process of its own."""
    import pandas as pd

    import tuner

    read = tuner.load_run(run)
    public = {name: getattr(read, name) for name in dir(read) if not name.startswith("_")}
    frames = {
        name: json.loads(frame.to_json(orient="records", double_precision=15, date_format="iso"))
        for name, frame in public.items()
        if isinstance(frame, pd.DataFrame)
    }
    print(json.dumps(frames))


def table_rows(markdown: str) -> list[str]:
    """Return the rows of all tables that have numbers. Drop the row of the version of specbench."""
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    return [row for row in rows if re.search(r"\d", row) and not row.startswith("| specbench ")]


def written_files(tree: Tree, run: Path) -> dict[str, Any]:
    """Read what `specbench report` wrote into a run folder."""
    texts = {name: run / name for name in WRITTEN if (run / name).is_file()}
    read = {name: tree.neutral(path.read_text(encoding="utf-8")) for name, path in texts.items()}
    found: dict[str, Any] = {"files": sorted([*read, *(f.name for f in run.glob("figures/*"))])}
    if "best.yaml" in read:
        found["best.yaml"] = yaml.safe_load(read["best.yaml"])
    if "best.sh" in read:
        found["best.sh"] = shlex.split(read["best.sh"], comments=True)
    if "adaptive.json" in read:
        found["adaptive.json"] = json.loads(read["adaptive.json"])
    return found | {"report.md": table_rows(read.get("report.md", ""))}


def record_run(tree: Tree, run: str) -> dict[str, Any]:
    """Report a run folder anew. Return the files, the status and the frames of the run."""
    folder = tree.folder / run
    for name in WRITTEN:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    reported = tree.specbench("report", run)["exit"]
    item = {"report": reported, **written_files(tree, folder), "frames": tree.frames(run)}
    item["status"] = tree.specbench("status", run, "--json")
    if run.startswith("simulated/"):
        item["resumed"] = tree.specbench("sweep", "--resume", run, "--json")
    return item


def record_sweep(tree: Tree, file: Path) -> dict[str, Any]:
    """Run a sweep on the simulated engine. Return the result, and each trial's outcome."""
    out = f"simulated/{file.stem}"
    item = tree.specbench("sweep", str(file), "--out", out, "--json")
    run = max((tree.folder / out).glob("*/"), default=None)
    if run is None:
        return item
    item["written"] = written_files(tree, run)["files"]
    trials: dict[str, list[str]] = {}
    for row in tree.frames(str(run)).get("trials", []):
        names = [*CONFIGURATION, *sorted(n for n in row if n.startswith(("env.", "flags.")))]
        point = " ".join(f"{name}={row.get(name)}" for name in names)
        trials.setdefault(f"{row['role']}, {point}", []).append(row["outcome"])
    return item if file.stem in SELF_ENDING else item | {"trials": trials}


def write_items(folder: Path, kind: str, items: Iterable[tuple[str, Any]]) -> None:
    """Write one JSON file per item, and print a line for the kind."""
    (folder / kind).mkdir()
    count = 0
    for name, item in items:
        text = json.dumps(item, indent=1)
        (folder / kind / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        count += 1
    print(f"{kind}: {count} items", flush=True)


def record(worktree: Path, recording: Path, like: Path | None, jobs: int) -> int:
    """Record all items of a worktree."""
    recording.mkdir(parents=True)
    inputs = recording / "inputs"
    if like is not None:
        shutil.copytree(like / "inputs", inputs)
    else:
        for name in ("sweeps", "results"):
            shutil.copytree(worktree / name, inputs / name)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        tree = Tree(worktree.resolve(), Path(temporary).resolve())
        tree.check()
        swept = ((file.stem, record_sweep(tree, file)) for file in sorted(SWEEPS.glob("*.yaml")))
        write_items(recording, "sweep", swept)
        if like is None:
            shutil.copytree(tree.folder / "simulated", inputs / "simulated")
        shutil.rmtree(tree.folder / "simulated")
        shutil.copytree(inputs, tree.folder, dirs_exist_ok=True)

        plans = sorted(path.stem for path in (inputs / "sweeps").glob("*.yaml"))
        planned = pool.map(lambda n: tree.specbench("plan", f"sweeps/{n}.yaml", "--json"), plans)
        write_items(recording, "plan", zip(plans, planned, strict=True))

        paths = [p.parent.relative_to(inputs) for p in sorted(inputs.glob("*/*/*/trials.jsonl"))]
        runs = {str(path): path.parent.name for path in paths}
        read = pool.map(lambda run: record_run(tree, run), runs)
        write_items(recording, "run", zip(runs.values(), read, strict=True))

        real = [run for run in runs if run.startswith("results/")]
        pairs = list(product(real, repeat=2))
        gate = ("--all", "--fail-on-regression", "2%", "--json")
        compared = pool.map(lambda pair: tree.specbench("compare-report", *pair, *gate), pairs)
        names = [f"{runs[first]}+{runs[second]}" for first, second in pairs]
        write_items(recording, "pair", zip(names, compared, strict=True))
    return 0


def essence(value: Any, key: str) -> Any:
    """Return what is compared of a value: of wording only the numbers."""
    if isinstance(value, dict):
        if any(" " in name and "=" not in name for name in value):  # the names are wording
            return [essence(each, key) for each in value.values()]
        return {name: essence(each, f"{key}/{name}") for name, each in value.items()}
    if isinstance(value, list):
        return [essence(each, key) for each in value]
    if isinstance(value, str) and " " in value and not key.endswith(EXACT_TEXT):
        return " ".join(re.findall(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?", value))
    return value


def is_number(value: Any) -> bool:
    """Return True for an int or a float. A bool is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


Difference = tuple[str, Any, Any]


def differences(old: Any, new: Any, key: str, drift: dict[str, float]) -> Iterator[Difference]:
    """Yield every key that differs, with both values. Add tolerated differences to `drift`."""
    if old == new or any(fnmatchcase(key, pattern) for pattern in IGNORED):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            absent = "(absent)"
            pair = old.get(name, absent), new.get(name, absent)
            yield from differences(*pair, f"{key}/{name}", drift)
    elif isinstance(old, list) and isinstance(new, list):
        before, after = ([json.dumps(each) for each in values] for values in (old, new))
        matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
        changes = (
            matcher.get_opcodes() if len(old) != len(new) else [("", 0, len(old), 0, len(new))]
        )
        for name, i, j, m, n in changes:
            if name == "equal":
                continue
            if j - i != n - m:
                yield f"{key}/{i}", old[i:j], new[m:n]
                continue
            for index, pair in enumerate(zip(old[i:j], new[m:n], strict=True), i):
                yield from differences(*pair, f"{key}/{index}", drift)
    elif is_number(old) and is_number(new):
        share = abs(new - old) / max(abs(old), abs(new))
        allowed = (noise for pattern, noise in NOISE if fnmatchcase(key, pattern))
        if share > next(allowed, 0.0):
            yield key, old, new
        else:
            drift[key] = share
    else:
        yield key, old, new


def item_files(recording: Path) -> dict[str, Path]:
    """Return the files of all items, by KIND/NAME."""
    kinds = ("sweep", "plan", "run", "pair")
    return {f"{kind}/{p.stem}": p for kind in kinds for p in sorted(recording.glob(f"{kind}/*"))}


def brief(value: Any) -> str:
    """Return a value as JSON of at most 80 characters."""
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def compare(old: Path, new: Path, shown: int) -> int:
    """Print each item and the differences. Return 1 if a difference is not accepted."""
    sides = item_files(old), item_files(new)
    counts = {"same": 0, "accepted": 0, "differs": 0}
    for item in dict.fromkeys([*sides[0], *sides[1]]):
        drift: dict[str, float] = {}
        values = [json.loads(side[item].read_text()) if item in side else None for side in sides]
        before, after = (essence(value, item) for value in values)
        lines, verdict = [], "same"
        for key, was, now in differences(before, after, item, drift):
            reasons = [reason for pattern, reason in ACCEPTED if fnmatchcase(key, pattern)]
            if not reasons:
                verdict = "differs"
            elif verdict == "same":
                verdict = "accepted"
            lines.append(" ".join([f"    {key}: {brief(was)} -> {brief(now)}", *reasons[:1]]))
        counts[verdict] += 1
        noisiest = max(drift, key=lambda key: drift[key], default="")
        noise = f" (largest noise {drift[noisiest]:.1%} at {noisiest})" if noisiest else ""
        rest = [f"    and {len(lines) - shown} more"] if len(lines) > shown else []
        print("\n".join([f"{verdict:9}{item}{noise}", *lines[:shown], *rest]))
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["differs"] else 0


def main() -> int:
    """Parse the arguments and run a subcommand."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record", help="record a worktree into a new folder")
    command.add_argument("worktree", type=Path)
    command.add_argument("recording", type=Path)
    command.add_argument("--like", type=Path, help="read the inputs of this recording")
    command.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    command = commands.add_parser("compare", help="compare two recordings")
    command.add_argument("old", type=Path)
    command.add_argument("new", type=Path)
    command.add_argument("--show", type=int, default=10, help="differences per item (default: 10)")
    command = commands.add_parser("frames", help="print the frames of a run as JSON")
    command.add_argument("run")
    given = parser.parse_args()
    if given.command == "record":
        return record(given.worktree, given.recording, given.like, given.jobs)
    if given.command == "compare":
        return compare(given.old, given.new, given.show)
    print_frames(given.run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
