"""Racing in a run: what it saves, and that no answer is lost by it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.factories import World, make_sample, make_window
from tests.played import known_windows
from tests.sweeps import HURRIED, Listener
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.core.errors import EngineFailure, Failure
from tuner.engines import make_engine
from tuner.execution.early_stopping import Race
from tuner.execution.launch import LaunchContext, LaunchJob, LaunchResult
from tuner.execution.progress import Phase
from tuner.loadgen.auth import NO_KEYS
from tuner.loadgen.client import GENERATE
from tuner.metrics.early_stopping import WindowSpread
from tuner.metrics.samples import Request, Window
from tuner.metrics.samples_file import read_samples
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.run import Run

SWEEP = """
name: raced
engine: {kind: simulated, preset: quickstart}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
SERVER
baseline: {launches: 1}
space:
  num_steps: [STEPS]
  env: {NCCL_PROTO: [LL, unset]}
workload: {requests: 8, output_tokens: 24, concurrency: [LEVELS]}
measure: {warmup_requests: 1, repeats: 4, MEASURE}
search: {sampler: grid}
"""


def raced(folder: Path, **parts: str) -> LoadedSweep:
    words = {"SERVER": "", "STEPS": "3", "LEVELS": "1", "MEASURE": "racing: true", **parts}
    text = SWEEP.replace("preset: quickstart", f"preset: quickstart, {HURRIED}")
    for name, word in words.items():
        text = text.replace(name, word)
    path = folder / "raced.yaml"
    path.write_text(text)
    return load_sweep(path)


def raced_speed(point: Point | None) -> float:
    """Tokens per second: NCCL_PROTO decides, and chain lengths differ by less than a race sees."""
    if point is None or point.num_steps is None:
        return 50.0
    return (80.0 if dict(point.env) else 60.0) - 0.5 * abs(point.num_steps - 2)


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> RunSummary:
    """A run on real servers whose figures are known: on a busy machine windows of one launch differ
    more, and a race rightly waits."""
    listener = listener or Listener()
    windows = known_windows(listener.phases, tok_s=raced_speed)
    with patch("tuner.execution.launch.run_window", windows):
        return run_sweep(loaded, run, make_engine(loaded.sweep), listener)


def notes(record, check: str) -> list[str]:
    return [each["message"] for each in record.checks if each["check"] == check]


def test_a_clearly_slower_candidate_is_stopped_and_keeps_what_it_has(tmp_path: Path) -> None:
    """It is measured: its figures count, it is not measured again, and it is not the answer."""
    loaded = raced(tmp_path)
    run = begin_run(tmp_path / "runs", loaded, None)
    result = go(loaded, run)
    baseline, fast, slow, plain = run.records()
    assert plain.role == "plain"  # the winner has a variable of its own
    assert [each.outcome for each in (baseline, fast, slow)] == ["ok"] * 3
    assert [each.metrics["1"]["requests"] for each in (baseline, fast)] == [32, 32]
    requests = slow.metrics["1"]["requests"]
    assert requests in (8, 16, 24)
    assert slow.samples is not None
    assert sum(len(w.samples) for w in read_samples(run.path / slow.samples)[1]) == requests
    assert 0 < slow.metrics["1"]["speedup_low"] < slow.metrics["1"]["speedup_high"]
    (note,) = notes(slow, "slower")
    assert f"stopped after {requests // 8} of 4 windows" in note
    assert slow.fell_behind and not fast.fell_behind
    assert result.fastest == fast and result.trials == 2
    assert "stopped after" in write_report(summarise_run(run)).read_text()

    again = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), again) == result
    assert again.records == []


def test_without_racing_every_window_is_measured(tmp_path: Path) -> None:
    loaded = raced(tmp_path, MEASURE="racing: false")
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    assert [each.metrics["1"]["requests"] for each in run.records()] == [32] * 4


def test_a_tight_figure_needs_no_more_windows(tmp_path: Path) -> None:
    """Nearly the whole figure to either side is tight anywhere, of the baseline too."""
    loaded = raced(tmp_path, MEASURE="racing: false, target_width: 0.9")
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    for each in run.records():
        assert each.metrics["1"]["requests"] == 16  # one window does not show how windows differ
        assert "is known to ±" in notes(each, "tight")[0]
        assert not each.fell_behind


@pytest.mark.parametrize(
    ("keys", "windows"),
    [("", 3), ("target_width: 0.01", 20), ("target_width: 0.01, repeats: 5", 5)],
)
def test_windows_go_on_until_a_figure_is_tight_or_repeats_is_reached(
    tmp_path: Path, keys: str, windows: int
) -> None:
    """A width that three windows cannot reach would be a key without effect."""
    loaded = raced(tmp_path)
    loaded.path.write_text(loaded.text.replace("repeats: 4, racing: true", keys))
    assert load_sweep(loaded.path).sweep.measure.windows == windows


def test_a_chain_that_is_clearly_slower_leaves_its_shared_launch(tmp_path: Path) -> None:
    """The others go on; the winner's own launch is measured whole."""
    loaded = raced(tmp_path, SERVER="server: {step_switch: true}", STEPS="1, 2, 3")
    run, listener = begin_run(tmp_path / "runs", loaded, None), Listener()
    result = go(loaded, run, listener)
    *_, confirmed, plain = run.records()
    assert plain.role == "plain"
    assert (confirmed.role, confirmed.metrics["1"]["requests"]) == ("confirm", 32)
    assert result.best is not None and result.best.metrics["1"]["requests"] == 32
    slow = [each for each in run.ledger().candidates if dict(each.at.env) == {}]
    assert {each.warm_steps == [1, 2, 3] for each in slow} == {True}
    assert all(each.fell_behind and each.metrics["1"]["requests"] < 32 for each in slow)
    taken = [
        (phase.trial, phase.window)
        for phase in listener.phases
        if phase.doing == "measuring" and phase.role == "candidate"
    ]
    assert len(taken) == len(set(taken))


