"""One long chain tells what every shorter one accepts; a wrong curve sends a search astray."""

import random
from pathlib import Path

import pytest

from tests.factories import Trial, make_point, make_windows
from tuner.analysis.summary import summarise_run
from tuner.runs.run import Run
from tuner.search.acceptance import AcceptanceCurve, Chain, chain_of_rates, read_chain
from tuner.simulator.acceptance import plan_cycles
from tuner.simulator.performance import Performance, Speculation
from tuner.simulator.presets import load_preset, preset_names

TOKENS = 256


def curve(*chains: Chain | None) -> AcceptanceCurve:
    return AcceptanceCurve(tuple(chain for chain in chains if chain is not None))


def simulated(preset: str, steps: int) -> Chain:
    """What the simulated engine would accept of four prompts of each kind."""
    machine = load_preset(preset)
    speculation = Speculation("EAGLE3", steps, 1, steps + 1, machine.tp)
    server = Performance(machine, machine.tp, speculation)
    histograms = {}
    for number, kind in enumerate([*machine.acceptance.kinds] * 4):
        plan = plan_cycles(server.conditional(kind), TOKENS - 1)
        histograms[f"p{number}"] = [plan.count(accepted) for accepted in range(steps + 1)]
    return Chain(steps, histograms)


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("longest", [5, 7])
def test_simulated_engines_shorter_chains_are_within_one_percent(preset: str, longest: int) -> None:
    told = curve(simulated(preset, longest))
    for steps in range(1, longest + 1):
        measured = curve(simulated(preset, steps)).accept_length(steps)
        predicted = told.accept_length(steps)
        assert predicted is not None
        assert measured is not None
        assert predicted.value == pytest.approx(measured.value, rel=0.01)


def test_a_verify_of_the_shorter_chain_is_the_beginning_of_the_longer_ones() -> None:
    """By hand: 10 verifies accept 0, 0, 0, 0, 1, 1, 2, 3, 3, 3 drafts of three."""
    told = curve(Chain(3, {"a": [4, 2, 1, 3]}))
    assert told.reached == pytest.approx((0.6, 0.4, 0.3))
    lengths = [told.accept_length(steps) for steps in (1, 2, 3)]
    assert [each and each.value for each in lengths] == pytest.approx([1.6, 2.0, 2.3])


def test_its_own_accept_length_comes_out_exactly() -> None:
    """Prompts that differ must not bend what was measured."""
    uneven = Chain(2, {"easy": [1, 2, 40], "hard": [90, 5, 0]})
    found = curve(uneven).accept_length(2)
    assert found is not None
    assert found.value == pytest.approx(1 + (2 + 80 + 5) / 138)
    assert found.low is not None
    assert found.high is not None
    assert 1 <= found.low < found.value < found.high <= 3


def test_hard_prompts_weigh_less_in_a_shorter_chain() -> None:
    """The easy prompt takes 50 verifies of 4 tokens and 100 of 2; the hard one 200 of 1 anyway."""
    found = curve(Chain(3, {"easy": [0, 0, 0, 50], "hard": [200, 0, 0, 0]})).accept_length(1)
    assert found is not None
    assert found.value == pytest.approx(400 / (100 + 200))


def test_chains_are_pooled_at_the_positions_that_they_have() -> None:
    """A short chain says nothing of positions beyond it, and must not drag them to 0."""
    short, long = Chain(1, {"a": [500, 500]}), Chain(3, {"a": [5, 1, 1, 3]})
    told = curve(short, long)
    assert told.longest == 3
    first, second, third = told.conditional
    assert first == pytest.approx(505 / 1010)
    assert (second, third) == pytest.approx((4 / 5, 3 / 4))


def test_interval_covers_other_prompts_of_their_kind() -> None:
    """A geometric draft of chance 0.6: most intervals of 95 % hold the true accept length."""
    inside = 0
    true = 1 + 0.6 + 0.36 + 0.216
    for seed in range(60):
        draw = random.Random(seed)
        histograms = {}
        for prompt in range(12):
            counts = [0] * 6
            for _ in range(80):
                accepted = 0
                while accepted < 5 and draw.random() < 0.6:
                    accepted += 1
                counts[accepted] += 1
            histograms[f"p{prompt}"] = counts
        found = curve(Chain(5, histograms)).accept_length(3)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= true <= found.high
    assert inside >= 52


