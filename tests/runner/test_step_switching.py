"""One launch for all chain lengths of a block: what it saves, and that nothing is lost by it."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sweeps import Listener
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.config.point import Point
from tuner.engines import make_engine
from tuner.execution.step_blocks import Blocks
from tuner.preflight.plan import make_plan
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, reopen_run, run_sweep
from tuner.runs.run import Run
from tuner.simulator.performance import Performance, Speculation
from tuner.simulator.presets import load_preset

SWEEP = """
name: switched
engine: {kind: simulated, preset: quickstart, FAULTS}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3, tp: 4}
server: {step_switch: true}
baseline: {launches: 1}
space:
  num_steps: [STEPS]
  env: {NCCL_PROTO: [ENV]}
workload: {requests: 2, output_tokens: 24, concurrency: [1]}
measure: {warmup_requests: 1, repeats: REPEATS}
search: {SEARCH}
timeouts: {launch: 30s, request: 10s}
"""


def switched(folder: Path, **parts: str) -> LoadedSweep:
    words = {
        "FAULTS": "faults: []",
        "STEPS": "1, 2, 3",
        "ENV": "LL",
        "REPEATS": "1",
        "SEARCH": "sampler: grid",
    }
    text = SWEEP
    for name, word in {**words, **parts}.items():
        text = text.replace(name, word)
    path = folder / "switched.yaml"
    path.write_text(text)
    return load_sweep(path)


def go(loaded: LoadedSweep, run: Run, listener: Listener | None = None) -> RunSummary:
    return run_sweep(loaded, run, make_engine(loaded.sweep), listener or Listener())


def begun(folder: Path, loaded: LoadedSweep) -> Run:
    return begin_run(folder / "runs", loaded, None)


def truth(point: Point) -> Performance:
    """The simulated engine's own model of the point, asked in this process."""
    speculation = Speculation("EAGLE3", point.num_steps, 1, point.num_draft_tokens, 4)
    return Performance(load_preset("quickstart"), 4, speculation, dict(point.env))


def test_a_launch_for_each_setting_finds_what_a_launch_for_each_point_would(tmp_path: Path):
    loaded = switched(tmp_path, STEPS="1, 2, 3, 4, 5, 6, 7, 8", ENV="unset, LL", REPEATS="2")
    run, listener = begun(tmp_path, loaded), Listener()
    result = go(loaded, run, listener)
    baseline, *candidates, confirmed, plain = run.records()
    assert [each.launch_id for each in candidates] == [1] * 8 + [2] * 8
    assert {each.at for each in candidates} == set(loaded.space.points)
    assert [each.proposed for each in candidates] == ([True] + [False] * 7) * 2
    for each in candidates:
        assert each.warm_steps == [1, 2, 3, 4, 5, 6, 7, 8]
        assert each.outcome == "ok"
        # The counts are apportioned, so they show which length was really drafted.
        expected = truth(each.at).expected_accept_length()
        assert each.metrics["1"]["accept_length"] == pytest.approx(expected, rel=0.1)
        assert f"--speculative-num-steps {each.at.num_steps} " in " ".join(each.command["argv"])
        assert "SPECBENCH_STEPS" not in each.command["env"]
    speeds = {point: truth(point).expected_tok_s() for point in loaded.space.points}
    assert result.best is not None
    assert speeds[result.best.at] > 0.9 * max(speeds.values())
    assert dict(result.best.at.env) == {"NCCL_PROTO": "LL"}

    assert (confirmed.role, confirmed.at, confirmed.launch_id) == ("confirm", result.best.at, 3)
    assert candidates[0].launch_s > confirmed.launch_s  # further graphs take their time
    assert (confirmed.warm_steps, result.confirmed) == ([], confirmed)
    assert (plain.role, result.plain) == ("plain", plain)
    assert (result.trials, result.launches) == (16, 5)
    assert baseline.warm_steps == []
    report = write_report(summarise_run(run)).read_text()
    assert "switches between chains of 1, 2, 3, 4, 5, 6, 7, 8 steps" in report
    assert f"with a launch of its own (trial {confirmed.trial})" in report
    assert "SPECBENCH" not in run.best_sh.read_text()
    assert "step_switch" not in run.best_yaml.read_text()

    again = Listener()
    assert go(loaded, reopen_run(run.path, loaded, None), again) == result
    assert again.records == []


def test_windows_are_taken_in_turns_and_no_length_is_always_first(tmp_path: Path):
    loaded = switched(tmp_path, REPEATS="3")
    listener = Listener()
    go(loaded, begun(tmp_path, loaded), listener)
    order = [
        (each.window, each.point.num_steps)
        for each in listener.phases
        if each.doing == "measuring" and each.role == "candidate"
    ]
    assert [window for window, _ in order] == [1] * 3 + [2] * 3 + [3] * 3
    rounds = [tuple(steps for _, steps in order[n : n + 3]) for n in (0, 3, 6)]
    assert all(sorted(each) == [1, 2, 3] for each in rounds)
    assert len({each[0] for each in rounds}) == 3


