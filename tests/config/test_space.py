"""The space: each configuration is launched once, and no doomed one at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.config.conftest import BASE, Load
from tuner.config.dimensions import auto_tokens, tree_bound
from tuner.config.point import Point


def chains(load: Load, lines: str) -> list[tuple[int | None, ...]]:
    points = load(BASE.replace("num_steps: [1, 2]", lines)).space.points
    return [(p.num_steps, p.eagle_topk, p.num_draft_tokens) for p in points]


def test_chains_have_one_point_for_each_step_count(load: Load) -> None:
    assert chains(load, "num_steps: {low: 1, high: 3}") == [(1, 1, 2), (2, 1, 3), (3, 1, 4)]


def test_draft_tokens_of_chains_collapse_and_are_counted(load: Load) -> None:
    """SGLang would adjust them silently: the same server would be launched three times."""
    lines = "num_steps: [2]\n  eagle_topk: [1, 2]\n  num_draft_tokens: [3, 4, 5]"
    space = load(BASE.replace("num_steps: [1, 2]", lines)).space
    assert chains(load, lines) == [(2, 1, 3), (2, 2, 3), (2, 2, 4), (2, 2, 5)]
    assert space.collapsed == {"with eagle_topk 1, num_draft_tokens is num_steps + 1": 2}


def test_trees_beyond_the_bound_are_dropped_with_the_reason(load: Load) -> None:
    lines = "num_steps: [1, 2]\n  eagle_topk: [2]\n  num_draft_tokens: [3, 7]"
    space = load(BASE.replace("num_steps: [1, 2]", lines)).space
    assert chains(load, lines) == [(1, 2, 3), (2, 2, 3), (2, 2, 7)]
    assert space.dropped == {"num_draft_tokens is above 1 + topk + (num_steps - 1) * topk^2": 1}


def test_auto_stays_within_what_upstream_tries(load: Load) -> None:
    """steps 1 and 2 with topk 4: sizes 2, 4 and 4, 8; one chain each."""
    lines = "num_steps: [1, 2]\n  eagle_topk: [1, 4]"
    assert chains(load, lines) == [(1, 1, 2), (1, 4, 2), (1, 4, 4), (2, 1, 3), (2, 4, 4), (2, 4, 8)]


def test_auto_gives_powers_of_two_within_the_tree(load: Load) -> None:
    lines = "num_steps: [3]\n  eagle_topk: [4]"
    assert chains(load, lines) == [(3, 4, 4), (3, 4, 8)]


def test_the_targets_own_size_is_the_target(load: Load) -> None:
    space = load(BASE + "  draft_tp: [target, 4, 1]\n").space
    assert {p.draft_tp for p in space.points} == {"target", 1}
    assert space.collapsed == {"draft_tp 4 is the target's own": 2}


def test_what_is_not_set_is_left_out_of_a_point(load: Load) -> None:
    text = (
        BASE
        + "  env: {NCCL_PROTO: [unset, LL]}\n  flags: {disable-custom-all-reduce: [false, true]}\n"
    )
    first, *_, last = load(text).space.points
    assert (first.env, first.flags) == ((), ())
    assert last.to_json()["env"] == {"NCCL_PROTO": "LL"}
    assert last.to_json()["flags"] == {"disable-custom-all-reduce": True}


def test_ngram_needs_no_steps(load: Load) -> None:
    text = BASE.replace("draft: d, algorithm: EAGLE3", "algorithm: NGRAM")
    points = load(text.replace("num_steps: [1, 2]", "num_draft_tokens: [4, 8]")).space.points
    assert [p.num_draft_tokens for p in points] == [4, 8]
    assert {p.num_steps for p in points} == {None}


@pytest.mark.parametrize(
    ("steps", "topk", "bound"), [(1, 1, 2), (5, 1, 6), (1, 4, 5), (2, 2, 7), (3, 8, 137)]
)
def test_the_tree_bound(steps: int, topk: int, bound: int) -> None:
    assert tree_bound(steps, topk) == bound


@given(st.integers(1, 60), st.integers(1, 16))
def test_auto_never_proposes_an_illegal_tree(steps: int, topk: int) -> None:
    for tokens in auto_tokens(steps, topk):
        assert steps + 1 <= tokens <= tree_bound(steps, topk)


@given(
    st.integers(1, 9),
    st.sampled_from(["target", 1, 2]),
    st.dictionaries(st.sampled_from(["A", "B", "C"]), st.text(min_size=1)),
)
def test_a_point_survives_its_json(steps: int, draft_tp: object, env: dict[str, str]) -> None:
    """Resume compares points by what the ledger kept of them."""
    point = Point(steps, 1, steps + 1, draft_tp, tuple(sorted(env.items())))  # type: ignore[arg-type]
    assert Point.from_json(point.to_json()) == point
    assert Point.from_json(point.to_json()).key == point.key


def test_excluded_combinations_are_neither_launched_nor_proposed(load: Load) -> None:
    """A setting that is known to hang with another one would cost a launch and its time limit."""
    lines = """num_steps: [1, 2, 3]
  draft_tp: [target, 4, 1]
  env: {NCCL_PROTO: [unset, LL]}
  flags: {disable-custom-all-reduce: [false, true]}
  exclude:
    - {env: {NCCL_PROTO: LL}, flags: {disable-custom-all-reduce: false}}
    - {env: {NCCL_PROTO: unset}, flags: {disable-custom-all-reduce: true}}
    - {num_steps: [2, 3], draft_tp: 4}"""
    space = load(BASE.replace("num_steps: [1, 2]", lines)).space
    custom, nccl = ((), ()), ((("NCCL_PROTO", "LL"),), (("disable-custom-all-reduce", True),))
    assert {(p.env, p.flags) for p in space.points} == {custom, nccl}
    found = {(p.num_steps, p.draft_tp) for p in space.points}
    # draft_tp 4 is the target's own TP size here.
    assert found == {(1, "target"), (1, 1), (2, 1), (3, 1)}
    named = {
        "num_steps": 1, "eagle_topk": 1, "draft_tp": 1,
        "env.NCCL_PROTO": "LL", "flags.disable-custom-all-reduce": False,
    }  # fmt: skip
    assert space.at(named) == "space.exclude names it"
    assert space.at({**named, "flags.disable-custom-all-reduce": True}) in space.points