def test_acceptance_in_stretches_makes_the_curve_too_low_by_a_known_amount() -> None:
    """The stated error: a shorter chain verifies at places that the longer one never shows."""
    draw = random.Random(1)
    right, text = True, []
    for _ in range(100_000):
        right = draw.random() < (0.7 if right else 0.5)
        text.append(right)

    def chain(steps: int) -> Chain:
        counts, place = [0] * (steps + 1), 0
        while place + steps < len(text):
            accepted = next((n for n in range(steps) if not text[place + n]), steps)
            counts[accepted] += 1
            place += accepted + 1
        return Chain(steps, {"text": counts})

    long = curve(chain(5))
    for steps, off in ((1, -0.040), (3, -0.019), (5, 0.0)):
        predicted = long.accept_length(steps)
        measured = curve(chain(steps)).accept_length(steps)
        assert predicted is not None
        assert measured is not None
        assert predicted.value / measured.value - 1 == pytest.approx(off, abs=0.006)


def test_what_was_not_drafted_is_not_known() -> None:
    told = curve(Chain(2, {"a": [5, 3, 2]}))
    assert told.accept_length(3) is None
    assert told.accept_length(0) is None
    assert told.optimistic_tree(3, 4) is None
    assert curve().accept_length(1) is None


def test_one_prompt_shows_no_spread() -> None:
    found = curve(Chain(2, {"a": [5, 3, 2]})).accept_length(2)
    assert found is not None
    assert (found.low, found.high) == (None, None)


def test_requests_that_hide_their_verifies_make_no_curve() -> None:
    """0.5.8 reports no histogram; where its chunks do not show the verifies, nothing does."""
    windows = make_windows(Trial(make_point(2), 90.0), 1, 0.0, 0)
    assert read_chain(windows, 2) is not None
    bare = [
        type(w)(
            w.concurrency,
            w.wall_s,
            w.client_cpu_s,
            tuple(
                type(s)(
                    **{**vars(s), "spec": type(s.spec)(s.spec.verify_ct, s.spec.correct_drafts)}
                )
                for s in w.samples
                if s.spec
            ),
        )
        for w in windows
    ]
    assert read_chain(bare, 2) is None
    assert read_chain([], 2) is None


def test_a_histogram_longer_than_the_chain_is_another_ones() -> None:
    assert read_chain(make_windows(Trial(make_point(3), 90.0, accepted=1.0), 1, 0.0, 0), 2) is None


def test_rates_alone_give_the_curve_without_an_interval() -> None:
    told = curve(chain_of_rates([0.5, 0.4]))
    found = told.accept_length(2)
    assert found is not None
    assert (found.value, found.low) == (pytest.approx(1.9), None)
    assert chain_of_rates([]) is None
    assert chain_of_rates([float("nan")]) is None
    assert chain_of_rates([0.4, 0.5]) is None


def test_trees_have_bounds_only() -> None:
    told = curve(Chain(3, {"a": [40, 30, 20, 10]}))
    low, high = told.pessimistic_tree(3, 8), told.optimistic_tree(3, 2)
    assert low == pytest.approx(2.0)
    assert high is not None
    assert low < high < 4
    assert told.pessimistic_tree(3, 3) == pytest.approx(1.9)  # two places: two steps deep at most


def test_real_run_predicts_its_own_shorter_chains() -> None:
    """The acceptance there was set, so that prediction is exact."""
    summary = summarise_run(Run.open(Path("results/h200_llama8b_eagle3/20261129-195508")))
    chains = {
        each.point.num_steps: each
        for each in summary.ranked
        if each.point is not None and each.point.eagle_topk == 1
    }
    told = curve(read_chain(summary.windows(chains[5], 1), 5))
    for steps, each in chains.items():
        assert steps is not None
        predicted = told.accept_length(steps)
        assert predicted is not None
        assert predicted.value == pytest.approx(each.metric(1, "accept_length"), abs=0.02)
