"""What is decided from latencies: which settings a night of launches is spent on."""

import json

import pytest

from tuner.core.errors import Failure, UserError
from tuner.report.nccl import _table
from tuner.server.all_reduce import CommResults, Message, Setting, SettingResult
from tuner.sglang.nccl.screening import screened
from tuner.sglang.nccl.selection import Screening

MESSAGES = (Message(4096, 8192, 1, ("draft",)), Message(16384, 32768, 4, ("verify",)))
WOBBLE = (1.0, 1.004, 0.996, 1.002)
OTHER = (1.002, 0.997, 1.003, 0.998)


def setting(**env: str) -> Setting:
    return Setting(tuple(sorted(env.items())))


def measured(
    small: float, large: float, wobble: tuple[float, ...] = WOBBLE, **env: str
) -> SettingResult:
    rounds = tuple(tuple(us * each for each in wobble) for us in (small, large))
    return SettingResult(setting(**env), rounds)


def results(*each: SettingResult) -> CommResults:
    return CommResults(MESSAGES, each, "NCCL 2.28.9", "NVIDIA H200", 2)


def test_the_fastest_comes_first_and_what_loses_everywhere_goes() -> None:
    found = screened(
        results(
            measured(20.0, 30.0),
            measured(12.0, 20.0, OTHER, NCCL_PROTO="LL"),
            measured(40.0, 45.0, OTHER, NCCL_PROTO="Simple"),
        )
    )
    assert [each.setting.label() for each in found.keep] == ["NCCL_PROTO=LL"]
    assert {each.setting.label(): each.reason for each in found.drop} == {
        "unset": "1.50 to 1.67 times as slow as NCCL_PROTO=LL, at every size",
        "NCCL_PROTO=Simple": "2.25 to 3.33 times as slow as NCCL_PROTO=LL, at every size",
    }


def test_alike_settings_are_launched_once_and_as_the_plainest() -> None:
    """The case's 27 settings are few that differ; each launch is ten minutes."""
    ring = measured(20.1, 30.1, OTHER, NCCL_ALGO="Ring")
    both = measured(20.05, 29.9, OTHER, NCCL_ALGO="Ring", NCCL_PROTO="Simple")
    found = screened(results(both, ring, measured(20.0, 30.0)))
    assert [each.setting.label() for each in found.keep] == ["unset"]
    assert {each.into.label() for each in found.collapse} == {"unset"}
    assert found.representative(ring.setting) == Setting()


def test_a_small_difference_that_is_seen_clearly_is_still_not_worth_a_launch() -> None:
    found = screened(results(measured(20.0, 30.0), measured(20.2, 30.3, NCCL_ALGO="Ring")))
    assert [each.setting.label() for each in found.keep] == ["unset"]


def test_one_that_wins_at_a_single_size_stays() -> None:
    """LL wins small messages and loses large ones: which counts, only a server can say."""
    found = screened(results(measured(20.0, 30.0), measured(10.0, 60.0, NCCL_PROTO="LL")))
    assert {each.setting.label() for each in found.keep} == {"unset", "NCCL_PROTO=LL"}
    assert [each.reason for each in found.keep] == ["lowest at 1 of 2 sizes"] * 2
    assert not found.drop


def test_noise_drops_nothing() -> None:
    noisy = (0.4, 2.0, 1.4, 0.5)
    found = screened(results(measured(20.0, 30.0), measured(26.0, 40.0, noisy, NCCL_PROTO="LL")))
    assert len(found.keep) == 2
    one_round = screened(
        results(measured(20.0, 30.0, (1.0,)), measured(60.0, 90.0, (1.0,), NCCL_PROTO="LL"))
    )
    assert len(one_round.keep) == 2


def test_what_is_alike_to_a_dropped_one_goes_with_it() -> None:
    twin = measured(20.1, 30.1, OTHER, NCCL_ALGO="Ring")
    fast = measured(10.0, 15.0, OTHER, NCCL_PROTO="LL")
    found = screened(results(measured(20.0, 30.0), twin, fast))
    assert [each.setting.label() for each in found.keep] == ["NCCL_PROTO=LL"]
    assert not found.collapse
    assert found.representative(twin.setting) is None
    assert {each.setting.label() for each in found.drop} == {"unset", "NCCL_ALGO=Ring"}


def test_hangs_and_crashes_are_dropped_by_name() -> None:
    hung = SettingResult(
        setting(NCCL_PROTO="LL"), failure=Failure.HANG, message="no answer for 60 s"
    )
    found = screened(results(measured(20.0, 30.0), hung))
    assert [(each.failure, each.reason) for each in found.drop] == [
        (Failure.HANG, "HANG: no answer for 60 s")
    ]


def test_every_setting_is_somewhere() -> None:
    given = [measured(10.0 + index % 5, 30.0 - index % 7, NCCL_X=str(index)) for index in range(30)]
    found = screened(results(*given))
    told = [each.setting for part in (found.keep, found.collapse, found.drop) for each in part]
    assert sorted(told, key=str) == sorted((each.setting for each in given), key=str)


def test_a_file_gives_back_what_was_measured() -> None:
    hung = SettingResult(
        setting(NCCL_PROTO="LL"), failure=Failure.HANG, message="no answer for 60 s"
    )
    before = results(measured(20.0, 30.0), hung)
    text = json.dumps(before.to_json())
    assert CommResults.from_json(json.loads(text), "comm.json") == before


@pytest.mark.parametrize("data", [{}, {"format": 1}, {"format": 99}, []])
def test_another_file_is_refused(data: object) -> None:
    with pytest.raises(UserError, match=r"^comm\.json: "):
        CommResults.from_json(data, "comm.json")  # type: ignore[arg-type]


def test_the_reports_table_shows_the_smallest_and_the_largest_message() -> None:
    """A draft's own group comes last and is small: its microseconds stood under no large one."""
    messages = (*MESSAGES, Message(4096, 8192, 1, ("draft TP 2",), 2))
    row = SettingResult(Setting(), ((1.0,) * 4, (2.0,) * 4, (3.0,) * 4))
    results = CommResults(messages, (row,), "NCCL", "GPU", 4)
    header, _, line = _table(Screening(None, None, results), results).splitlines()[:3]
    assert "draft, 1 token" in header and "verify, 4 tokens" in header
    assert "| 1.0 | 2.0 |" in line