def test_a_stopped_trial_that_becomes_the_winner_is_measured_whole_first(tmp_path: Path) -> None:
    """What it fell behind may be refuted later; few windows are then no ground for an answer."""
    loaded = raced(tmp_path)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    lines[1] |= {"outcome": "failed", "failure": "CRASH", "metrics": {}}
    run.trials_file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    result = go(loaded, reopen_run(run.path, loaded, None))
    confirmed = run.records()[-1]
    assert (confirmed.role, confirmed.metrics["1"]["requests"]) == ("confirm", 32)
    assert result.best is not None and result.best.at == confirmed.at
    assert result.confirmed == confirmed


# One launch, with windows whose truth is known.


class PlayedServer:
    """Answers at once."""

    url, engine_version, launch_s, info, gpus, keys = "", "0.5.17", 1.0, {}, None, NO_KEYS
    api = GENERATE

    def flush_cache(self) -> None: ...

    def set_steps(self, steps: int) -> None: ...

    def counters(self) -> None: ...

    def stop(self) -> None: ...


class PlayedEngine:
    def launch(self, *_) -> PlayedServer:
        return PlayedServer()


@dataclass(frozen=True)
class PlayedRig(LaunchContext):
    """A rig whose windows are `play`ed: from a phase to a window."""

    play: Callable[[Phase], Window] = lambda phase: Window(1, 0.0, 0.0, ())
    seen: list[Phase] = field(default_factory=list)

    def _window(self, server, requests: Sequence[Request], level: int, keep="nothing") -> Window:
        return self.play(self.seen[-1])


def played(loaded: LoadedSweep, run: Run, play: Callable[[Phase], Window]) -> PlayedRig:
    seen: list[Phase] = []
    requests = {level: (Request("p", "chat", "hi"),) for level in loaded.sweep.workload.concurrency}
    return PlayedRig(PlayedEngine(), loaded.sweep, run, requests, None, seen.append, play, seen)


def attempt(
    loaded: LoadedSweep, folder: Path, speeds: dict[int, float], whole: bool = False
) -> tuple[LaunchResult, Race]:
    """A launch whose point has these speeds by level, raced against one of speed 1."""
    world = World(0, 16, 0.003, 0.003)
    known = {level: world.windows(4) for level in speeds}
    spreads = {level: WindowSpread.of(each, "output_tok_s") for level, each in known.items()}
    point = loaded.space.points[0]
    race = Race(known, "the best", known, spreads, point if whole else None)
    run = begin_run(folder / "runs", loaded, None)
    rig = played(loaded, run, lambda phase: world.windows(1, speeds[phase.concurrency or 0])[0])
    return rig.perform(LaunchJob(Phase(1, "candidate", point, "launching"), 1, race=race)), race


@pytest.mark.parametrize(
    ("over", "speeds", "windows"),
    [
        ("geomean", {1: 0.85, 8: 0.85}, [2, 2]),  # slower everywhere
        ("geomean", {1: 0.85, 8: 1.3}, [4, 4]),  # the best over all levels
        ("geomean", {1: 0.85, 8: 1.0}, [2, 4]),  # slower at one, behind as a whole
        ("min", {1: 0.85, 8: 1.3}, [2, 4]),
        ("8", {1: 0.85, 8: 1.3}, [4, 4]),
        ("8", {1: 0.85, 8: 0.85}, [2, 2]),
    ],
)
def test_a_level_is_cut_short_only_where_the_point_is_behind_as_a_whole(
    tmp_path: Path, over: str, speeds: dict[int, float], windows: list[int]
) -> None:
    """A configuration that loses at one concurrency may be the answer for all of them."""
    loaded = raced(tmp_path, LEVELS="1, 8")
    text = loaded.text.replace("{sampler: grid}", f"{{sampler: grid, objective: {{over: {over}}}}}")
    loaded.path.write_text(text)
    made, _ = attempt(load_sweep(loaded.path), tmp_path, speeds)
    (taken,) = made.taken.values()
    assert [taken.count(level) for level in speeds] == windows


