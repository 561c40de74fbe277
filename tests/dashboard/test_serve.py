"""The study of `specbench dashboard`: every line of the ledger, from any state of the files."""

import json
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest
from markdown_it import MarkdownIt
from optuna.trial import Trial as OptunaTrial
from optuna.trial import TrialState
from optuna_dashboard import get_note

from tests.factories import Trial, make_hostile_run, make_point, make_run
from tests.sweeps import Listener, tiny_sweep
from tuner.dashboard import serve
from tuner.dashboard.serve import study_to_view
from tuner.engines import make_engine
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.run import Run
from tuner.search.optuna_storage import sqlite_url


def study_at(run: Run, url: str | optuna.storages.BaseStorage) -> optuna.Study:
    return optuna.load_study(study_name=run.id, storage=url)


def note_of(study: optuna.Study, number: int) -> str:
    return get_note(OptunaTrial(study, study.trials[number]._trial_id))


def seen(study: optuna.Study) -> list[dict[str, Any]]:
    """All that is shown of each trial, but for when and by which id."""
    return [
        {
            "state": trial.state,
            "values": trial.values,
            "params": trial.params,
            "attributes": trial.user_attrs,
            "system": trial.system_attrs,
            "note": note_of(study, trial.number).replace(f"/{trial._trial_id}/", "/ID/"),
        }
        for trial in study.trials
    ]


TRIALS = [Trial(None, 90.0), Trial(make_point(2), 95.0), Trial(make_point(3), 130.0)]


class Looking(Listener):
    """Reads the study whenever a launch begins."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Run | None = None
        self.looks: list[tuple[list[str], str]] = []

    def phase(self, phase: Any) -> None:
        if phase.doing == "launching" and self.run is not None:
            study = study_at(self.run, sqlite_url(self.run.study_file))
            states = [trial.state.name for trial in study.trials]
            self.looks.append((states, study.user_attrs["running"].partition(":")[0]))


def test_study_follows_a_run_and_is_rebuilt_if_missing(tmp_path: Path) -> None:
    loaded = tiny_sweep(tmp_path, faults="{kind: oom-load, launches: [2]}", search="trials: 3")
    run, looking = begin_run(tmp_path / "runs", loaded, None), Looking()
    looking.run = run
    run_sweep(loaded, run, make_engine(loaded.sweep), looking)
    assert looking.looks[0] == ([], "trial 0")
    assert looking.looks[1] == (["COMPLETE"], "trial 1")
    assert looking.looks[3] == (["COMPLETE", "COMPLETE", "PRUNED"], "trial 3")

    study = study_at(run, sqlite_url(run.study_file))
    records = run.records()
    assert [trial.number for trial in study.trials] == [record.trial for record in records]
    base, first, too_large, *_ = study.trials
    assert (base.value, base.params["num_steps"]) == (1.0, 0)
    assert too_large.system_attrs["constraints"] == [1.0]
    assert too_large.user_attrs["reason"].startswith("OOM: ")
    assert "cannot be served: OOM" in note_of(study, 2)
    assert first.params["num_steps"] == records[1].at.num_steps
    for name, value in records[1].metrics["1"].items():
        if isinstance(value, int | float):
            assert first.user_attrs[f"c1.{name}"] == value
    assert "--speculative-num-steps" in note_of(study, 1)
    answer = study.user_attrs["answer"]
    assert answer in get_note(study)
    assert f"trial {max(study.trials, key=lambda t: t.value or 0).number}: " in answer
    assert study.user_attrs["running"] == "nothing"

    live = seen(study)
    assert study_to_view(run)[1] is None
    run.study_file.unlink()
    storage, note = study_to_view(run)
    assert note is None
    assert seen(study_at(run, storage)) == live
    assert seen(study_at(run, sqlite_url(run.study_file))) == live


def test_run_in_progress_is_shown_and_not_written(tmp_path: Path) -> None:
    run = make_run(tmp_path, TRIALS)
    with run.locked():
        assert run.is_being_written
        storage, note = study_to_view(run)
        assert note is not None and "this run has no study.db" in note
        assert not run.study_file.exists()
        assert len(study_at(run, storage).trials) == 3
    study_to_view(run)
    with run.locked():
        storage, note = study_to_view(run)
        assert (note, str(storage.url)) == (None, sqlite_url(run.study_file))


def test_study_follows_a_ledger_that_was_cut_off(tmp_path: Path) -> None:
    """A power cut can lose the ledger's last line after its trial was written."""
    run = make_run(tmp_path, TRIALS)
    study_to_view(run)
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    run.trials_file.write_bytes(b"".join(lines[:2]))
    storage, note = study_to_view(run)
    assert note is None
    assert len(study_at(run, storage).trials) == 2


