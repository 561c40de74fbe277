"""Where a cycle goes and why speculation loses: the lines that tell a user which knob to turn."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.factories import SIMULATED, SWEEP, Trial, make_point, make_run
from tuner.analysis import cycle_breakdown
from tuner.analysis.cycle_breakdown import DRAFT, DRAFTED, ONCE, PLAIN, TOKENS, Cycles
from tuner.analysis.summary import RunSummary, summarise_run
from tuner.config.point import Point
from tuner.report.answer import answer
from tuner.report.cycle import cycle_section, why_it_loses
from tuner.report.figures import style
from tuner.report.figures.cycle import cycle_parts
from tuner.report.report import write_report
from tuner.runs.run import Run
from tuner.simulator.performance import Performance, Speculation
from tuner.simulator.presets import load_preset

KIMI = "kimi-k2.5-8x-rtx-pro-6000"
H200 = "h200x2-llama8b"
STEPS_ONLY = SWEEP.replace("  draft_tp: [target, 1]\n", "")


def figures(preset: str, point: Point | None, levels: tuple[int, ...], **overrides: Any) -> Any:
    """What a measurement of the simulated machine would show, without noise."""
    machine = load_preset(preset, overrides)
    speculation = None
    if point is not None:
        steps, topk = point.num_steps or 0, point.eagle_topk or 1
        draft_tp = machine.tp if point.draft_tp == "target" else int(point.draft_tp or 0)
        tokens = point.num_draft_tokens or 0
        speculation = Speculation("EAGLE3", steps, topk, tokens, draft_tp)
    server = Performance(machine, machine.tp, speculation)
    plain = Performance(machine, machine.tp)
    found = {}
    for level in levels:
        speed, below = server.expected_tok_s(level), plain.expected_tok_s(level)
        told: dict[str, Any] = {"output_tok_s": speed, "cycle_ms": server.cycle(level).total_ms}
        if point is not None:
            chances = server.conditional("chat")
            rates, reached = [], 1.0
            for chance in chances:
                rates.append(reached := reached * chance)
            told |= {
                "accept_length": server.expected_accept_length(),
                "accept_rate_first": rates[0],
                "accept_rate_by_position": rates,
                "speedup": speed / below,
                "speedup_low": 0.99 * speed / below,
                "speedup_high": 1.01 * speed / below,
            }
        found[str(level)] = told
    return found


def run_of(
    root: Path,
    preset: str,
    points: list[Point],
    *,
    levels: tuple[int, ...] = (1,),
    sweep: str = STEPS_ONLY,
    **overrides: Any,
) -> RunSummary:
    trials = [
        Trial(point, metrics=figures(preset, point, levels, **overrides))
        for point in (None, *points)
    ]
    text = sweep.replace("concurrency: [1]", f"concurrency: {list(levels)}")
    return summarise_run(make_run(root, trials, sweep=text))


def told(summary: RunSummary) -> str:
    return "\n".join(cycle_section(summary))


def test_a_run_that_loses_says_why(tmp_path: Path) -> None:
    """A plain step of 11.1 ms; the best chain's cycle of 25 ms brings 1.8 tokens."""
    summary = run_of(tmp_path, KIMI, [make_point(2), make_point(3), make_point(5)])
    best = summary.best_candidate
    assert best is not None
    cycle, length = best.metric(1, "cycle_ms"), best.metric(1, "accept_length")
    base = figures(KIMI, None, (1,))["1"]["cycle_ms"]
    assert cycle is not None
    assert length is not None
    words = "\n".join(answer(summary))
    assert "**No speculation is fastest here.**" in words
    assert (
        f"Why: a cycle of it takes {cycle / base:.2f} times a plain decode step ({cycle:.2f} "
        f"against {base:.2f} ms) and brings {length:.2f} tokens: speculation needs an accept "
        f"length above {cycle / base:.2f} here, or a cycle below {length * base:.2f} ms." in words
    )
    assert "Even if every draft" not in words


def test_a_draft_that_cannot_win_however_good_is_told_so(tmp_path: Path) -> None:
    words = why_it_loses(run_of(tmp_path, KIMI, [make_point(1)]))
    assert words is not None
    hopeless = "With 1 step even a draft that is always right brings 2 tokens and does not win"
    assert f"{hopeless}: at that length no better draft helps" in words
    assert words.endswith("only a shorter cycle or more steps.")


