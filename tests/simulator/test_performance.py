"""The performance model: if it drifts from the published figures, every rehearsal misleads."""

from dataclasses import replace
from itertools import product

import pytest

from tuner.core.errors import UserError
from tuner.simulator.performance import NCCL_VARIABLES, Factors, Performance, Speculation
from tuner.simulator.presets import BASES, load_preset, preset_names, preset_numbers

KIMI = "kimi-k2.5-8x-rtx-pro-6000"
H200 = "h200x2-llama8b"
TUNED = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "SYS"}
PROTO, ALGO = (None, "LL", "LL128", "Simple"), (None, "Ring", "Tree")
LEVEL, DISABLE = (None, "SYS", "PHB"), (None, "1")
SETTINGS = [
    {name: value for name, value in zip(NCCL_VARIABLES, values, strict=True) if value}
    for values in product(PROTO, ALGO, LEVEL, DISABLE)
]


def chain(steps, draft_tp=8):
    return Speculation("EAGLE3", steps, 1, steps + 1, draft_tp)


def kimi(speculation=None, nccl=None, **overrides):
    return Performance(load_preset(KIMI, overrides), 8, speculation, nccl or {})


@pytest.mark.parametrize(
    ("performance", "tok_s"),
    [
        (kimi(), 90.0),
        (kimi(nccl=TUNED), 90.0),
        (kimi(chain(5)), 71.3),
        (kimi(chain(5), acceptance=0.19), 47.1),
        (kimi(chain(2), TUNED), 94.0),
    ],
)
def test_kimi_figures(performance, tok_s):
    """The published figures come out within 1 %, before anything is measured."""
    assert performance.expected_tok_s() == pytest.approx(tok_s, rel=0.01)


def test_kimi_with_the_wiring_bug_stays_in_the_published_range():
    assert 46.7 <= kimi(chain(5), acceptance=0.19).expected_tok_s() <= 54.8


@pytest.mark.parametrize("steps", [2, 3, 4, 5])
def test_kimi_verify_is_the_cycle(steps):
    """With NCCL's defaults verify takes 21-28 ms and at least 95 % of the cycle."""
    cycle = kimi(chain(steps)).cycle(1)
    assert 21 <= cycle.verify_ms <= 28
    assert cycle.verify_ms / cycle.total_ms >= 0.95


def test_kimi_nccl_setting_cuts_verify_by_27_percent_and_less_as_messages_grow():
    cuts = [
        1 - kimi(chain(k), TUNED).cycle(1).verify_ms / kimi(chain(k)).cycle(1).verify_ms
        for k in range(1, 11)
    ]
    assert cuts[1] == pytest.approx(0.27, abs=0.005)
    assert cuts == sorted(cuts, reverse=True)


def test_kimi_best_is_two_steps_with_the_nccl_setting():
    """Over chains, trees, draft TP and every NCCL setting: what a sweep of it must find."""
    best = kimi(chain(2), TUNED).expected_tok_s()
    trees = [
        Speculation("EAGLE3", k, t, n, 8)
        for k, t in product(range(1, 11), (2, 4))
        for n in (2, 3, 4, 5, 6, 8, 16)
        if k + 1 <= n <= Speculation("EAGLE3", k, t, n, 8).most_draft_tokens
    ]
    chains = [chain(k, d) for k, d in product(range(1, 11), (8, 4, 2, 1))]
    points = [kimi(spec) for spec in chains + trees]
    assert best == max(
        replace(point, nccl=nccl).expected_tok_s() for point in points for nccl in SETTINGS
    )
    others = [kimi(chain(k), TUNED).expected_tok_s() for k in (1, *range(3, 11))]
    assert max(others) < 0.99 * best


