"""The command line as scripts and people use it: real processes, exit codes, stdout."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import click
import psutil
import pytest
from rich.console import Console

from tests.factories import Trial, make_point, make_run
from tests.sweeps import tiny_sweep
from tuner.cli import commands
from tuner.cli.progress import ProgressLine, outcome
from tuner.config.loader import load_sweep
from tuner.engines import make_engine
from tuner.execution.progress import SweepProgress
from tuner.server.base import Command, server_config
from tuner.server.launch_script import difference

HEAVY = ("pandas", "optuna", "matplotlib", "scipy", "numpy", "aiohttp")


def specbench(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuner", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=cwd)


def test_help_imports_nothing_heavy() -> None:
    """Help and completion would take seconds on a busy machine."""
    code = (
        "import sys\nfrom tuner.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Usage: specbench" in done.stdout
    assert done.stderr.strip() == "[]"


def test_a_sweep_prints_only_json_on_stdout_and_leaves_a_whole_run(tmp_path: Path) -> None:
    """CI reads stdout; production takes best.sh from the folder."""
    tiny_sweep(tmp_path, search="trials: 2")
    done = specbench("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    keys = {"run", "baseline", "best", "speedup", "by_concurrency", "launches", "trials"}
    keys |= {"outputs", "far_outputs", "by_kind", "not_told_apart"}
    alone = "settings_alone" in found  # where the winner has settings of its own
    assert set(found) - {"settings_alone"} == keys
    assert set(found["by_concurrency"]["1"]) == {"best", "speedup", "not_told_apart"}
    assert (found["launches"], found["trials"]) == (3 + alone, 2)
    assert found["baseline"]["1"]["output_tok_s"] > 0
    assert set(found["speedup"]["1"]) == {"value", "low", "high"}
    run = Path(found["run"])
    assert run.parent == tmp_path / "out"
    for name in (
        "sweep.yaml",
        "machine.json",
        "trials.jsonl",
        "study.db",
        "report.md",
        "report.html",
        "best.yaml",
        "adaptive.json",
    ):
        assert (run / name).stat().st_size > 0
    assert len((run / "trials.jsonl").read_text().splitlines()) == 3 + alone
    assert os.access(run / "best.sh", os.X_OK)
    assert specbench("report", run).stdout.strip() == str(run / "report.md")
    same = specbench("compare-report", run, run)
    assert same.returncode == 0, same.stderr
    assert "no difference seen" in same.stdout


def test_a_sweep_for_people_ends_with_table_speedup_and_report(tmp_path: Path) -> None:
    tiny_sweep(tmp_path, search="trials: 1")
    done = specbench("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "no speculation (baseline)" in done.stdout
    assert "(simulated)" in done.stdout
    assert "report.md" in done.stdout
    assert "trial 1 [1/1]" in done.stdout


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("geomean", "best so far 1.100x, geometric mean over concurrency 1, 8"),
        ("min", "best so far 1.100x, the lowest of concurrency 1, 8"),
        ("8", "best so far 1.100x at concurrency 8"),
    ],
)
def test_progress_says_what_its_figures_are_of(tmp_path: Path, over: str, said: str) -> None:
    """`c8` is no word, and 0.650x beside 1.2x and 0.35x is a riddle without `geometric mean`."""
    tiny_sweep(tmp_path, search="objective: {over: geomean}, trials: 1")
    path = tmp_path / "tiny.yaml"
    text = path.read_text().replace("concurrency: [1]", "concurrency: [1, 8]")
    path.write_text(text.replace("over: geomean", f"over: {over}"))
    watch = ProgressLine(Console(file=StringIO()), None, load_sweep(path))
    watch.standing = SweepProgress(1, 1, 1.1, None, 1.1)
    assert watch._so_far() == f" ({said})"
    record = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0)], levels=(1, 8)
    ).records()
    told = outcome(record[1], "output_tok_s")
    assert re.fullmatch(r"concurrency 1: \d+\.\d output tok/s, 1\.\d+x; 8: \d+\.\d [^;]*x", told)


def test_a_mistake_is_one_line_with_exit_code_2_and_no_folder(tmp_path: Path) -> None:
    tiny_sweep(tmp_path)
    path = tmp_path / "tiny.yaml"
    path.write_text(path.read_text().replace("num_steps", "num_step"))
    done = specbench("sweep", path, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"specbench: {path}:6: space.num_step: unknown key, did you mean num_steps?"
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep"], "give a sweep file"),
        (["sweep", "gone.yaml"], "gone.yaml: No such file"),
        (["sweep", "tiny.yaml", "--trials", "0"], "write 20, or +20 with --resume"),
        (["sweep", "tiny.yaml", "--trials", "+3"], "add --resume RUN or write --trials 3"),
        (["sweep", "tiny.yaml", "--engine", "vllm"], "'vllm' is not one of"),
        (["sweep", "tiny.yaml", "--resume", "gone"], "gone: this is no run folder"),
        (["report", "gone"], "gone: this is no run folder"),
        (["compare-report", "gone"], "two runs or more"),
        (["plan"], "Missing argument"),
        (["plan", "."], "Is a directory"),
        (["dashboard", "gone"], "gone: this is no run folder"),
        (["simulate", "--preset", "nowhere"], "nowhere"),
        (["tune"], "No such command"),
    ],
    ids=" ".join,
)
def test_wrong_arguments_get_a_sentence_and_exit_code_2(
    tmp_path: Path, words: list[str], said: str
) -> None:
    tiny_sweep(tmp_path)
    done = specbench(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_that_fails_ends_with_exit_code_1_and_its_label(tmp_path: Path) -> None:
    tiny_sweep(tmp_path, faults="{kind: oom-load}")
    done = specbench("sweep", tmp_path / "tiny.yaml", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "specbench: OOM:" in done.stderr
    assert "mem-fraction-static" in done.stderr
    assert "there is no report" not in done.stderr
    (run,) = (tmp_path / "out").iterdir()
    assert "OOM" in (run / "report.md").read_text()


def test_plan_and_dry_run_are_the_same_and_launch_nothing(tmp_path: Path) -> None:
    """Whoever has one night on eight GPUs wants to see it before."""
    plan = specbench("plan", "sweeps/kimi_eagle3.yaml")
    assert plan.returncode == 0, plan.stderr
    assert plan.stdout == specbench("sweep", "sweeps/kimi_eagle3.yaml", "--dry-run").stdout
    whole = specbench("plan", "sweeps/kimi_eagle3.yaml", "--all").stdout
    assert "NCCL_P2P_DISABLE=1" in whole
    assert whole.count("--model-path moonshotai/Kimi-K2.5") == 5_761
    assert "more, --all shows them" in plan.stdout
    assert "--speculative-num-steps 1" in plan.stdout
    assert "env -u NCCL_ALGO" in plan.stdout
    # What all have is said once: twenty lines of 500 characters hide in what they differ.
    assert plan.stdout.count("--model-path moonshotai/Kimi-K2.5") == 1
    _, second = plan.stdout.split("\n2. 1 step, 2 tokens, NCCL_P2P_DISABLE=1\n", 1)
    assert second.splitlines()[0].startswith("  NCCL_P2P_DISABLE=1 --speculative-algorithm EAGLE3 ")


def test_a_plan_says_what_its_launches_are(tmp_path: Path) -> None:
    """Who asked for 12 candidates and reads 16 launches has to ask somebody."""
    sweep = str(Path("sweeps/quickstart.yaml").resolve())
    # Not here: after `make demo` there is an earlier run to reckon with.
    plan = json.loads(specbench("plan", sweep, "--json", cwd=tmp_path).stdout)
    roles = {"answers": 0, "baseline": 2, "abreast": 0, "candidate": 12, "confirm": 1, "plain": 1}
    assert plan["launches_by_role"] == roles
    assert plan["launches"] == sum(roles.values())
    said = (
        "16 launches, about 3.8 min (2 s a launch, of this machine's time; 100 tok/s a stream, "
        "ASSUMED)\n  of these 2 baselines, 12 for candidates, 1 confirmation of the winner, 1 of "
        "its settings alone; the search may end before all of them\n"
    )
    assert said in specbench("plan", sweep, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("argv", "env", "unset", "shown"),
    [
        (["--tp", "2", "--steps", "3"], {"A": "1"}, [], "A=1 --steps 3 (without --fast)"),
        (["--tp", "2", "--fast"], {"OWN": "1"}, ["B"], "-u B"),
        (["--tp", "4", "--fast"], {}, [], "-u OWN --tp 4"),
        (["--tp", "2", "--fast", "--x", "a b"], {"OWN": "2"}, [], "OWN=2 --x 'a b'"),
        (["--fast", "--tp", "2"], {"OWN": "1"}, [], ""),
    ],
)
def test_a_launch_is_shown_by_what_another_one_lacks(
    argv: list[str], env: dict[str, str], unset: list[str], shown: str
) -> None:
    base = Command(("python", "-m", "server", "--tp", "2", "--fast"), {"OWN": "1"}, frozenset())
    if "OWN" not in env and "A" in env:
        env = {**env, "OWN": "1"}
    command = Command(("python", "-m", "server", *argv), env, frozenset(unset))
    assert difference(command, base) == shown


SAID = re.compile(r"\b(\w+) launches", re.I)
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@pytest.mark.parametrize("path", sorted(Path("sweeps").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_sweep_file_promises_the_launches_that_a_run_has(path: Path) -> None:
    """Its head was written for a run of then; closing launches have come since."""
    head = "".join(x for x in path.read_text().splitlines(True) if x.startswith("#"))
    promised = re.search(r"[Aa] run is (\w+) launches", " ".join(head.replace("#", " ").split()))
    if promised is None:
        assert not SAID.search(head), "say `A run is N launches`, with the closing ones"
        return
    plan = json.loads(specbench("plan", path, "--json").stdout)
    assert plan["launches"] == NUMBERS.index(promised[1])


def test_a_plan_reckons_with_the_launch_time_that_it_is_given() -> None:
    """2.8 h for a model whose graphs alone take ten minutes is a night that does not fit."""
    assumed = specbench("plan", "sweeps/kimi_eagle3.yaml").stdout
    assert "plan --launch 15m reckons with yours" in assumed
    told = json.loads(specbench("plan", "sweeps/kimi_eagle3.yaml", "--json").stdout)
    words = ("plan", "sweeps/kimi_eagle3.yaml", "--launch", "15m", "--json")
    given = json.loads(specbench(*words).stdout)
    more = given["launches"] * (900 - 180) / 3600
    assert given["hours"] == pytest.approx(told["hours"] + more, abs=0.02)
    assert given["basis"].startswith("15 min a launch, as --launch says")
    wrong = specbench("plan", "sweeps/kimi_eagle3.yaml", "--launch", "soon")
    assert (wrong.returncode, "write it like 90s, 30m" in wrong.stderr) == (2, True)


def test_a_plan_as_json_holds_words_and_environment_of_every_point() -> None:
    done = specbench("plan", "sweeps/quickstart.yaml", "--all", "--json")
    plan = json.loads(done.stdout)
    assert len(plan["commands"]) == plan["points"]
    last = plan["commands"][-1]
    assert last["point"]["env"] == last["env"] | {} or "NCCL_PROTO" in last["env"]
    assert "--speculative-algorithm" in last["argv"]
    assert "--speculative-algorithm" not in plan["baseline"]["argv"]
    assert plan["launches"] > 1


def test_the_schema_knows_every_section() -> None:
    schema = json.loads(specbench("schema").stdout)
    assert schema["required"] == ["name", "engine", "model"]
    assert schema["else"]["required"] == ["space"]
    assert set(schema["properties"]) > {"baseline", "workload", "measure", "search", "timeouts"}


def test_an_interrupted_sweep_leaves_no_server_and_goes_on(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a night must neither hold the GPUs nor lose the night."""
    tiny_sweep(tmp_path, search="trials: 3")
    out = tmp_path / "out"
    words = [sys.executable, "-m", "tuner", "sweep", tmp_path / "tiny.yaml", "--out", out]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while "trial 1," not in (tmp_path / "log").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        servers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    assert not [each for each in servers if each.is_running()]
    said = (tmp_path / "log").read_text()
    (run,) = out.iterdir()
    assert f"go on with: specbench sweep --resume {run}" in said
    at_once, report = said.index("stopping servers"), said.index(f"report: {run}/report.md")
    assert at_once < said.index("writing the report") < report < said.index("go on with")
    words = "**Ended early at 0 of 3 candidates** (it was interrupted)"
    assert words in (run / "report.md").read_text()
    assert "Traceback" not in said
    resumed = specbench("sweep", "--resume", run, "--json")
    assert resumed.returncode == 0, resumed.stderr
    trials = [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]
    trials = [each for each in trials if each["role"] != "plain"]
    assert [each["role"] for each in trials] == ["baseline", *["candidate"] * 3]
    points = [json.dumps(each["point"], sort_keys=True) for each in trials]
    assert len(set(points)) == 4