def test_more_steps_are_not_advised_where_they_have_just_lost(tmp_path: Path) -> None:
    """`no better draft helps, only ... more steps`, below a table in which 5 steps were slower and
    above the advice to look for a better draft."""
    words = why_it_loses(run_of(tmp_path, KIMI, [make_point(1), make_point(5)], acceptance=0.19))
    assert words is not None
    assert "or more steps" not in words
    assert re.search(
        r"only a shorter cycle\. `5 steps, 6 tokens` could win with a better draft; with this one "
        r"it decoded 0\.\d{3} times as fast as no speculation\.$",
        words,
    )
    # A draft that is right at every second position, of a machine on which longer is slower.
    one = run_of(tmp_path / "one", H200, [make_point(1), make_point(7)], acceptance=0.5)
    assert ": more steps" not in told(one)


def test_each_concurrency_has_its_own_reason(tmp_path: Path) -> None:
    words = why_it_loses(run_of(tmp_path, KIMI, [make_point(2), make_point(3)], levels=(1, 8)))
    assert words is not None
    assert re.match(r"Why: at concurrency 1 a cycle .* At concurrency 8 a cycle ", words)


def test_what_is_lost_outside_decoding_is_not_blamed_on_the_draft(tmp_path: Path) -> None:
    """Long prefills can eat the gain; a better draft would not bring it back."""
    metrics = figures(H200, make_point(3), (1,))
    metrics["1"] |= {"speedup": 0.97, "speedup_low": 0.95, "speedup_high": 0.99}
    trials = [Trial(None, metrics=figures(H200, None, (1,))), Trial(make_point(3), metrics=metrics)]
    words = why_it_loses(summarise_run(make_run(tmp_path, trials)))
    assert words is not None
    assert "outside decoding" in words
    assert "needs an accept length" not in words


def test_cut_off_drafts_are_not_taken_for_delivered_tokens(tmp_path: Path) -> None:
    """Short answers cut accepted drafts off: decoding can lose whatever the accept length says."""
    base, metrics = figures(H200, None, (1,)), figures(H200, make_point(3), (1,))
    base["1"]["decode_tok_s"], metrics["1"]["decode_tok_s"] = 241.1, 235.7
    metrics["1"] |= {"speedup": 0.97, "speedup_low": 0.95, "speedup_high": 0.99}
    trials = [Trial(None, metrics=base), Trial(make_point(3), metrics=metrics)]
    words = why_it_loses(summarise_run(make_run(tmp_path, trials)))
    assert words is not None
    assert "outside decoding" not in words
    assert "without those that the ends of answers cut off" in words


def test_no_reason_is_given_for_what_noise_may_have_made(tmp_path: Path) -> None:
    """A cause that was made up for noise sends people tuning the wrong thing."""
    metrics = figures(KIMI, make_point(2), (1,))
    metrics["1"] |= {"speedup": 0.99, "speedup_low": 0.69, "speedup_high": 1.51}
    trials = [Trial(None, metrics=figures(KIMI, None, (1,))), Trial(make_point(2), metrics=metrics)]
    words = "\n".join(answer(summarise_run(make_run(tmp_path, trials))))
    assert "**No candidate is shown to be faster.** Launch the server without" in words
    assert "Why:" not in words
    assert "fastest here" not in words


def test_a_run_that_wins_gives_no_reason_for_losing(tmp_path: Path) -> None:
    summary = run_of(tmp_path, H200, [make_point(2), make_point(3)])
    assert why_it_loses(summary) is None
    assert "Why:" not in "\n".join(answer(summary))


def test_the_split_is_the_machines_own(tmp_path: Path) -> None:
    """Chains of two lengths at two concurrencies tell draft and verify apart."""
    summary = run_of(tmp_path, H200, [make_point(1), make_point(3), make_point(5)], levels=(1, 8))
    cycles = Cycles(summary)
    draft = load_preset(H200).draft
    step = draft.step_ms + draft.read_ms / 2 + draft.sharded_ms + draft.custom_all_reduce_ms
    for level in (1, 8):
        for taken in cycles.shown(level):
            parts = dict(taken.parts)
            assert set(parts) == {PLAIN, ONCE, DRAFT, TOKENS}
            assert sum(parts.values()) == pytest.approx(taken.even.cycle_ms, rel=1e-4)
            assert parts[PLAIN] == pytest.approx(
                figures(H200, None, (level,))[str(level)]["cycle_ms"]
            )
            assert parts[DRAFT] == pytest.approx(step * (taken.even.num_steps or 0), rel=1e-3)


