"""Outputs that are not the baseline's: wrong tokens are refused, near ties are not."""

import random
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import make_sample, make_window
from tuner.metrics.output_comparison import (
    EARLY,
    LOOPING,
    OutputComparison,
    common_prefix,
    example,
    judge,
    loops,
    paired,
)
from tuner.metrics.samples import Window

LIMIT, PROMPTS, TOKENS = 0.5, 16, 256


def answered(*outputs: Sequence[int] | None, **changes: object) -> Window:
    """A window with these outputs, prompt by prompt; None: none was kept."""
    return make_window(
        *(
            make_sample(
                prompt_id=f"p{n}",
                output_ids=None if ids is None else array("I", ids),
                **{"text": None, **changes},
            )
            for n, ids in enumerate(outputs)
        )
    )


def right(prompts: int = PROMPTS, tokens: int = TOKENS) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(50_000) for _ in range(tokens)] for _ in range(prompts)]


def parting(outputs: list[list[int]], at: Sequence[int | None], seed: int = 2) -> list[list[int]]:
    """The same outputs, each going on differently from a place on; None: nowhere."""
    draw = random.Random(seed)
    return [
        ids
        if place is None
        else ids[:place] + [draw.randrange(50_000, 99_999) for _ in ids[place:]]
        for ids, place in zip(outputs, at, strict=True)
    ]


def places(mean: float, seed: int) -> list[int | None]:
    """Where near ties fall the other way, one in `mean` tokens."""
    draw = random.Random(seed)
    found = [int(draw.expovariate(1 / mean)) for _ in range(PROMPTS)]
    return [place if place < TOKENS else None for place in found]


def outcome(baseline: list[Window], measured: Window) -> str:
    judged = judge(baseline, [measured], LIMIT)
    assert judged is not None
    return judged.outcome


def test_equal_outputs_are_equal():
    judged = judge([answered(*right())] * 2, [answered(*right())], LIMIT)
    assert judged is not None and judged.itself is not None
    assert (judged.outcome, judged.found.equal, judged.found.tokens_to_part) == ("equal", 16, None)
    assert judged.found.prefix == (TOKENS,) * 5
    assert judged.itself.equal == 16


@pytest.mark.parametrize("mean", [50, 100, 1000])
def test_near_ties_are_a_difference_and_no_fault(mean: float):
    """Else the recommendation is stopped by rounding, on every GPU with batch-variant kernels."""
    base = right()
    for seed in range(50):
        measured = answered(*parting(base, places(mean, seed)))
        assert outcome([answered(*base)], measured) in ("equal", "differ")


@pytest.mark.parametrize("accepted", [1.5, 3, 6])
def test_wrong_tokens_from_the_start_are_far(accepted: float):
    """Else a draft patch that accepts what the target would not say wins by its speed."""
    base = right()
    for seed in range(20):
        measured = answered(*parting(base, places(accepted, seed)))
        assert outcome([answered(*base)], measured) == "far"