def test_a_block_takes_no_more_trials_than_are_left(tmp_path: Path):
    """The nearest lengths to the proposed one are worth most to the search."""
    loaded = switched(tmp_path, STEPS="1, 2, 3, 4, 5", SEARCH="sampler: random, trials: 3")
    blocks = Blocks.of(make_engine(loaded.sweep), loaded)
    middle = loaded.space.points[2]
    assert [each.num_steps for each in blocks.around(middle, (), 3)] == [3, 2, 4]
    assert blocks.around(middle, (), 1) == (middle,)
    run = begun(tmp_path, loaded)
    result = go(loaded, run)
    assert result.trials == 3
    assert len({each.launch_id for each in run.ledger().candidates}) == 1


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_a_run_that_ends_in_the_middle_of_a_block_goes_on(tmp_path: Path, sampler: str):
    search = f"sampler: {sampler}, stages: [], trials: 6"
    loaded = switched(tmp_path, ENV="unset, LL", SEARCH=search)
    run = begun(tmp_path, loaded)

    class Interrupting(Listener):
        def phase(self, phase) -> None:
            if phase.role == "candidate" and phase.trial == 2 and phase.doing == "measuring":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(loaded, run, Interrupting())
    assert [each.role for each in run.records()] == ["baseline"]
    result = go(loaded, reopen_run(run.path, loaded, None))
    whole = run.records()
    assert result.trials == 6
    assert {each.at for each in whole[1:7]} == set(loaded.space.points)
    assert sum(not each.proposed for each in whole) == 4

    # A crash while the block's lines are written: what is missing is measured first.
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    run.trials_file.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    listener = Listener()
    again = go(loaded, reopen_run(run.path, loaded, None), listener)
    rest = run.ledger().candidates[1:3]
    assert [each.at for each in rest] == sorted(
        (each.at for each in whole[2:4]), key=lambda point: point.num_steps
    )
    assert [each.proposed for each in rest] == [False, False]
    assert len({each.launch_id for each in rest}) == 1
    assert again.trials == 6
    assert {each.at for each in run.ledger().candidates} == set(loaded.space.points)
    assert not any("proposes" in note for note in listener.notes)

    # A single line that was lost comes back too, or all later proposals would be others.
    history = [each.at for each in run.ledger().candidates]
    lines = run.trials_file.read_bytes().splitlines(keepends=True)
    run.trials_file.write_bytes(b"".join(lines[:3]) + lines[3][:40])
    go(loaded, reopen_run(run.path, loaded, None))
    assert [each.at for each in run.ledger().candidates] == history


@pytest.mark.parametrize("fault", ["oom-more-graphs", "refuse-steps"])
def test_a_shared_launch_that_fails_fails_no_point(tmp_path: Path, fault: str):
    """Memory for the longest chain's graphs is no reason to leave the shortest one out."""
    loaded = switched(tmp_path, FAULTS=f"faults: [{{kind: {fault}}}]")
    run, listener = begun(tmp_path, loaded), Listener()
    result = go(loaded, run, listener)
    records = run.ledger().candidates
    assert [each.outcome for each in records] == ["ok"] * 3
    assert [each.warm_steps for each in records] == [[]] * 3
    assert len({each.launch_id for each in records}) == 3
    assert [each.switch_failure is not None for each in records] == [True, False, False]
    assert [each["check"] for each in records[0].checks].count("step switch") == 1
    assert sum("a launch for 3 chain lengths failed" in note for note in listener.notes) == 1
    assert (result.exit_code, result.trials, result.confirmed) == (0, 3, None)


def test_a_server_that_dies_once_is_launched_again_for_all(tmp_path: Path):
    """72 tokens warm three lengths up; the first window would end at 120."""
    loaded = switched(tmp_path, FAULTS="faults: [{kind: die-after, value: 100, launches: [1]}]")
    run = begun(tmp_path, loaded)
    go(loaded, run)
    records = run.ledger().candidates
    assert [(each.launch_id, each.warm_steps) for each in records] == [(2, [1, 2, 3])] * 3
    assert all("retried" in [note["check"] for note in each.checks] for each in records)


def test_what_was_complete_before_a_server_died_is_kept(tmp_path: Path):
    """48 tokens warm two lengths up; the first window ends at 96, the second at 144."""
    loaded = switched(
        tmp_path, STEPS="1, 2", FAULTS="faults: [{kind: die-after, value: 125, launches: [1]}]"
    )
    run = begun(tmp_path, loaded)
    go(loaded, run)
    first, second = run.ledger().candidates
    assert (first.launch_id, first.warm_steps, first.outcome) == (1, [1, 2], "ok")
    assert first.switch_failure is not None and "CRASH" in first.switch_failure
    assert (second.launch_id, second.warm_steps, second.outcome) == (2, [], "ok")