def test_what_cannot_be_told_apart_stays_together_and_says_what_is_missing(tmp_path: Path) -> None:
    summary = run_of(tmp_path, H200, [make_point(1), make_point(3)])
    assert {name for name, _ in Cycles(summary).shown(1)[0].parts} == {PLAIN, ONCE, DRAFTED}
    assert (
        "To tell the draft from the verify of what it drafted takes a second concurrency"
        in told(summary)
    )
    rated = summary.sweep.workload.model_copy(update={"request_rate": [4.0, 8.0]})
    summary = replace(summary, sweep=summary.sweep.model_copy(update={"workload": rated}))
    assert (  # a second concurrency is refused there
        "what it drafted takes a run without request_rate at two concurrencies" in told(summary)
    )
    alone = told(run_of(tmp_path, H200, [make_point(3)]))
    assert "is not told apart by these measurements; it takes another step count." in alone


def test_a_costly_draft_leads_to_its_placement(tmp_path: Path) -> None:
    summary = run_of(tmp_path, H200, [make_point(1), make_point(3), make_point(5)], levels=(1, 8))
    found = re.search(
        r"- drafting is (\d+) % of the cycle \(([\d.]+) of the modelled ([\d.]+) ms\) at "
        r"concurrency 1: draft_tp 1, which drafts without all-reduces, may shorten that on slow",
        told(summary),
    )
    assert told(summary).count("draft_tp 1") == 1, "once, not at each concurrency"
    assert summary.no_speculation is not None
    log = summary.run.log_file(summary.no_speculation.record.launch_id)
    log.parent.mkdir(exist_ok=True)
    log.write_text("server_args=ServerArgs(tp_size=2, disable_custom_all_reduce=True)\n")
    assert "at concurrency 1: try draft_tp 1, which drafts without all-reduces; here" in told(
        summary
    )
    assert found
    share, draft, whole = map(float, found.groups())
    assert share == pytest.approx(100 * draft / whole, abs=1)


def test_what_no_step_count_changes_is_named(tmp_path: Path) -> None:
    """On PCIe a verify pass alone takes twice a plain step: that is where to look."""
    words = told(run_of(tmp_path, KIMI, [make_point(1), make_point(5)]))
    assert re.search(
        r"- 12\.\d+ of the modelled [\d.]+ ms of a cycle come once in it, beyond", words
    )
    assert "come once in it" not in told(
        run_of(tmp_path / "h", H200, [make_point(1), make_point(5)])
    )


def test_no_placement_is_advised_that_was_tried(tmp_path: Path) -> None:
    points = [make_point(1), make_point(3), make_point(5), make_point(3, draft_tp=1)]
    words = told(run_of(tmp_path, H200, points, levels=(1, 8), sweep=SWEEP))
    assert "try draft_tp" not in words and "draft_tp 1," not in words
    in_space = run_of(tmp_path / "space", H200, points[:3], levels=(1, 8), sweep=SWEEP)
    assert "draft_tp 1" not in told(in_space), "the search has it before it"
    assert re.search(r"- a cycle of `.*` against one of `.*`: [+-]\d\.\d\d \(", words)


def test_a_step_that_does_not_pay_is_named(tmp_path: Path) -> None:
    """The last of seven drafts of a bad draft brings next to nothing."""
    words = told(run_of(tmp_path, H200, [make_point(3), make_point(7)], acceptance=0.3))
    assert re.search(r"each further drafted token costs [\d.]+.* ms, .*: fewer steps", words)
    paying = told(run_of(tmp_path, H200, [make_point(1), make_point(2)], acceptance=0.95))
    assert ": more steps may pay" in paying
    losing = run_of(tmp_path / "losing", KIMI, [make_point(1), make_point(2)], acceptance=0.5)
    assert "No speculation is fastest here" in "\n".join(answer(losing))
    assert ": more steps make a less bad chain, not a winning one" in told(losing)


