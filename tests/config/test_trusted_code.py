"""Whose code runs on the machine, and who can reach its ports: only what the user asked for."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.factories import Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.cli.commands import specbench
from tuner.config.loader import load_sweep
from tuner.config.reserved_flags import RESERVED
from tuner.config.synthetic import FLAG, trusted_code
from tuner.core.errors import UserError
from tuner.preflight.plan import make_plan
from tuner.report.report import write_report
from tuner.runs.run import Run
from tuner.server.base import HOST
from tuner.simulator.arguments import parse

SWEEP = """
name: x
engine: {kind: sglang, release: 0.5.17}
model: {target: org/model, draft: org/draft, algorithm: EAGLE3}
server: {flags: {FLAGS}}
space: {num_steps: [1, 2]}
search: {stages: []}
"""


def planned(folder: Path, flags: str) -> tuple[list[str], tuple[str, ...]]:
    file = folder / "x.yaml"
    file.write_text(SWEEP.replace("FLAGS", flags))
    plan = make_plan(load_sweep(file))
    words = [word for _, command in plan.commands for word in command.argv]
    return [*words, *plan.baseline.argv], plan.notes


def test_remote_code_runs_only_where_the_file_says_so_and_the_plan_shows_it(tmp_path: Path):
    words, notes = planned(tmp_path, "")
    assert f"--{FLAG}" not in words
    assert not any(FLAG in note for note in notes)
    words, notes = planned(tmp_path, f"{FLAG}: false")
    assert f"--{FLAG}" not in words
    words, notes = planned(tmp_path, f"{FLAG}: true")
    assert words.count(f"--{FLAG}") == 3
    assert "trust-remote-code is on: Python code in the files of org/model and org/draft is " \
        "run here" in notes  # fmt: skip


def test_the_report_shows_it(tmp_path: Path):
    """Who is given a run folder knows that its figures came with a model's own code."""
    run = make_run(tmp_path, [Trial(None), Trial(make_point(2))])
    assert FLAG not in write_report(summarise_run(run)).read_text()
    text = run.sweep_file.read_text()
    run.sweep_file.write_text(f"{text}\nserver: {{flags: {{{FLAG}: true}}}}\n")
    run = Run.open(run.path)
    assert trusted_code(run.sweep()) is not None
    assert "| code | trust-remote-code is on" in write_report(summarise_run(run)).read_text()


def test_servers_listen_on_the_loopback_alone(tmp_path: Path):
    """A server without a key on a public address serves anybody."""
    words, _ = planned(tmp_path, "")
    hosts = {word for flag, word in pairwise(words) if flag == "--host"}
    assert hosts == {"127.0.0.1"} == {HOST}
    assert "host" in RESERVED
    assert parse([]).server_args["host"] == "127.0.0.1"
    host = next(each for each in specbench.commands["dashboard"].params if each.name == "host")
    assert host.default == "127.0.0.1"


def test_a_dashboard_for_everybody_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """optuna-dashboard asks for no password, and can delete studies."""
    monkeypatch.setattr("tuner.cli.dashboard.serve", lambda *_: None)
    run = make_run(tmp_path, [Trial(None), Trial(make_point(2))])
    words = ["dashboard", str(run.path), "--port", "18431"]
    assert "password" not in CliRunner().invoke(specbench, words).output
    told = CliRunner().invoke(specbench, [*words, "--host", "0.0.0.0"]).output
    assert "anybody who reaches this machine can read and change it, without a password" in told


def test_no_shell_is_ever_started():
    """A value of a sweep file that reached one could do anything."""
    for path in sorted(Path("tuner").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword):
                assert node.arg != "shell", f"{path}:{node.value.lineno}"
            assert not uses_a_shell(node), f"{path}:{node.lineno}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", [
    "os.system(x)", "os.popen(x)", "from os import system", "subprocess.getoutput(x)",
    "asyncio.create_subprocess_shell(x)", "from subprocess import getstatusoutput",
    "['bash', '-c', x]", "('sh', '-lc', x)", "[SHELL, '-c', x]",
])  # fmt: skip
def test_a_shell_would_be_found(code: str):
    """A check that misses a way of starting one is none."""
    assert any(uses_a_shell(node) for node in ast.walk(ast.parse(code)))
    assert not any(
        uses_a_shell(node) for node in ast.walk(ast.parse("platform.system(); [y, '-c']"))
    )


SHELLS = {"system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"}
PROGRAMS = {"sh", "bash", "dash", "zsh", "/bin/sh", "/bin/bash", "/usr/bin/env"}


def uses_a_shell(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module != "platform":
        return bool(SHELLS & {each.name for each in node.names})
    if isinstance(node, ast.Attribute) and node.attr in SHELLS:
        return not (isinstance(node.value, ast.Name) and node.value.id == "platform")
    if isinstance(node, ast.List | ast.Tuple):
        words = [each.value for each in node.elts if isinstance(each, ast.Constant)]
        named = {each.id for each in node.elts if isinstance(each, ast.Name)}
        runs = any(isinstance(each, str) and re.fullmatch(r"-\w*c", each) for each in words)
        return runs and bool(PROGRAMS & set(words) or "SHELL" in named)
    return False


@pytest.mark.parametrize(("flags", "words"), [
    ("lora-paths: [a, --trust-remote-code]", "would be read as another flag"),
    ("cuda-graph-bs: [--host=0.0.0.0]", "would be read as another flag"),
    ("config: more.yaml", "SGLang reads more flags from that file"),
])  # fmt: skip
def test_no_flag_comes_in_by_the_side(tmp_path: Path, flags: str, words: str):
    """Otherwise a value turns a model's code on, or opens the port to everybody, and neither plan
    nor report says so."""
    with pytest.raises(UserError, match=words):
        planned(tmp_path, flags)
    planned(tmp_path, "cuda-graph-bs: [1, 2], served-model-name: -x")


@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize("value", ["--trust-remote-code", "a\\nb", "a\\e[2Jb", "a\u202eb"])
def test_a_model_s_name_is_a_name(tmp_path: Path, name: str, value: str):
    """It stands on command lines, terminals and in every table."""
    file = tmp_path / "x.yaml"
    was = "target: org/model" if name == "target" else "draft: org/draft"
    file.write_text(SWEEP.replace("FLAGS", "").replace(was, f'{name}: "{value}"'))
    with pytest.raises(UserError, match=rf"x.yaml:4: model.{name}: ") as refused:
        load_sweep(file)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/b", "..", ".x", "a\\nb", "", "-x", "a b"])
def test_a_name_that_leaves_the_results_folder_is_refused(tmp_path: Path, name: str):
    """The name becomes a folder's."""
    file = tmp_path / "x.yaml"
    file.write_text(SWEEP.replace("FLAGS", "").replace("name: x", f'name: "{name}"'))
    done = CliRunner().invoke(specbench, ["plan", str(file)])
    assert done.exception is not None
    assert "cannot be a folder's name" in str(done.exception)


def test_what_is_measured_never_names_a_file():
    """Files of a run are named by numbers alone."""
    from tuner.runs.run_folder import RunFolder

    folder = RunFolder(Path("run"))
    assert folder.log_file(7) == Path("run/logs/0007.log")
    assert folder.samples_file(7) == Path("run/samples/0007.jsonl.gz")