def test_an_anchor_is_measured_whole(tmp_path: Path) -> None:
    """What is expected of all other points rests on it."""
    made, _ = attempt(raced(tmp_path), tmp_path, {1: 0.5}, whole=True)
    assert [taken.count(1) for taken in made.taken.values()] == [4]


def test_lengths_of_a_launch_are_raced_against_each_other_too(tmp_path: Path) -> None:
    """In a first launch there is nothing faster than the baseline yet."""
    loaded = raced(tmp_path, SERVER="server: {step_switch: true}", STEPS="1, 2, 3")
    world = World(0, 16, 0.003, 0.003)
    baseline = {1: world.windows(4, 0.5)}
    speeds = {1: 0.8, 2: 1.0, 3: 0.99}
    race = Race(
        baseline, "no speculation", baseline, {1: WindowSpread.of(baseline[1], "output_tok_s")}
    )

    def play(phase: Phase) -> Window:
        assert phase.point is not None
        return world.windows(1, speeds[phase.point.num_steps or 0])[0]

    run = begin_run(tmp_path / "runs", loaded, None)
    first, *along = [each for each in loaded.space.points if dict(each.env)]
    rig = played(loaded, run, play)
    made = rig.perform(LaunchJob(Phase(1, "candidate", first, "launching"), 1, tuple(along), race))
    counts = {point.num_steps: taken.count(1) for point, taken in made.taken.items() if point}
    assert counts[2] == counts[3] == 4
    assert counts[1] < 4
    stopped = made.taken[first].stopped[1]
    assert (
        f"{along[0].label()} in the same launch" in stopped.words or "in the same" in stopped.words
    )


def test_what_a_dead_server_left_of_a_slow_length_is_not_whole(tmp_path: Path) -> None:
    """Nobody knows by then whether it is behind over all levels."""
    loaded = raced(tmp_path, LEVELS="1, 8")
    world = World(0, 16, 0.003, 0.003)
    known = {level: world.windows(4) for level in (1, 8)}
    spreads = {level: WindowSpread.of(each, "output_tok_s") for level, each in known.items()}

    def play(phase: Phase) -> Window:
        if phase.concurrency == 8 and phase.window == 2:
            raise EngineFailure(Failure.CRASH, "ended")
        return world.windows(1, 0.8 if phase.concurrency == 1 else 1.2)[0]

    run = begin_run(tmp_path / "runs", loaded, None)
    rig, point = played(loaded, run, play), loaded.space.points[0]
    race = Race(known, "the best", known, spreads)
    made = rig.perform(LaunchJob(Phase(1, "candidate", point, "launching"), 1, race=race))
    assert made.failure is not None
    assert not rig.is_complete(made.taken[point])


def test_the_report_says_how_many_windows_each_figure_comes_from(tmp_path: Path) -> None:
    """ "4 windows per concurrency" is not true of a trial that was cut short."""
    loaded = raced(tmp_path)
    run = begin_run(tmp_path / "runs", loaded, None)
    go(loaded, run)
    cut = next(each for each in run.records() if each.fell_behind)
    assert cut.samples is not None
    taken = len(read_samples(run.path / cut.samples)[1])
    report = write_report(summarise_run(run)).read_text()
    assert "4 windows per concurrency (fewer where a column has them)" in report
    assert "| windows | trial |" in report
    assert f"| {taken} | {cut.trial} |" in report
    assert "| 4 | 0 |" in report
    (tmp_path / "whole").mkdir()
    loaded = raced(tmp_path / "whole", MEASURE="racing: false")
    run = begin_run(tmp_path / "whole" / "runs", loaded, None)
    go(loaded, run)
    assert "| windows |" not in write_report(summarise_run(run)).read_text()


def test_a_baseline_without_the_figure_races_nobody(tmp_path: Path) -> None:
    """Answers of one chunk have no decode speed; that is no reason to lose a launch."""
    loaded = raced(tmp_path)
    text = loaded.text.replace("grid}", "grid, objective: {metric: decode_tok_s}}")
    loaded.path.write_text(text)
    loaded = load_sweep(loaded.path)
    one_chunk = make_window(make_sample((0.5,), (24,)))
    race = Race({1: [one_chunk]}, "no speculation", {1: [one_chunk]}, {})
    run = begin_run(tmp_path / "runs", loaded, None)
    rig, point = played(loaded, run, lambda phase: one_chunk), loaded.space.points[0]
    made = rig.perform(LaunchJob(Phase(1, "candidate", point, "launching"), 1, race=race))
    assert made.failure is None
    assert rig.is_complete(made.taken[point])
