"""What README and docs tell people to type, and the YAML that they copy, against the code."""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from tests.factories import Trial, make_point, make_run
from tests.repository.pages import PAGES, Code, Command, codes, commands, yaml_blocks
from tuner.cli.commands import specbench
from tuner.config.loader import load_sweep

SWEEP, RUN = Path("sweeps/quickstart.yaml"), Path("results/h200_placement/20261130-022458")
OTHER_RUN, FOREIGN = (
    Path("results/h200_draft_tp/20261129-210746"),
    "tests/compare/external/bench_serving.jsonl",
)
STANDS_FOR = {
    **dict.fromkeys(("my.yaml", "FILE", "best.yaml"), str(SWEEP)),
    **dict.fromkeys(("RUN", "A", "B"), str(RUN)),
    **dict.fromkeys(("bench.jsonl", "vllm.json"), FOREIGN),
    "FOLDER": ".",
    "URL": "sqlite:///shared.db",
    "PYTHON": "/opt/sglang/bin/python",
}
"""What the pages' placeholders are, to be parsed and run."""

RUN_HERE = ("plan", "schema", "doctor", "compare-report", "report", "draft-tp env")
"""Commands that are run, each as the pages have it: pure, or seconds on the simulated engine."""

NOT_RUN = {
    "specbench sweep": "minutes or GPUs; `make demo` runs the quickstart",
    "specbench worker": "needs a database and others beside it; tests/workers/test_worker.py",
    "specbench dashboard": "serves until it is stopped; tests/dashboard/test_serve.py",
    "specbench status": "of a run at work; tests/cli/test_long_runs.py",
    "specbench stop": "of a run at work; tests/cli/test_long_runs.py",
    "specbench clean": "after a killed run; tests/cli/test_long_runs.py",
    "specbench comm": "needs GPUs or torch; tests/comm",
    "specbench simulate": "serves until it is stopped; tests/engine",
    "specbench draft-tp diff": "needs SGLang's sources; tests/plugin and make test-sglang",
    "make": "installs, and runs these very tests; that the target exists is tested",
    "python -m sglang.": "SGLang's own, needs a GPU",
    "python -m tests.": "needs GPUs or SGLang, or takes minutes; that the module exists is tested",
    "python -m benchmarks.": "minutes, or installs; tests run parts of it",
    "python scripts/": "that the script exists is tested",
    "python -m venv": "installs",
    "python -c": "a line for shells",
    "pip": "installs",
    "eval": "its inner command is run",
}
"""Every other command begins with one of these; what it is not run for."""

ALL = commands()
SPECBENCH = [each for each in ALL if each.words[:1] == ["specbench"]]
BLOCKS = yaml_blocks()
SWEEPS = [each for each in BLOCKS if re.search(r"^name:", each.text, re.M)]
FRAGMENTS = [each for each in BLOCKS if each not in SWEEPS]


def parse(words: list[str]) -> click.Context:
    """The command's context; click's error for a wrong option or argument."""
    command: click.Command = specbench
    context = specbench.make_context("specbench", list(words), resilient_parsing=False)
    rest = words
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, list(rest))
        assert found is not None
        if isinstance(found, click.Group):
            context = found.make_context(name, list(rest), parent=context)
        else:
            return found.make_context(name, list(rest), parent=context)
        command = found
    return context


def arguments(command: Command) -> list[str]:
    """Of `specbench ...`, placeholders replaced, `[C...]` and `...` left out."""
    words = [word for word in command.words[1:] if not re.fullmatch(r"\[.*\]|\.\.\.", word)]
    words = [re.sub(r"^results/NAME/RUN(-ID)?$", str(RUN), word) for word in words]
    return [STANDS_FOR.get(word, word) for word in words]


def whole(command: Command) -> list[str] | None:
    """Its arguments; None for a mention such as `specbench plan`, with nothing behind it."""
    words = arguments(command)
    return words if not command.code.inline or len(words) > 1 else None


def test_pages_have_commands_and_yaml() -> None:
    """A reader of Markdown that finds nothing would pass every test below."""
    assert len(SPECBENCH) > 40
    assert len(SWEEPS) >= 8
    assert len(FRAGMENTS) >= 2
    assert {each.code.page for each in SPECBENCH} >= {Path("README.md"), Path("docs/compare.md")}


@pytest.mark.parametrize("command", SPECBENCH, ids=str)
def test_specbench_knows_the_command_and_its_options(command: Command) -> None:
    """The first thing that a reader does is to paste it."""
    words = whole(command)
    if words is not None and not {"-h", "--help"} & set(words):
        try:
            parse(words)
        except click.MissingParameter:
            assert command.code.inline, f"{command}: lacks an argument"
    else:
        name = arguments(command)[0]
        assert name.startswith("-") or name in specbench.commands, f"{command}: no such command"


