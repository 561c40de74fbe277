"""Samplers in a run: refused before anything is launched, or followed to the report."""

from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.summary import summarise_run
from tuner.config.loader import load_sweep
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep


def test_gp_without_torch_is_refused_at_its_line(tmp_path: Path, monkeypatch) -> None:
    """Otherwise the first launches are spent before the sampler is asked."""
    monkeypatch.setattr("tuner.search.samplers.find_spec", lambda name: None)
    loaded = tiny_sweep(tmp_path, search="sampler: gp, trials: 3")
    line = next(n for n, each in enumerate(loaded.text.splitlines(), 1) if "sampler" in each)
    with pytest.raises(UserError) as caught:
        begin_run(tmp_path / "runs", loaded, None)
    assert str(caught.value).startswith(f"{loaded.path}:{line}: ")
    assert "pip install 'sglang-specbench[gp]'" in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_folder_called_torch_is_no_torch(tmp_path: Path, monkeypatch) -> None:
    """Python finds one in the folder where `python -m tuner` is started."""
    (tmp_path / "torch").mkdir()
    found = PathFinder.find_spec("torch", [str(tmp_path)])
    assert found is not None
    monkeypatch.setattr("tuner.search.samplers.find_spec", lambda name: found)
    loaded = tiny_sweep(tmp_path, search="sampler: gp, trials: 3")
    with pytest.raises(UserError, match="gp needs torch"):
        begin_run(tmp_path / "runs", loaded, None)


def test_nsga2_searches_over_the_levels_and_the_report_names_the_front(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, search="sampler: nsga2, trials: 4")
    loaded.path.write_text(loaded.text.replace("concurrency: [1]", "concurrency: [1, 4]"))
    loaded = load_sweep(loaded.path)
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = run_sweep(loaded, run, make_engine(loaded.sweep), listener)
    assert (result.trials, result.exit_code) == (4, 0)
    assert set(result.by_level) == {1, 4}
    report = write_report(summarise_run(run)).read_text()
    assert "by another one: " in report
    again = Listener()
    same = run_sweep(loaded, reopen_run(run.path, loaded, None), make_engine(loaded.sweep), again)
    assert same == result
    assert again.records == []
    assert not any("proposes" in note for note in again.notes)
