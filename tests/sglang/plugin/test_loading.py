"""How the plug-in gets into SGLang's modules: on import, once, and never by half."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sglang.plugin.fake_sglang import LOAD, SCHEDULER, USE, fake_sglang, run_python
from tuner.core.errors import UserError
from tuner.sglang.draft_tp import CARRIER, draft_tp_diff


def test_without_the_variable_nothing_changes(tmp_path: Path) -> None:
    """The carrier may stay on the path of a server that does not use it."""
    site = fake_sglang(tmp_path, "9.9.9", SCHEDULER)
    assert run_python(LOAD + USE, site, None) == (0, "True")


def test_a_scheduler_whose_draft_was_not_placed_does_not_serve(tmp_path: Path) -> None:
    """A worker of another kind would otherwise run unpatched in silence."""
    site = fake_sglang(tmp_path, "0.5.17", SCHEDULER)
    code, text = run_python(LOAD + USE, site, "1")
    assert code == 1 and text.endswith(
        "not patched: the scheduler has no draft that the plug-in has placed"
    )


def test_a_refusal_comes_before_the_scheduler_is_built(tmp_path: Path) -> None:
    """Weights take minutes to load."""
    site = fake_sglang(tmp_path, "0.5.17", SCHEDULER.replace("self.built = True", "1 / 0"))
    code, text = run_python(LOAD + USE, site, "3")
    assert code == 1 and "draft TP refused: 3 does not divide the target's TP size 4" in text


def test_an_unknown_sglang_ends_the_launcher(tmp_path: Path) -> None:
    """SGLang only logs what a plug-in raises; SystemExit it lets through."""
    site = fake_sglang(tmp_path, "0.9.0", SCHEDULER)
    code, text = run_python(LOAD + USE, site, "1")
    assert code == 1 and text.startswith("specbench: not patched: SGLang 0.9.0 is not known")


def test_another_shape_than_expected_stops_the_import(tmp_path: Path) -> None:
    """A patch of a renamed function would change nothing."""
    site = fake_sglang(tmp_path, "0.5.17", "class Planner: pass\n")
    code, text = run_python(LOAD + "import sglang.srt.managers.scheduler", site, "1")
    assert code == 1 and "scheduler.Scheduler.__init__ is missing" in text


def test_the_diff_applies_and_does_the_same_without_the_carrier(tmp_path: Path) -> None:
    """People who build SGLang themselves have no PYTHONPATH to set."""
    site = fake_sglang(tmp_path, "0.5.17", SCHEDULER)
    patch = tmp_path / "draft_tp.diff"
    patch.write_text(draft_tp_diff(site))
    for words in (["init", "-q"], ["apply", "-p1", str(patch)]):
        subprocess.run(["git", *words], cwd=site, check=True)
    assert run_python(USE, site, None, plugin=False) == (0, "True")
    code, text = run_python(USE, site, "3", plugin=False)
    assert code == 1 and "3 does not divide" in text
    with pytest.raises(UserError, match="already"):
        draft_tp_diff(site)


def test_the_diff_is_of_the_interpreters_own_copy_by_default(tmp_path: Path) -> None:
    """Site-packages are nobody's to look for by hand."""
    site = fake_sglang(tmp_path, "0.5.17", SCHEDULER)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    command = [sys.executable, "-m", "tuner", "draft-tp", "diff"]
    words = {"capture_output": True, "text": True, "check": False}
    done = subprocess.run([*command, "--python", str(python)], **words)
    assert (done.returncode, done.stdout) == (0, draft_tp_diff(site))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    without = subprocess.run([*command, "--python", str(python)], **words)
    assert without.returncode == 2
    assert "shows no SGLang, give --source DIR" in without.stderr


@pytest.mark.parametrize("path", sorted(CARRIER.rglob("*.py")), ids=lambda path: path.name)
def test_the_carrier_imports_the_standard_library_only(path: Path) -> None:
    """It is imported before SGLang, by interpreters that have neither specbench nor torch yet."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert str(node.module).split(".")[0] in sys.stdlib_module_names
