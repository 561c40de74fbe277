"""The split of a cycle, and what it predicts; a split that is made up sends a user to the wrong
knob."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.analysis.summary import summarise_run
from tuner.config.point import Point
from tuner.metrics.statistics import Interval
from tuner.runs.run import Run
from tuner.search.acceptance import AcceptanceCurve, Chain
from tuner.search.cycle_time_fit import Cycle, CycleModel, break_even
from tuner.search.forecast import predict, rank
from tuner.simulator.performance import Performance, Speculation
from tuner.simulator.presets import load_preset, preset_names

TUNED = (("NCCL_ALGO", "Ring"), ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_PROTO", "LL"))


def point(steps: int, draft_tp: int | str = "target", env: tuple = ()) -> Point:
    return Point(steps, 1, steps + 1, draft_tp, env)  # type: ignore[arg-type]


def server(preset: str, of: Point) -> Performance:
    machine = load_preset(preset)
    draft_tp = machine.tp if of.draft_tp == "target" else int(of.draft_tp or 0)
    assert of.num_steps is not None
    assert of.eagle_topk is not None
    assert of.num_draft_tokens is not None
    speculation = Speculation("EAGLE3", of.num_steps, of.eagle_topk, of.num_draft_tokens, draft_tp)
    return Performance(machine, machine.tp, speculation, dict(of.env))


def measured(preset: str, points: list[Point], levels: list[int], noise: float, seed: int = 0):
    draw = random.Random(seed)
    return [
        Cycle(p, n, server(preset, p).cycle(n).total_ms * (1 + draw.gauss(0, noise)))
        for p in points
        for n in levels
    ]


def holds(found: Interval | None, value: float, slack: float = 1e-6) -> bool:
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low - slack <= value <= found.high + slack


@pytest.mark.parametrize("preset", preset_names())
def test_recovers_a_presets_own_split(preset: str) -> None:
    """Of all intervals of 20 noisy runs, at least nine in ten hold the preset's own number."""
    machine = load_preset(preset)
    hits = tries = 0
    for seed in range(20):
        anchors = [point(steps) for steps in (1, 3, 5)]
        model = CycleModel(measured(preset, anchors, [1, 8], 0.005, seed))
        for steps, level in ((2, 1), (4, 8), (5, 1)):
            true = server(preset, point(steps)).cycle(level)
            one = server(preset, replace(point(steps), num_draft_tokens=1)).cycle(level)
            split = model.split(point(steps), level)
            assert split is not None
            draft = true.draft_ms - machine.draft.fixed_ms
            tokens = true.verify_ms - one.verify_ms
            told = (
                holds(split.cycle, true.total_ms),
                holds(split.draft, draft),
                holds(split.tokens, tokens),
                holds(split.drafted, draft + tokens),
                holds(split.once, one.verify_ms + machine.draft.fixed_ms),
            )
            hits, tries = hits + sum(told), tries + len(told)
    assert hits >= 0.9 * tries


@pytest.mark.parametrize("preset", preset_names())
def test_exact_cycles_give_the_exact_split(preset: str) -> None:
    model = CycleModel(measured(preset, [point(1), point(4), point(6)], [1, 4], 0.0))
    split = model.split(point(3), 2)
    assert split is not None
    assert split.draft is not None
    true = server(preset, point(3)).cycle(2)
    assert split.cycle.value == pytest.approx(true.total_ms)
    fixed = load_preset(preset).draft.fixed_ms
    assert split.draft.value == pytest.approx(true.draft_ms - fixed, rel=1e-4)


def test_settings_and_placement_are_told_apart() -> None:
    """One launch more of each is enough to predict all step counts with it."""
    preset = "kimi-k2.5-8x-rtx-pro-6000"
    anchors = [*map(point, (1, 3, 5)), point(2, 1), point(1, env=TUNED), point(5, env=TUNED)]
    model = CycleModel(measured(preset, anchors, [1, 8], 0.0))
    for wanted in (point(4, 1), point(3, env=TUNED)):
        found = model.cycle(wanted, 1)
        assert found is not None
        assert found.value == pytest.approx(server(preset, wanted).cycle(1).total_ms, rel=0.01)
    longer = model.difference(point(3), point(3, 1), 1)
    assert longer is not None
    true = [server(preset, point(3, tp)).cycle(1).total_ms for tp in ("target", 1)]
    assert longer.value == pytest.approx(true[0] - true[1], abs=0.05)


def test_one_concurrency_gives_the_sum_of_draft_and_verify_only() -> None:
    """Both grow by the same with each step: every split of the sum fits as well."""
    model = CycleModel(measured("quickstart", [point(1), point(3), point(5)], [1], 0.002))
    split = model.split(point(4), 1)
    assert split is not None
    assert (split.draft, split.tokens) == (None, None)
    assert model.missing(point(4), 1, "draft") == "a second concurrency"
    one = server("quickstart", replace(point(4), num_draft_tokens=1)).cycle(1)
    true = server("quickstart", point(4)).cycle(1)
    fixed = load_preset("quickstart").draft.fixed_ms
    assert holds(split.drafted, true.total_ms - one.verify_ms - fixed)
    assert model.missing(point(4), 1) is None


