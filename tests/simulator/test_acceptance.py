"""Acceptance: wrong or lumpy counts here would look like a property of the draft model."""

from itertools import product

import pytest

from tuner.simulator.acceptance import (
    SimulatedAcceptance,
    expected_length,
    fixed_length,
    plan_cycles,
    survival,
)


@pytest.mark.parametrize(
    ("chance", "steps", "length"), [(0.47, 5, 1.866), (0.47, 2, 1.691), (0.19, 5, 1.234)]
)
def test_accept_length_of_a_chain(chance, steps, length):
    """1 + a + a^2 + ...: the formula that the published figures agree with."""
    curve = SimulatedAcceptance((chance,))
    got = curve.expected_accept_length(steps, 1, steps + 1, "chat")
    assert got == pytest.approx(length, abs=0.001)


def test_last_position_goes_on_and_kinds_have_factors():
    curve = SimulatedAcceptance((0.8, 0.5), kinds={"code": 1.1})
    assert curve.conditional(3, 1, 4, "chat") == pytest.approx((0.8, 0.5, 0.5))
    assert curve.conditional(3, 1, 4, "code") == pytest.approx((0.88, 0.55, 0.55))


def test_more_candidates_raise_acceptance_and_tokens_bound_the_depth():
    curve = SimulatedAcceptance((0.5,), topk_gain=0.2)
    lengths = [curve.expected_accept_length(3, 2, n, "chat") for n in range(2, 12)]
    assert lengths == sorted(lengths)
    assert len(curve.conditional(3, 2, 3, "chat")) == 2
    assert curve.expected_accept_length(3, 2, 8, "chat") > curve.expected_accept_length(
        3, 1, 4, "chat"
    )


@pytest.mark.parametrize(
    ("asked", "steps", "length"), [(3.0, 3, 3.0), (2.5, 3, 2.5), (9, 3, 4.0), (0.2, 3, 1.0)]
)
def test_fixed_length_is_exact_and_clamped(asked, steps, length):
    """SGLANG_SIMULATE_ACC_LEN counts the bonus token and cannot exceed steps + 1."""
    chances = fixed_length(asked, steps)
    assert expected_length(chances) == pytest.approx(length)
    if chances:
        assert set(plan_cycles(chances, 256)) <= {int(length) - 1, int(length)}


CASES = list(product((0.19, 0.3, 0.47, 0.6, 0.7, 0.8, 0.95), (1, 2, 3, 5, 10), (128, 256, 1000)))


@pytest.mark.parametrize(("chance", "steps", "tokens"), CASES)
def test_a_request_is_within_half_a_percent_of_its_expectation(chance, steps, tokens):
    """By its own counts, so that two configurations 1 % apart can be told apart."""
    conditional = (chance,) * steps
    plan = plan_cycles(conditional, tokens - 1)
    assert 1 + sum(plan) / len(plan) == pytest.approx(expected_length(conditional), rel=0.005)
    reached = [sum(accepted >= j for accepted in plan) for j in range(1, steps + 1)]
    for count, share in zip(reached, survival(conditional), strict=True):
        assert abs(count - share * len(plan)) <= 1


@pytest.mark.parametrize(("chance", "steps", "tokens"), CASES)
def test_a_plan_ends_with_the_request(chance, steps, tokens):
    """Every verify is needed; the last one covers what is left."""
    plan = plan_cycles((chance,) * steps, tokens - 1)
    emitted = len(plan) + sum(plan)
    assert emitted >= tokens - 1
    assert emitted - (plan[-1] + 1) < tokens - 1


def test_lengths_are_spread_evenly():
    """A request cut at its middle has had about half of what it accepts."""
    plan = plan_cycles((0.47,) * 5, 1000)
    half = sum(plan[: len(plan) // 2]) / sum(plan)
    assert half == pytest.approx(0.5, abs=0.02)


def test_nothing_to_generate_needs_no_verify():
    assert plan_cycles((0.5,), 0) == []