def test_a_last_step_that_does_not_pay_is_held_against_the_chain_without_it(
    tmp_path: Path,
) -> None:
    """`brings 0.50 tokens (0.55 would pay for it)` and no word of what follows."""
    slower, same, faster = (
        told(two_chains(tmp_path / name, tok_s))
        for name, tok_s in (("slower", 80.0), ("same", 100.0), ("faster", 120.0))
    )
    assert "would pay for it), yet `2 steps, 3 tokens` was measured slower there" in slower
    assert "pay for it): fewer steps, though `2 steps, 3 tokens` is not told apart there" in same
    assert re.search(
        r"it\): fewer steps, as `2 steps, 3 tokens` shows, which is 1\d\.\d % fast", faster
    )


def two_chains(root: Path, shorter: float) -> RunSummary:
    """3 steps, whose last draft brings next to nothing, best by its objective at concurrency 1;
    2 steps at this speed."""
    trials = [
        Trial(None, 90.0),
        Trial(make_point(3), 100.0, accepted=0.1),
        Trial(make_point(2), shorter, accepted=0.1),
    ]
    run = make_run(root, trials, sweep=STEPS_ONLY)
    lines = [json.loads(line) for line in run.trials_file.read_text().splitlines()]
    lines[1]["metrics"]["1"] |= {"cycle_ms": 12.0, "speedup": 2.0}
    lines[2]["metrics"]["1"] |= {"cycle_ms": 11.0}
    run.trials_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return summarise_run(Run.open(run.path))


def test_a_wiring_fault_is_suspected_before_anything_is_tuned(tmp_path: Path) -> None:
    words = told(run_of(tmp_path, KIMI, [make_point(2), make_point(5)], acceptance=0.19))
    assert "- acceptance is 19 % at position 1: check the hidden-state wiring" in words
    assert "wiring" not in told(run_of(tmp_path, KIMI, [make_point(2), make_point(5)]))


def test_ngram_has_no_wiring(tmp_path: Path) -> None:
    """It has no draft model: what to look at is the prompts."""
    point = Point(num_draft_tokens=8)
    metrics = figures(KIMI, make_point(2), (1,), acceptance=0.19)
    trials = [Trial(None, metrics=figures(KIMI, None, (1,))), Trial(point, metrics=metrics)]
    ngram = STEPS_ONLY.replace("draft: example/draft, algorithm: EAGLE3", "algorithm: NGRAM")
    ngram = ngram.replace("num_steps: {low: 1, high: 6}", "num_draft_tokens: [8]")
    words = told(summarise_run(make_run(tmp_path, trials, sweep=ngram)))
    assert "wiring" not in words


def test_chains_that_nobody_measured_are_predicted(tmp_path: Path) -> None:
    """Needs the raw counts, which the usual run keeps."""
    trials = [Trial(None, 90.0), Trial(make_point(2), 99.0), Trial(make_point(5), 80.0)]
    words = told(summarise_run(make_run(tmp_path, trials, sweep=STEPS_ONLY)))
    assert "Not measured, but predicted, decoding alone: " in words
    for steps in (1, 3, 4):
        assert f"`{steps} step{'s' * (steps > 1)}, {steps + 1} tokens`" in words
    bare = summarise_run(make_run(tmp_path / "bare", trials, sweep=STEPS_ONLY, keep_samples=False))
    assert "Not measured" not in told(bare)


def test_cycles_that_follow_no_model_are_not_split(tmp_path: Path) -> None:
    """A busy machine: longer chains came out quicker. A split of that would be made up."""
    trials = [Trial(None, metrics=figures(H200, None, (1,)))]
    for steps, ms in ((1, 12.0), (3, 8.0), (5, 5.0), (6, 9.0)):
        metrics = figures(H200, make_point(steps), (1,))
        metrics["1"]["cycle_ms"] = ms
        trials.append(Trial(make_point(steps), metrics=metrics))
    words = told(summarise_run(make_run(tmp_path, trials, sweep=STEPS_ONLY)))
    assert "No split is given: the measured cycles do not follow" in words
    assert "further drafted token" not in words
    assert "come once in it" not in words
    assert "| `1 step, 2 tokens` | 12.00 | - | - | - | - |" in words


def test_without_a_baseline_or_a_cycle_there_is_no_section(tmp_path: Path) -> None:
    bare = {"output_tok_s": 95.0, "speedup": 1.05, "speedup_low": None, "speedup_high": None}
    trials = [Trial(None, 90.0), Trial(make_point(2), metrics={"1": bare})]
    run = make_run(tmp_path, trials)
    assert cycle_section(summarise_run(run)) == []
    assert cycle_parts(summarise_run(run), run.figures) is None
    assert (
        cycle_section(summarise_run(make_run(tmp_path / "b", [Trial(make_point(2), 99.0)]))) == []
    )
    assert "Where a cycle goes" not in write_report(summarise_run(run)).read_text()


