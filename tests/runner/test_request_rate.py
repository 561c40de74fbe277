"""A sweep whose requests come at a rate."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tuner
from tests.factories import make_queue_window
from tests.sweeps import Listener, tiny_sweep
from tuner.analysis.request_rates import AtRate, describe_break_even_rate, describe_overload
from tuner.analysis.summary import summarise_run
from tuner.compare.comparison import compare
from tuner.compare.render import comparison_text
from tuner.config.load_level import Rate, at, level_in, listed, named, parse_level
from tuner.config.loader import LoadedSweep, load_sweep, sweep_text
from tuner.config.schema import ObjectiveSpec, SearchSpec, WorkloadSpec
from tuner.core.errors import UserError
from tuner.engines import make_engine
from tuner.execution.request_plan import describe_load
from tuner.metrics.samples_file import read_samples
from tuner.metrics.statistics import Interval
from tuner.preflight.plan import make_plan
from tuner.report.report import write_report
from tuner.runner.sweep_run import begin_run, run_sweep
from tuner.runs.latency_limits import broken_limits, describe_broken_limits
from tuner.runs.records import BrokenLimit, TrialRecord

DECODE = "trials: 1, objective: {metric: decode_tok_s}, limits: {ttft_ms_p99: 100000}"


def rated(folder: Path, search: str = DECODE, rate: str = "40") -> LoadedSweep:
    path = tiny_sweep(folder, search="trials: 1", steps="2").path
    text = path.read_text().replace("stages: [], trials: 1", f"stages: [], {search}")
    text = text.replace("concurrency: [1]", f"concurrency: [8], request_rate: {rate}")
    path.write_text(text)
    return load_sweep(path)


@pytest.mark.parametrize("ignore_eos", ["true", "false"])
def test_every_configuration_gets_the_same_arrivals(tmp_path: Path, ignore_eos: str) -> None:
    loaded = rated(tmp_path, rate=f"40, ignore_eos: {ignore_eos}")
    run = begin_run(tmp_path / "out", loaded, None)
    run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    records = run.ledger().records
    due = set()
    for record in records:
        assert record.outcome == "ok", record.message
        assert record.samples is not None
        for window in read_samples(run.path / record.samples)[Rate(40)]:
            due.add(tuple(each.due for each in window.samples))
            assert None not in due
        figures = record.metrics["40/s"]
        assert figures["goodput_request_s"] == pytest.approx(figures["request_s"])
        assert figures["queue_ms_p99"] is not None
    assert len(records) > 1
    assert len(due) == 1
    text = write_report(summarise_run(run)).read_text()
    assert "they come at 40 a second (Poisson" in text
    assert "queue p99, ms" in text


def test_a_throughput_that_is_the_rate_is_refused(tmp_path: Path) -> None:
    """Every speed-up would be 1.00, after hours."""
    with pytest.raises(UserError, match=r"tiny\.yaml:\d+: workload\.request_rate: whatever keeps"):
        rated(tmp_path, search="trials: 1")
    with pytest.raises(UserError, match=r"workload\.request_rate: 0 does not fit"):
        rated(tmp_path, rate="0")


def test_the_plan_counts_the_wait_for_the_last_one(tmp_path: Path) -> None:
    slow, fast = (make_plan(rated(tmp_path, rate=r)).estimate for r in ("0.01", "1000"))
    assert slow.measure_s > fast.measure_s + 2 * 3 / 0.01 * 0.99


def test_the_plan_counts_the_wait_for_what_warms_up(tmp_path: Path) -> None:
    """It comes at the rate too: half an hour of each trial that the plan did not have."""
    loaded = rated(tmp_path, rate="0.01")
    estimates = []
    for count in (1, 19):
        text = loaded.text.replace("warmup_requests: 1", f"warmup_requests: {count}")
        loaded.path.write_text(text)
        estimates.append(make_plan(load_sweep(loaded.path)).estimate)
    few, many = estimates
    assert many.measure_s == pytest.approx(few.measure_s + 18 / 0.01, rel=0.01)


RATES = "[40, 80]"


def test_each_of_several_rates_is_a_level_of_its_own(tmp_path: Path) -> None:
    loaded = rated(tmp_path, rate=RATES)
    assert loaded.sweep.workload.levels == (Rate(40), Rate(80))
    run = begin_run(tmp_path / "out", loaded, None)
    result = run_sweep(loaded, run, make_engine(loaded.sweep), Listener())
    for record in run.ledger().records:
        assert record.outcome == "ok", record.message
        assert list(record.metrics) == ["40/s", "80/s"]
        assert record.samples is not None
        windows = read_samples(run.path / record.samples)
        assert list(windows) == [Rate(40), Rate(80)]
        slow, fast = ([each.due or 0.0 for each in windows[n][0].samples] for n in windows)
        assert len(slow) == 3  # the cap of 8 streams asks for no more
        assert fast == pytest.approx([at / 2 for at in slow], abs=1e-6)
        assert {w.concurrency for each in windows.values() for w in each} == {8}
    told = result.to_json()
    assert set(told["speedup"]) == set(told["by_rate"]) == set(told["by_concurrency"])
    assert told["by_rate"]["40/s"]["speculation"] in ("pays", "unclear", "loses")
    text = write_report(summarise_run(run)).read_text()
    assert "they come at 40 or 80 a second (Poisson" in text
    assert "wait where 8 are open" in text
    assert "| rate | no speculation, decode tok/s |" in text
    assert "requests/s" in text
    assert "concurrency 40" not in text.lower()
    assert "There is no `adaptive.json`" in text
    frames = tuner.load_run(run.path)
    assert set(frames.metrics["request_rate"]) == {40.0, 80.0}
    assert frames.metrics["concurrency"].isna().all()
    assert len(frames.requests.query("request_rate == 80")) == len(frames.requests) / 2
    assert len(frames.cycles) == 2
    found = compare([run, run])
    assert {row.concurrency for row in found.rows} == {Rate(40), Rate(80)}
    assert {row["request_rate"] for row in found.to_json()["rows"]} == {40.0, 80.0}
    assert "40 requests/s, no speculation" in comparison_text(found)
    again = load_sweep(run.best_yaml)
    assert again.sweep.workload.levels == loaded.sweep.workload.levels


def test_one_of_the_rates_may_decide(tmp_path: Path) -> None:
    one = DECODE.replace("decode_tok_s}", "decode_tok_s, over: 80/s}")
    assert rated(tmp_path, one, RATES).sweep.search.objective.level == Rate(80)
    with pytest.raises(UserError, match=r"over: 8 requests/s is not measured, .* of 40/s, 80/s"):
        rated(tmp_path, one.replace("80/s", "8/s"), RATES)
    with pytest.raises(UserError, match=r"concurrency 8 is not measured, .* of 40/s, 80/s"):
        rated(tmp_path, one.replace("80/s", "8"), RATES)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ("[4, 4.0]", "request_rate: a level is there twice"),
        ("[4, 4.0000000001]", "request_rate: a level is there twice"),
        ("[]", "request_rate"),
        ("[4, 0]", r"request_rate\[1\]: 0 does not fit"),
        ("[4, nan]", r"request_rate\[1\]: 'nan' does not fit, write a number"),
        ("[4, -1]", r"request_rate\[1\]: -1 does not fit"),
        ("1e9", "request_rate"),
        ("1e-9", "request_rate"),
        (".inf", "request_rate"),
        ("fast", "request_rate"),
        ("{a: 1}", "request_rate"),
        ("40, 80", "80"),
    ],
)
def test_a_rate_that_is_none_is_refused_at_its_line(tmp_path: Path, rate: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as found:
        rated(tmp_path, rate=rate)
    assert ".yaml:" in str(found.value)
    assert "\n" not in str(found.value)


def test_several_rates_have_one_cap(tmp_path: Path) -> None:
    path = rated(tmp_path).path
    text = path.read_text().replace("request_rate: 40", f"request_rate: {RATES}")
    path.write_text(text.replace("concurrency: [8]", "concurrency: [8, 16]"))
    with pytest.raises(UserError, match="level of its own, write one concurrency, the most"):
        load_sweep(path)


def metrics(ratio: tuple[float, float, float] | None, *, overloaded: bool = False) -> dict:
    value, low, high = ratio or (1.0, 1.0, 1.0)
    return {
        "speedup": value, "speedup_low": low, "speedup_high": high,
        "arrival_request_s": 16.0, "served_request_s": 9.0 if overloaded else 16.0,
        "wait_growth": 4.0 if overloaded else 1.0, "decode_tok_s": 100.0,
    }  # fmt: skip


PAYS, UNCLEAR, LOSES = (1.4, 1.3, 1.5), (1.0, 0.9, 1.1), (0.8, 0.7, 0.9)


def crossed(*ratios: tuple[float, float, float], overloaded: str = "") -> dict[Rate, AtRate]:
    """At 4, 8, 16, ... requests/s; `overloaded` holds c (candidate) or b (both) for each rate."""
    marks = overloaded.ljust(len(ratios), "-")
    record = TrialRecord.model_construct(point=None, metrics={})
    return {
        Rate(4 * 2**n): AtRate(record, Interval(*ratio), marks[n] in "cb", marks[n] == "b")
        for n, ratio in enumerate(ratios)
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            crossed(PAYS, PAYS, LOSES),
            "Speculation pays up to 8 requests/s; loses from 16 requests/s on",
        ),
        (
            crossed(PAYS, UNCLEAR, LOSES),
            "Speculation pays up to 4 requests/s; loses from 16 requests/s on; "
            "at 8 it is unclear, the interval has 1 in it",
        ),
        (crossed(PAYS, PAYS), "Speculation pays at every rate measured, up to 8 requests/s"),
        (crossed(LOSES, LOSES), "Speculation loses at every rate measured, from 4 requests/s on"),
        (
            crossed(UNCLEAR, UNCLEAR),
            "Whether speculation pays is unclear at every rate, 4, 8 requests/s",
        ),
        (
            crossed(LOSES, PAYS),
            "Speculation pays at 8 requests/s and loses at 4, which is no order of load: "
            "measure again with more requests",
        ),
        (
            crossed(PAYS, PAYS, overloaded="-c"),
            "Speculation pays up to 4 requests/s; loses from 8 requests/s on",
        ),
        (
            crossed(PAYS, PAYS, overloaded="-b"),
            "Speculation pays at every rate measured, up to 8 requests/s",
        ),
        (crossed(PAYS), None),
    ],
)
def test_the_rate_at_which_speculation_stops_paying_is_said(
    found: dict[Rate, AtRate], words: str | None
) -> None:
    assert describe_break_even_rate(found) == words


def test_who_does_not_keep_up_is_said() -> None:
    assert describe_overload(crossed(PAYS, PAYS)) is None
    assert describe_overload(crossed(PAYS, LOSES, LOSES, overloaded="-cb")) == (
        "Without speculation the server did not keep up with 16 requests/s, with it nobody kept "
        "up with 8, 16 requests/s"
    )


def test_a_candidate_that_does_not_keep_up_where_the_baseline_does_is_no_answer() -> None:
    """Its decode speed may be the higher one, while its users wait in a queue that grows."""
    keeps = {Rate(16): [make_queue_window(4.0, lambda _: 0.5, 8)]}
    full = {Rate(16): [make_queue_window(4.0, lambda _: 1.0, 2)]}
    search, bad = SearchSpec(), {"16/s": metrics(PAYS, overloaded=True)}
    (broken,) = broken_limits(bad, search, keeps)
    assert (broken.concurrency, broken.metric, broken.value) == ("16/s", "served_request_s", 9.0)
    assert broken.excess == pytest.approx(16 / 9 - 1)
    assert describe_broken_limits([broken]) == (
        "served_request_s is 9 at 16 requests/s, 44 % below the 16 that came"
    )
    assert BrokenLimit.model_validate(broken.model_dump()) == broken
    assert broken_limits(bad, search, full) == []  # nobody keeps up
    assert broken_limits(bad, search) == []  # the baseline itself
    assert broken_limits({"16/s": metrics(PAYS)}, search, keeps) == []
    other = SearchSpec(objective=ObjectiveSpec(metric="decode_tok_s", over="4/s"))
    assert broken_limits(bad, other, keeps) == []


def test_a_cap_that_was_reached_is_what_is_blamed() -> None:
    """`The server did not keep up` was said of a cap of one stream, the default then."""
    found = crossed(PAYS, LOSES, LOSES, overloaded="-bb")
    capped = {rate: replace(each, capped=rate.per_second == 16) for rate, each in found.items()}
    assert describe_overload(capped) == (
        "Without speculation the server did not keep up with 8 requests/s, with it nobody kept up "
        "with 8 requests/s. At 16 requests/s as many were open as workload.concurrency allows, and "
        "most of the waiting was for one of them to end: whether a server keeps up there is not "
        "known, raise it"
    )


@pytest.mark.parametrize(("given", "cap"), [("", 256), ("concurrency: [2], ", 2)])
@pytest.mark.parametrize("rate", ["40", RATES])
def test_without_a_cap_the_server_has_what_waits(
    tmp_path: Path, given: str, cap: int, rate: str
) -> None:
    path = rated(tmp_path, rate=rate).path
    path.write_text(path.read_text().replace("concurrency: [8], ", given))
    loaded = load_sweep(path)
    assert loaded.sweep.workload.concurrency == [cap]
    again = tmp_path / "again.yaml"
    again.write_text(sweep_text(loaded.sweep))
    assert load_sweep(again).sweep.workload == loaded.sweep.workload


def test_one_stream_at_a_rate_stays_one_in_best_yaml(tmp_path: Path) -> None:
    """What differs from the default alone is written, and the default is another at a rate."""
    path = rated(tmp_path).path
    path.write_text(path.read_text().replace("concurrency: [8]", "concurrency: [1]"))
    loaded = load_sweep(path)
    again = tmp_path / "again.yaml"
    again.write_text(sweep_text(loaded.sweep))
    assert load_sweep(again).sweep.workload.concurrency == [1]


def test_conversations_are_called_that() -> None:
    """`2 requests/s` stood beside 6.6 requests/s served."""
    talks = {Rate(r.per_second, 2.75): each for r, each in crossed(PAYS, LOSES, LOSES).items()}
    assert describe_break_even_rate(talks) == (
        "Speculation pays up to 4 conversations/s (about 11 requests/s); loses from 8 "
        "conversations/s (about 22 requests/s) on"
    )
    level = level_in("4/s", {"4/s": {"turns_per_arrival": 2.75}})
    assert level == Rate(4) == parse_level("4/s")
    assert at(level) == "at 4 conversations/s (about 11 requests/s)"
    assert named(level_in("4/s", {"4/s": {"turns_per_arrival": 1.0}})) == "4 requests/s"
    assert named(level_in("4/s", {"4/s": {}})) == "4 requests/s"  # an older ledger
    spec = WorkloadSpec.model_validate({"turns": "all", "request_rate": [4.0, 8.0]})
    assert listed(spec.levels) == "4, 8 conversations/s"


def test_the_plan_says_what_comes(tmp_path: Path) -> None:
    assert describe_load(rated(tmp_path, rate="[2, 4.5]")) == (
        "3 requests a window come at 2, 4.5 requests/s, at most 8 open; limits: ttft_ms_p99 at "
        "most 100000"
    )
    one = rated(tmp_path, rate="2", search="trials: 1, objective: {metric: decode_tok_s}")
    assert describe_load(one) == "3 requests a window come at 2 requests/s, at most 8 open"
    assert describe_load(tiny_sweep(tmp_path)) == "3 requests a window at concurrency 1"
    (tmp_path / "talks.jsonl").write_text(
        "".join(
            json.dumps({"conversations": [{"from": who, "value": "a"} for who in each]}) + "\n"
            for each in (["human", "gpt", "human"], ["human", "gpt", "human", "gpt", "human"])
        )
    )
    path = rated(tmp_path, rate=RATES).path
    path.write_text(
        path.read_text().replace("{requests: 3", "{prompts: talks.jsonl, turns: all, requests: 5")
    )
    assert "at 40, 80 conversations/s (about 100, 200 requests/s)" in describe_load(
        load_sweep(path)
    )