def test_a_loop_that_begins_late_is_far():
    """A cache that is wrong from some length on shows at no beginning."""
    base = right()
    stuck = [ids[:100] + [7, 8] * ((TOKENS - 100) // 2) for ids in base]
    judged = judge([answered(*base)], [answered(*stuck)], LIMIT)
    assert judged is not None
    assert (judged.outcome, judged.found.early, judged.found.looping) == ("far", 0, PROMPTS)


def test_a_model_that_loops_by_itself_is_not_called_broken():
    """Small models with ignore_eos do, and a near tie before the loop changes nothing of that."""
    base = [ids[:100] + [7] * (TOKENS - 100) for ids in right()]
    other = [[*ids[:80], 5, *ids[81:]] for ids in base]
    judged = judge([answered(*base)], [answered(*other)], LIMIT)
    assert judged is not None
    assert (judged.outcome, judged.found.looping, judged.found.median) == ("differ", 0, 80)


def test_what_the_baseline_does_to_itself_is_normal():
    """Some models part early at high concurrency without any speculation."""
    base = right()
    moody = answered(*parting(base, [3] * PROMPTS, seed=3))
    measured = answered(*parting(base, [4] * PROMPTS))
    assert outcome([answered(*base)], measured) == "far"
    assert outcome([answered(*base), moody], measured) == "differ"


def test_what_the_baseline_does_at_another_concurrency_is_normal_too():
    """That is what other kernels alone do; within one batch shape it may repeat itself."""
    base = right()
    elsewhere = answered(*parting(base, [3] * PROMPTS, seed=3))
    measured = answered(*parting(base, [4] * PROMPTS))
    judged = judge([answered(*base)] * 2, [measured], LIMIT, [elsewhere])
    assert judged is not None and judged.across is not None
    assert (judged.outcome, judged.across.early) == ("differ", PROMPTS)


def test_a_baseline_that_repeats_itself_accuses_nobody():
    """Alone on a server it does so to the token, which other kernels need not."""
    base = right()
    measured = answered(*parting(base, [60] * PROMPTS))
    assert outcome([answered(*base)] * 3, measured) == "differ"


def test_few_prompts_prove_nothing():
    """Four that part early come by chance too often to refuse a configuration for it."""
    for prompts, expected in ((4, "differ"), (5, "far")):
        base = right(prompts)
        measured = answered(*parting(base, [1] * prompts))
        assert outcome([answered(*base)], measured) == expected


def test_the_limit_is_the_users():
    base = right()
    measured = answered(*parting(base, [1] * 8 + [None] * 8))
    for limit, expected in ((0.2, "far"), (0.5, "differ")):
        judged = judge([answered(*base)], [measured], limit)
        assert judged is not None
        assert judged.outcome == expected


def test_only_complete_outputs_on_both_sides_are_compared():
    base = right(3)
    assert judge([answered(*base)], [answered(None, None, None)], LIMIT) is None
    assert judge([answered(*base)], [answered(*base, error="cut short")], LIMIT) is None
    assert judge([], [answered(*base)], LIMIT) is None
    assert [p.prompt_id for p in paired(answered(*base), answered(base[0], None, base[2]))] == [
        "p0",
        "p2",
    ]


def test_a_prompt_that_is_sent_twice_is_compared_in_turn():
    """Else the second answer of a prompt is held against the first."""
    one, other = right(2)
    asked = make_window(
        *(make_sample(prompt_id="p", output_ids=array("I", ids)) for ids in (one, other))
    )
    assert [pair.equal for pair in paired(asked, asked)] == [True, True]


def test_the_example_shows_where_the_middle_one_parts():
    said = ["the same all the way", "it is so", "it is so"]
    base = make_window(
        *(
            make_sample(prompt_id=f"p{n}", output_ids=array("I", map(ord, text)), text=text)
            for n, text in enumerate(said)
        )
    )
    measured = make_window(
        *(
            make_sample(prompt_id=f"p{n}", output_ids=array("I", map(ord, text)), text=text)
            for n, text in enumerate([said[0], "it as so", "it is no"])
        )
    )
    found = example(base, measured)
    assert found is not None
    assert (found.prompt_id, found.before, found.baseline, found.measured) == (
        "p1", "it ", "is so", "as so",
    )  # fmt: skip
    assert example(base, base) is None


ids = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@given(ids, ids)
def test_a_common_prefix_is_common_and_the_longest(one: list[int], other: list[int]):
    n = common_prefix(one, other)
    assert one[:n] == other[:n]
    assert n == min(len(one), len(other)) or one[n] != other[n]
    assert n == common_prefix(other, one)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=20))
def test_counts_add_up(outputs: list[tuple[list[int], list[int]]]):
    """A count that does not is a wrong figure in the report."""
    pairs = list(paired(answered(*(a for a, _ in outputs)), answered(*(b for _, b in outputs))))
    found = OutputComparison.of(pairs)
    assert found.prompts == len(outputs)
    assert found.equal == sum(a == b for a, b in outputs)
    assert found.equal + found.early == found.prompts  # shorter than EARLY, all of them
    assert max(found.early, found.looping) <= found.off <= found.prompts
    assert list(found.prefix) == sorted(found.prefix)
    assert found.off / found.prompts >= found.surely_off
    assert (found.tokens_to_part is None) == (found.equal == found.prompts)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(LOOPING, LOOPING + 9))
def test_every_short_cycle_is_a_loop(cycle: list[int], length: int):
    repeated = (cycle * length)[:length]
    assert loops([*range(10, 50), *repeated])
    assert not loops(range(length))
    assert not loops(repeated[: LOOPING - 1])


def test_early_is_what_the_docs_say():
    """docs/outputs.md gives the reasons for these figures."""
    assert (EARLY, LOOPING) == (16, 64)