def test_each_nccl_setting_gives_part_of_the_gain():
    """LL most; host memory costs; without peer-to-peer its level changes nothing."""

    def verify_ms(**nccl):
        return kimi(chain(2), nccl).cycle(1).verify_ms

    default = verify_ms()
    alone = {name: default - verify_ms(**{name: value}) for name, value in TUNED.items()}
    assert all(saved > 0 for saved in alone.values())
    assert max(alone, key=alone.__getitem__) == "NCCL_PROTO"
    assert verify_ms(NCCL_P2P_DISABLE="1") > default
    assert verify_ms(NCCL_P2P_DISABLE="1", NCCL_P2P_LEVEL="SYS") == verify_ms(NCCL_P2P_DISABLE="1")
    assert verify_ms(NCCL_P2P_LEVEL="LOC") == verify_ms(NCCL_P2P_DISABLE="1")


@pytest.mark.parametrize(
    ("draft_tp", "speculates", "slow", "tok_s"),
    [
        (2, False, False, 312.7),
        (2, True, False, 467.3),
        (1, True, False, 557.9),
        (1, True, True, 408.2),
    ],
)
def test_h200_figures(draft_tp, speculates, slow, tok_s):
    performance = Performance(
        load_preset(H200),
        tp=2,
        speculation=chain(3, draft_tp) if speculates else None,
        nccl={"NCCL_P2P_DISABLE": "1", "NCCL_PROTO": "Simple"} if slow else {},
        disable_custom_all_reduce=slow,
        simulated_length=3.0,
    )
    assert performance.expected_tok_s() == pytest.approx(tok_s, rel=0.01)


def test_nccl_settings_do_nothing_where_custom_all_reduce_is_in_effect():
    """A sweep over NCCL on NVLink must find nothing, as on the real machine."""
    machine = load_preset(H200)
    plain, tuned = Performance(machine, 2, chain(3, 2)), Performance(machine, 2, chain(3, 2), TUNED)
    assert tuned.cycle(1) == plain.cycle(1)
    off = replace(tuned, disable_custom_all_reduce=True)
    assert off.nccl_factors() != Factors()
    assert off.cycle(1).total_ms > plain.cycle(1).total_ms


def test_quickstart_has_something_to_find():
    """Three steps with the NCCL setting win by about half; ten with the defaults lose."""
    machine = load_preset("quickstart")
    baseline = Performance(machine, 4).expected_tok_s()
    tuned = {k: Performance(machine, 4, chain(k, 4), TUNED).expected_tok_s() for k in range(1, 11)}
    assert max(tuned, key=tuned.__getitem__) == 3
    assert 1.4 < tuned[3] / baseline < 1.65
    assert Performance(machine, 4, chain(10, 4)).expected_tok_s() < baseline
    tree = Performance(machine, 4, Speculation("EAGLE3", 3, 2, 4, 4), TUNED).expected_tok_s()
    assert tree / tuned[3] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("name", preset_names())
def test_every_number_says_where_it_comes_from(name):
    numbers = preset_numbers(name)
    assert numbers
    assert all(number.basis in BASES for number in numbers.values())
    assert all(number.source for number in numbers.values() if number.basis == "given")
    machine = load_preset(name)
    batches = [Performance(machine, machine.tp).cycle(b).total_ms for b in (1, 8, 64, 512)]
    assert batches == sorted(batches)


@pytest.mark.parametrize(
    ("name", "overrides", "says"),
    [
        ("no-such", {}, "there is no preset 'no-such', there are"),
        (KIMI, {"aceptance": 0.19}, "has no number 'aceptance'"),
        (KIMI, {"acceptance": 1.9}, "a chance from 0 to 1"),
        (KIMI, {"verify.base_ms": "fast"}, "is a number that is not negative"),
        (KIMI, {"nccl.NCCL_PROTO.LL": 3}, "a pair of factors"),
    ],
)
def test_wrong_overrides_are_refused(name, overrides, says):
    """A misspelt override that changes nothing would look like a result."""
    with pytest.raises(UserError, match=says):
        load_preset(name, overrides)


def test_overrides_change_the_machine():
    assert kimi(acceptance=[0.9, 0.1]).machine.acceptance.by_position == (0.9, 0.1)
    assert load_preset(KIMI, {"verify.base_ms": 5}).verify.base_ms == 5