@pytest.mark.parametrize("command", [c for c in ALL if c not in SPECBENCH], ids=str)
def test_every_other_command_is_there(command: Command) -> None:
    words = command.words
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), re.M))
        assert {w for w in words[1:] if "=" not in w} <= targets, f"{command}: no such target"
    elif words[:2] in (["python", "-m"], ["python3", "-m"]):
        own = words[2].partition(".")[0] in ("tests", "benchmarks", "tuner")
        assert not own or importlib.util.find_spec(words[2]), f"{command}: no such module"
    elif len(words) > 1 and words[1].endswith(".py"):
        assert Path(words[1]).is_file(), f"{command}: no such script"


def test_what_is_not_run_has_a_reason_and_no_reason_is_stale() -> None:
    """Otherwise a command that nobody ever ran hides among those that are."""
    used = set()
    for command in ALL:
        text = " ".join(command.words).replace("python3 ", "python ")
        if any(text.startswith(f"specbench {name}") for name in RUN_HERE):
            continue
        reasons = [start for start in NOT_RUN if text.startswith(start)]
        mention = len(command.words) == 2 and command.words[1].startswith("-")
        assert reasons or mention, f"{command}: run it here, or say in NOT_RUN why not"
        used |= set(reasons[:1])
    assert set(NOT_RUN) - used == set()


def runnable() -> Iterator[Any]:
    seen = set()
    for command in SPECBENCH:
        words = whole(command)
        if words is None or not any(" ".join(words).startswith(name) for name in RUN_HERE):
            continue
        if tuple(words) not in seen:
            seen.add(tuple(words))
            yield pytest.param(words, id=str(command))


@pytest.mark.parametrize("words", list(runnable()))
def test_it_runs(words: list[str], tmp_path: Path) -> None:
    """In-process, on committed runs and the simulated engine; what is written goes elsewhere."""
    if words[0] == "report":
        shutil.copytree(RUN, tmp_path / "run")
        words = ["report", str(tmp_path / "run")]
    if words[0] == "compare-report":
        words = compared(words, tmp_path)
    done = CliRunner().invoke(specbench, words, standalone_mode=False)
    assert done.exception is None, f"{words}: {done.exception}"
    assert done.output or words[0] == "compare-report"
    assert (done.return_value or 0) in ((0, 1) if words[0] == "doctor" else (0, 3, 4))


def compared(words: list[str], tmp_path: Path) -> list[str]:
    """Small runs in place of the committed ones, files in `tmp_path`."""
    runs = [
        make_run(tmp_path / n, [Trial(None, 90.0), Trial(make_point(2), 99.0)]).path for n in "ab"
    ]
    taken = iter(runs * 2)
    named = [str(next(taken)) if word == str(RUN) else word for word in words]
    if FOREIGN in named:
        pytest.skip("another model than the run's; tests/compare/test_external_files.py runs it")
    named += [str(runs[1])] if sum(word == str(runs[0]) for word in named) > 1 else []
    files = ("--out", "--html")
    return [str(tmp_path / w) if i and named[i - 1] in files else w for i, w in enumerate(named)]


@pytest.mark.parametrize("block", SWEEPS, ids=str)
def test_a_sweep_file_of_a_page_loads_and_can_be_planned(block: Code, tmp_path: Path) -> None:
    """Who copies it should not have to mend it first."""
    path = tmp_path / "page.yaml"
    path.write_text(block.text)
    loaded = load_sweep(path)
    if loaded.sweep.engine.kind == "simulated":
        done = CliRunner().invoke(specbench, ["plan", str(path)], standalone_mode=False)
        assert done.exception is None, f"{block}: {done.exception}"
        assert "launches, about" in done.output


@pytest.mark.parametrize("block", FRAGMENTS, ids=str)
def test_a_part_of_a_sweep_file_fits_into_one(block: Code, tmp_path: Path) -> None:
    """Fragments have no `name`; their sections take the place of those of a small sweep."""
    whole = yaml.safe_load(SWEEP.read_text())
    part = yaml.safe_load(block.text)
    for section, keys in part.items():
        merged = {**whole.get(section, {}), **keys} if isinstance(keys, dict) else keys
        whole[section] = merged
    prompts = whole.get("workload", {}).get("prompts", "builtin:")
    if not prompts.startswith("builtin:"):  # the reader's own file
        (tmp_path / prompts).write_text('[{"prompt": "Hello."}]')
    path = tmp_path / "page.yaml"
    path.write_text(yaml.safe_dump(whole))
    load_sweep(path)


def test_pages_name_no_sweep_file_and_no_run_that_is_not_there() -> None:
    for page in PAGES:
        for name in re.findall(r"(?<![\w/])((?:sweeps|results)/[\w./-]+)", page.read_text()):
            generic = re.match(r"results/(NAME|my_sweep|first|\.\.)", name) or name.endswith("/")
            assert generic or Path(name.rstrip(".")).exists(), f"{page}: {name}"


def test_python_of_the_pages_runs() -> None:
    """Block after block of a page, in one session, as a reader would."""
    ran = 0
    for page in PAGES:
        scope: dict[str, Any] = {}
        for block in codes(page):
            if block.language == "python":
                exec(compile(block.text, str(block), "exec"), scope)
                ran += 1
    assert ran >= 3