def test_a_draft_without_steps_is_held_against_the_plain_step_only(tmp_path: Path) -> None:
    """NGRAM has no num_steps; its cycle and accept length are measured all the same."""
    sweep = SWEEP.replace("draft: example/draft, algorithm: EAGLE3", "algorithm: NGRAM")
    sweep = sweep.replace("  num_steps: {low: 1, high: 6}\n  draft_tp: [target, 1]\n", "")
    metrics = figures(H200, make_point(3), (1,))
    trials = [
        Trial(None, metrics=figures(H200, None, (1,))),
        Trial(Point(num_draft_tokens=8), metrics=metrics),
    ]
    summary = summarise_run(make_run(tmp_path, trials, sweep=sweep))
    assert "`8 tokens`" in told(summary)
    assert cycle_parts(summary, summary.run.figures) is not None


def test_the_best_tree_stands_beside_its_chains(tmp_path: Path) -> None:
    tree = Point(5, 2, 16, "target")
    fast = figures(H200, tree, (1,))
    fast["1"] |= {"speedup": 9.0, "speedup_low": 8.9, "speedup_high": 9.1}
    trials = [
        Trial(None, metrics=figures(H200, None, (1,))),
        *(Trial(make_point(n), metrics=figures(H200, make_point(n), (1,))) for n in (1, 3)),
        Trial(tree, metrics=fast),
    ]
    summary = summarise_run(make_run(tmp_path, trials))
    shown = [taken.measured.label for taken in Cycles(summary).shown(1)]
    assert shown == ["1 step, 2 tokens", "3 steps, 4 tokens", "5 steps, topk 2, 16 tokens"]
    assert "5 steps, topk 2" in told(summary)


def test_other_settings_are_not_mixed_into_the_bars(tmp_path: Path) -> None:
    env = (("NCCL_PROTO", "LL"),)
    trials = [
        Trial(None, 90.0),
        Trial(make_point(1), 99.0),
        Trial(make_point(3), 98.0),
        Trial(make_point(2, env=env), 97.0),
    ]
    cycles = Cycles(summarise_run(make_run(tmp_path, trials)))
    assert [taken.even.num_steps for taken in cycles.shown(1)] == [1, 3]


def test_the_figure_of_a_simulated_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr(style, "save", lambda figure, *rest: kept.append(figure))
    sweep = SIMULATED.replace("  draft_tp: [target, 1]\n", "")
    cycle_parts(run_of(tmp_path, H200, [make_point(1), make_point(3)], sweep=sweep), tmp_path)
    (figure,) = kept
    assert "(simulated)" in figure.get_suptitle()
    bars = [patch for patch in figure.axes[0].patches if patch.get_height() > 0]
    plain = figures(H200, None, (1,))["1"]["cycle_ms"]
    assert bars[0].get_height() == pytest.approx(plain)


def test_the_committed_run_has_its_section_and_figure(tmp_path: Path) -> None:
    summary = summarise_run(Run.open(Path("results/h200_llama8b_eagle3/20261129-195508")))
    words = told(summary)
    assert "A plain decode step takes 3.43 ms." in words
    assert "| `2 steps, 3 tokens` | 6.53 | 6.55 (5.95 to 7.14) |" in words
    drawn = cycle_parts(summary, tmp_path)
    assert drawn is not None
    ET.parse(tmp_path / "cycle.svg")


def test_model_of_cycles_is_fitted_to_the_best_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a fit grows with the cube of the settings."""
    monkeypatch.setattr(cycle_breakdown, "MOST_SETTINGS", 1)
    ll = (("NCCL_PROTO", "LL"),)
    points = [make_point(1), make_point(2, env=ll), make_point(3), make_point(4, env=ll)]
    trials = [Trial(point, 100.0 + n) for n, point in enumerate(points)]
    ranked = summarise_run(make_run(tmp_path, [Trial(None, 90.0), *trials])).ranked
    fitted = cycle_breakdown.modelled(ranked)
    assert {result.point.env for result in fitted if result.point} == {ll}
    assert fitted[0] is ranked[0] and len(fitted) == 2
