"""Whose code runs on the machine, and who can reach its ports: only what the user asked for."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.report.make_run import Trial, chain, make_run
from tuner.cli.commands import specbench
from tuner.engine.sglang import flags
from tuner.engine.simulated.arguments import parse
from tuner.plan import make_plan
from tuner.report.run_report import write_report
from tuner.sweep.door import load_sweep
from tuner.sweep.reserved import RESERVED
from tuner.sweep.trusted import FLAG, trusted_code

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
    run = make_run(tmp_path, [Trial(None), Trial(chain(2))])
    assert FLAG not in write_report(run).read_text()
    text = run.sweep_file.read_text()
    run.sweep_file.write_text(f"{text}\nserver: {{flags: {{{FLAG}: true}}}}\n")
    assert trusted_code(run.sweep()) is not None
    assert "| code | trust-remote-code is on" in write_report(run).read_text()


def test_servers_listen_on_the_loopback_alone(tmp_path: Path):
    """A server without a key on a public address serves anybody."""
    words, _ = planned(tmp_path, "")
    hosts = {word for flag, word in pairwise(words) if flag == "--host"}
    assert hosts == {"127.0.0.1"} == {flags.HOST}
    assert "host" in RESERVED
    assert parse([]).server_args["host"] == "127.0.0.1"
    host = next(each for each in specbench.commands["dashboard"].params if each.name == "host")
    assert host.default == "127.0.0.1"


def test_a_dashboard_for_everybody_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """optuna-dashboard asks for no password, and can delete studies."""
    monkeypatch.setattr("tuner.cli.dashboard.serve", lambda *_: None)
    run = make_run(tmp_path, [Trial(None), Trial(chain(2))])
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
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("system", "popen", "getoutput", "getstatusoutput",
                                         "create_subprocess_shell") or (
                    isinstance(node.value, ast.Name) and node.value.id != "os"
                ), f"{path}:{node.lineno}"  # fmt: skip


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
    from tuner.ledger.folder import RunFolder

    folder = RunFolder(Path("run"))
    assert folder.log_file(7) == Path("run/logs/0007.log")
    assert folder.samples_file(7) == Path("run/samples/0007.jsonl.gz")