def test_unlike_runs_are_refused_with_exit_code_4(tmp_path: Path) -> None:
    """A ratio between different questions is a wrong answer with two decimals."""
    runs = []
    for tokens in (24, 32):
        tiny_sweep(tmp_path, search="trials: 1")
        path = tmp_path / "tiny.yaml"
        path.write_text(path.read_text().replace("output_tokens: 24", f"output_tokens: {tokens}"))
        done = specbench("sweep", path, "--out", tmp_path / "out", "--json")
        runs.append(json.loads(done.stdout)["run"])
    done = specbench("compare-report", *runs)
    assert done.returncode == 4
    assert "output tokens" in done.stderr or "output_tokens" in done.stderr


@pytest.mark.parametrize("speculates", [True, False])
def test_an_endpoint_is_measured_as_it_is_and_shown(tmp_path: Path, speculates: bool) -> None:
    """Whoever measures production wants the figures on the screen, and no word of a baseline."""
    loaded = tiny_sweep(tmp_path)
    engine = make_engine(loaded.sweep)
    point = loaded.space.points[0] if speculates else None
    server = engine.launch(server_config(loaded.sweep, point), tmp_path / "log", 0)
    try:
        path = tmp_path / "tiny.yaml"
        attached = f"engine: {{kind: endpoint, url: '{server.url}'}}"
        lines = path.read_text().splitlines()
        text = "\n".join(attached if each.startswith("engine:") else each for each in lines)
        text = re.sub(r"\nspace:(\n? .*)*", "", text).replace(", algorithm: EAGLE3", "")
        path.write_text(text)
        done = specbench("sweep", path, "--out", tmp_path / "out")
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    assert "(simulated), concurrency 1" in done.stdout
    assert "baseline" not in done.stdout
    name = "1 step, 2 tokens" if speculates else "no speculation"
    row = done.stdout.split("concurrency 1", 1)[1].split(name, 1)[1].split("report:")[0]
    assert re.search(r"\b[1-9]\d*\.\d\b", row), "tok/s"


def test_the_help_says_what_a_path_is_of() -> None:
    """`--out PATH` may be a file or a folder; which one is found out when the run is over."""
    context = click.Context(commands.specbench)
    for name in commands.specbench.list_commands(context):
        command = commands.specbench.commands[name]
        for option in command.params:
            if isinstance(option, click.Option) and isinstance(option.type, click.Path):
                assert option.metavar is not None, f"{name} {option.opts[0]}"