def test_large_missing_study_is_shown_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MOST_WRITTEN", 2)
    run = make_run(tmp_path, TRIALS)
    storage, note = study_to_view(run)
    assert note is not None and "study.db lacks 3 trials" in note
    assert len(study_at(run, storage).trials) == 3
    assert note_of(study_at(run, storage), 1)


def test_broken_samples_do_not_hide_the_study(tmp_path: Path) -> None:
    run = make_run(tmp_path, [*TRIALS, Trial(None, 90.0)])
    for file in run.samples.iterdir():
        file.write_bytes(b"broken")
    storage, _ = study_to_view(run)
    assert study_at(run, storage).user_attrs["answer"].startswith("trial 2: ")


def test_interrupted_trial_is_in_no_study(tmp_path: Path) -> None:
    class Impatient(Listener):
        def phase(self, phase: Any) -> None:
            if phase.trial == 1 and phase.doing == "measuring":
                raise KeyboardInterrupt

    loaded = tiny_sweep(tmp_path, search="trials: 2")
    run = begin_run(tmp_path / "runs", loaded, None)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(loaded, run, make_engine(loaded.sweep), Impatient())
    study = study_at(run, sqlite_url(run.study_file))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE]
    assert study.user_attrs["running"] == "nothing"


def test_shared_storage_has_the_study_and_keeps_others(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "team.db")
    optuna.create_study(study_name="somebody else's", storage=url)
    loaded = tiny_sweep(tmp_path, search=f"trials: 1, storage: '{url}', sampler: nsga2")
    run = begin_run(tmp_path / "runs", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    storage, note = study_to_view(run)
    assert (note, str(storage.url)) == (None, url)
    study = study_at(run, storage)
    assert study.metric_names == ["speed-up at concurrency 1"]
    assert study.trials[1].value == run.records()[1].metrics["1"]["speedup"]
    assert len(optuna.get_all_study_names(url)) == 2
    assert not run.study_file.exists()


def test_notes_have_no_markup_of_users_or_servers(tmp_path: Path) -> None:
    """A model's name or a log line could otherwise run a script or fetch an image."""
    run = make_hostile_run(tmp_path)
    study = study_at(run, study_to_view(run)[0])
    notes = [get_note(study), *(note_of(study, trial.number) for trial in study.trials)]
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    for note in notes:
        tokens = [t for top in reader.parse(note) for t in (top, *(top.children or ()))]
        kinds = {token.type for token in tokens}
        assert not kinds & {"html_inline", "html_block", "image", "heading_open"}, note
        links = [str(t.attrs["href"]) for t in tokens if t.type == "link_open"]
        assert all(link.startswith("/artifacts/") for link in links)
    assert "alert(1)" in notes[2] and "OOM" in notes[4]


def test_old_ledger_and_one_without_a_gain_are_shown(tmp_path: Path) -> None:
    """Ledgers from before the notes have notes too."""
    folder = shutil.copytree("results/h200_placement/20261130-022458", tmp_path / "old")
    old = Run.open(folder)
    study = study_at(old, study_to_view(old)[0])
    lines = [json.loads(line) for line in old.trials_file.read_text().splitlines()]
    assert len(study.trials) == len(lines)
    assert study.trials[1].user_attrs["c8.output_tok_s"] == lines[1]["metrics"]["8"]["output_tok_s"]
    best = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(1), 80.0), Trial(make_point(2), 70.0)]
    )
    shown = study_at(best, study_to_view(best)[0])
    assert shown.best_trial.number == 0
    assert shown.user_attrs["answer"] == "no speculation"