def test_an_interrupt_in_the_launch_after_loses_nothing_that_is_complete(tmp_path: Path):
    """48 tokens warm two lengths up; windows of 48 end at 96, 144, 192 (2 steps again) and 240."""
    loaded = switched(
        tmp_path,
        STEPS="1, 2",
        REPEATS="2",
        FAULTS="faults: [{kind: die-after, value: 220, launches: [1]}]",
    )
    run = begun(tmp_path, loaded)

    class Interrupting(Listener):
        def phase(self, phase) -> None:
            if phase.role == "candidate" and phase.doing == "launching" and phase.sharing == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(loaded, run, Interrupting())
    (kept,) = run.ledger().candidates
    assert kept.at is not None and kept.at.num_steps == 2
    assert (kept.outcome, kept.launch_id, kept.proposed) == ("ok", 1, False)
    result = go(loaded, reopen_run(run.path, loaded, None))
    assert result.trials == 2
    assert [each.launch_id for each in run.ledger().candidates] == [1, 2]


def test_a_winner_that_does_not_start_alone_gives_way_to_the_next(tmp_path: Path):
    """best.sh would start what has just failed."""
    loaded = switched(
        tmp_path, STEPS="2, 3, 4", FAULTS="faults: [{kind: oom-capture, launches: [2]}]"
    )
    run = begun(tmp_path, loaded)
    result = go(loaded, run)
    failed, stands = (each for each in run.records() if each.role == "confirm")
    assert (failed.outcome, failed.launch_id) == ("infeasible", 2)
    assert (stands.outcome, stands.launch_id) == ("ok", 3)
    assert failed.at != stands.at
    assert result.best is not None and result.best.at == stands.at
    assert result.confirmed == stands
    assert result.by_level[1].record.at != failed.at
    write_report(summarise_run(run))
    report = run.report_md.read_text()
    shown = "**Run ", "**No candidate is shown to be faster yet.** The best: "  # on a busy machine
    assert any(f"{words}`{stands.at.label()}`" in report for words in shown)
    assert f"Not taken: `{failed.at.label()}`, whose own launch (trial {failed.trial})" in report
    assert f"--speculative-num-steps {stands.at.num_steps}" in run.best_sh.read_text()


def test_a_plan_counts_launches_by_blocks_and_shows_what_production_runs(tmp_path: Path):
    loaded = switched(tmp_path, STEPS="1, 2, 3, 4", ENV="unset, LL")
    plan = make_plan(loaded)
    # The winner's own launch, its settings without speculation; two are measured on other prompts.
    assert (plan.estimate.launches, plan.estimate.trials) == (1 + 2 + 2, 1 + 8 + 2 + 2)
    assert any("one launch measures 4 chain lengths" in note for note in plan.notes)
    assert len(plan.commands) == 8
    assert all("--speculative-adaptive" not in each.argv for _, each in plan.commands)
    for block, command in plan.shared:
        assert block.steps == (1, 2, 3, 4)
        assert command.env["SPECBENCH_STEPS"] == "1,2,3,4"
        assert "--speculative-adaptive" in command.argv
    assert plan.shared[1][0].label() == "chains of 1, 2, 3 and 4 steps, NCCL_PROTO=LL"


def test_a_release_that_cannot_switch_has_one_launch_a_point_and_the_plan_says_so(tmp_path: Path):
    loaded = switched(tmp_path, FAULTS="release: 0.5.8")
    plan = make_plan(loaded)
    assert (plan.estimate.launches, plan.shared) == (1 + 3 + 1, ())
    (note,) = [note for note in plan.notes if note.startswith("one launch a point: ")]
    assert "0.5.8" in note
    run, listener = begun(tmp_path, loaded), Listener()
    go(loaded, run, listener)
    assert note in listener.notes
    assert [each.launch_id for each in run.ledger().candidates] == [1, 2, 3]


def test_trees_are_launched_alone(tmp_path: Path):
    loaded = switched(tmp_path, STEPS="2, 3")
    text = loaded.text.replace("  env:", "  eagle_topk: [1, 2]\n  env:")
    loaded.path.write_text(text)
    wide = load_sweep(loaded.path)
    blocks = Blocks.of(make_engine(wide.sweep), wide)
    (block,) = blocks.of_sweep
    assert {each.eagle_topk for each in block.points} == {1}
    tree = next(each for each in wide.space.points if each.eagle_topk == 2)
    assert blocks.around(tree, (), 10) == (tree,)


def test_settings_other_than_the_chain_length_are_never_shared(tmp_path: Path):
    loaded = switched(tmp_path, ENV="unset, LL")
    for block in Blocks.of(make_engine(loaded.sweep), loaded).of_sweep:
        alike = {replace(each, num_steps=None, num_draft_tokens=None) for each in block.points}
        assert len(alike) == 1