def test_one_point_predicts_itself_alone_and_says_what_is_missing() -> None:
    model = CycleModel(measured("quickstart", [point(3)], [1], 0.0))
    own = model.cycle(point(3), 1)
    assert own is not None
    assert (own.low, own.high) == (None, None)
    split = model.split(point(3), 1)
    assert split is not None
    assert (split.once, split.drafted, split.per_step) == (None, None, None)
    assert model.cycle(point(4), 1) is None
    assert model.missing(point(4), 1) == "another step count"
    assert model.missing(point(3), 1, "draft") == "another step count and a second concurrency"
    assert model.missing(point(3, env=TUNED), 1) == "a launch with these settings"
    assert model.missing(point(3, 1), 1) == "a launch with this draft_tp"
    assert model.missing(Point(3, 2, 8, "target"), 1) == "a tree"
    assert model.error is None


def test_what_is_no_measurement_is_left_out() -> None:
    cycles = measured("quickstart", [point(1), point(3)], [1], 0.0)
    odd = [Cycle(point(5), 1, ms) for ms in (math.nan, math.inf, 0.0, -3.0)]
    ngram = Cycle(Point(num_draft_tokens=8), 1, 9.0)
    model = CycleModel([*cycles, *odd, ngram])
    assert len(model.cycles) == 2
    found, true = model.cycle(point(2), 1), server("quickstart", point(2)).cycle(1).total_ms
    assert found is not None
    assert found.value == pytest.approx(true)
    empty = CycleModel([])
    assert empty.cycle(point(2), 1) is None
    assert empty.split(point(2), 1) is None
    assert empty.error is None


def test_longer_verifies_than_any_measured_are_marked() -> None:
    model = CycleModel(measured("quickstart", [point(1), point(5)], [1, 8], 0.0))
    assert not model.extrapolates(point(5), 8)
    assert model.extrapolates(point(6), 8)


REAL = Path("results/h200_llama8b_eagle3/20261129-195508")


@pytest.mark.parametrize("held_out", [1, 2, 3, 4, 5])
def test_real_runs_held_out_step_counts_come_within_six_percent(held_out: int) -> None:
    """2x H200: no cycle of a chain is farther from what the other four predict, and each lies in
    the interval."""
    summary = summarise_run(Run.open(REAL))
    cycles = [
        Cycle(each.point, 1, each.metric(1, "cycle_ms") or math.nan)
        for each in summary.ranked
        if each.point is not None and each.point.eagle_topk == 1
    ]
    model = CycleModel([each for each in cycles if each.point.num_steps != held_out])
    (left,) = [each for each in cycles if each.point.num_steps == held_out]
    found = model.cycle(left.point, 1)
    assert found is not None
    assert found.value == pytest.approx(left.ms, rel=0.06)
    assert holds(found, left.ms)


CURVE = AcceptanceCurve((Chain(5, {"a": [50, 25, 12, 6, 3, 4], "b": [60, 25, 10, 3, 1, 1]}),))


def test_points_are_ranked_by_what_they_would_give() -> None:
    preset = "kimi-k2.5-8x-rtx-pro-6000"
    model = CycleModel(measured(preset, [point(1), point(3), point(5)], [1, 8], 0.003))
    ranked = rank(model, CURVE, [point(steps) for steps in range(1, 8)], 8)
    assert {each.point.num_steps for each in ranked} == {1, 2, 3, 4, 5}  # beyond: nobody drafted
    speeds = [each.decode_tok_s.value for each in ranked]
    assert speeds == sorted(speeds, reverse=True)
    for each in ranked:
        true = server(preset, each.point).cycle(8).total_ms
        length = CURVE.accept_length(each.point.num_steps or 0)
        assert length is not None
        assert each.basis == "curve"
        assert holds(each.decode_tok_s, 8000 * length.value / true)
        assert not each.extrapolated


def test_a_tree_is_ranked_between_its_bounds_or_as_measured() -> None:
    preset, tree = "quickstart", Point(3, 2, 8, "target")
    anchors = [point(1), point(3), point(5), tree]
    model = CycleModel(measured(preset, anchors, [1, 8], 0.0))
    told = predict(model, CURVE, tree, 1)
    assert told is not None
    assert told.basis == "bounds"
    length = told.accept_length
    assert length.low is not None
    assert length.high is not None
    assert length.value == length.low < length.high
    told = predict(model, CURVE, tree, 1, {tree: Interval(2.1, 2.0, 2.2)})
    assert told is not None
    assert (told.basis, told.accept_length.value) == ("measured", 2.1)
    assert predict(model, CURVE, replace(tree, num_steps=7), 1) is None


def test_no_interval_where_one_of_its_parts_has_none() -> None:
    model = CycleModel(measured("quickstart", [point(1), point(3)], [1], 0.0))
    told = predict(model, CURVE, point(2), 1)
    assert told is not None
    assert (told.decode_tok_s.low, told.decode_tok_s.high) == (None, None)


def test_break_even_of_the_case() -> None:
    """26.2 ms a cycle against 11.3 ms a plain step: 1.87 tokens lose, 2.3 would do."""
    found = break_even({"cycle_ms": 11.3}, {"cycle_ms": 26.2, "accept_length": 1.87}, 5)
    assert found is not None
    assert found.needed == pytest.approx(2.32, abs=0.005)
    assert found.gain < 1
    assert not found.hopeless
    found = break_even({"cycle_ms": 11.3}, {"cycle_ms": 26.2, "accept_length": 1.47}, 1)
    assert found is not None
    assert found.hopeless
    bad = (None, math.nan, 0.0)
    for value in bad:
        assert break_even({"cycle_ms": value}, {"cycle_ms": 5.0, "accept_length": 2.0}, 1) is None
        assert break_even({"cycle_ms": 5.0}, {"cycle_ms": 5.0, "accept_length": value}, 1) is None
