"""What a release is decided by: servers at each concurrency, shared points, and the gate."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import factories
from tests.compare.rows import row
from tests.factories import SIMULATED, SWEEP, Trial, make_compared_run, make_point, make_run
from tuner.compare.comparison import compare
from tuner.compare.regression_gate import Gate
from tuner.compare.render import comparison_markdown, comparison_page, comparison_text
from tuner.core.errors import NotComparable
from tuner.metrics.samples import Window
from tuner.runs.run import Run

TWO_LEVELS = SWEEP.replace("concurrency: [1]", "concurrency: [1, 4]")
ENDPOINT = SWEEP.replace(
    "{kind: sglang, python: /opt/sglang/bin/python}",
    "{kind: endpoint, url: 'http://127.0.0.1:30000'}",
)
LOG = """\
[2026-11-30 02:27:40 TP0] Load weight end. elapsed=0.13 s, type=Target, avail mem=130.73 GB, mem usage=7.48 GB.
[2026-11-30 02:27:41 TP0] Load weight end. elapsed=0.00 s, type=Draft, avail mem=129.61 GB, mem usage=1.12 GB.
[2026-11-30 02:27:42 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1180799, K size: 36.04 GB, V size: 36.04 GB
[2026-11-30 02:27:58 TP0] max_total_num_tokens=1180799, context_len=8192, available_gpu_mem=54.97 GB
"""  # noqa: E501 - as SGLang 0.5.17 writes them


@pytest.fixture
def crossing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on one step is 20 % slower and two steps 20 % faster at concurrency 4 than 1."""
    real = factories.make_windows

    def make_windows(trial: Trial, level: int, noise: float, seed: int) -> list[Window]:
        change = {1: 1.2, 2: 0.8}.get((trial.point and trial.point.num_steps) or 0, 1.0)
        assert trial.tok_s is not None
        tok_s = trial.tok_s * (change if level == 4 else 1.0)
        return real(replace(trial, tok_s=tok_s), level, noise, seed)

    monkeypatch.setattr(factories, "make_windows", make_windows)


@pytest.mark.usefixtures("crossing")
def test_the_best_candidate_is_that_of_each_concurrency(tmp_path: Path) -> None:
    """Who serves batches of 4 wants to know of the fastest there, not of a mean."""
    given: dict[str, Any] = {"sweep": TWO_LEVELS, "levels": (1, 4)}
    comparison = compare(
        [make_compared_run(tmp_path, "a", **given), make_compared_run(tmp_path, "b", **given)]
    )
    found = [row(comparison, "B", "best candidate", level).configuration for level in (1, 4)]
    assert found == ["2 steps, 3 tokens", "1 step, 2 tokens"]


@pytest.mark.usefixtures("crossing")
def test_a_section_says_whose_figures_it_has(tmp_path: Path) -> None:
    """The header named 3 steps, the section below had the figures of 4 and a note of a launch
    that they were not of."""
    again = Trial(make_point(2), 110.1, role="confirm")
    trials = [Trial(None, 90.0), Trial(make_point(1), 91.0), Trial(make_point(2), 110.0), again]
    given: dict[str, Any] = {"sweep": TWO_LEVELS, "levels": (1, 4)}
    comparison = compare([make_run(tmp_path / name, trials, **given) for name in "ab"])
    text, page = comparison_text(comparison), comparison_markdown(comparison)
    assert "concurrency 1, best candidate there: 2 steps, 3 tokens (times" in text
    assert "concurrency 4, best candidate there: 1 step, 2 tokens (times" in text
    assert "\n## Concurrency 4, best candidate there: 1 step, 2 tokens\n" in page
    best = {run.best for run in comparison.runs}
    assert all(f"best over all levels: {each}" in text for each in best)
    first, second = comparison.notes
    assert first.startswith("A, 2 steps, 3 tokens at concurrency 1: the figures are those of its ")
    assert second.startswith("B, ") and "trial 3" in second


def test_runs_with_different_best_candidates_have_each_in_the_heading(tmp_path: Path) -> None:
    trials = [Trial(None, 90.0), Trial(make_point(3), 110.0)]
    comparison = compare([make_compared_run(tmp_path, "a"), make_run(tmp_path / "b", trials)])
    words = "best candidate there: A 2 steps, 3 tokens; B 3 steps, 4 tokens"
    assert words in comparison_text(comparison)


def test_a_gate_says_what_it_could_not_have_seen(tmp_path: Path) -> None:
    """`passed` was said of 0.916 to 1.125 at a limit of 2 %: a loss of 8 % would have passed."""
    runs = [make_compared_run(tmp_path, name, noise=0.03) for name in "ab"]
    gate = Gate(compare(runs), 0.02)
    assert {each.what for each, _ in gate.unseen} == {"no speculation", "best candidate"}
    passed, first, last = gate.words()
    assert passed.startswith("gate 2 %: passed")
    assert first.startswith("could not have seen 2 % at concurrency 1: no speculation of B has ")
    assert last.endswith("; more windows or requests narrow intervals")
    assert first in comparison_markdown(compare(runs), gate=gate.words())
    told = gate.to_json()["could_not_see"]
    assert [each["what"] for each in told] == ["no speculation", "best candidate"]
    for (found, loss), each in zip(gate.unseen, told, strict=True):
        assert found.ratio is not None and found.ratio.high is not None
        # A run that is so much slower, with an interval of that shape, just fails the gate.
        assert (1 - loss) * found.ratio.high / found.ratio.value == pytest.approx(1 - 0.02)
        assert each["smallest_loss_seen"] == loss > 0.02
    assert (
        list(Gate(compare([make_compared_run(tmp_path, n) for n in "cd"]), 0.02).not_seen()) == []
    )


def test_a_candidate_within_the_noise_does_not_replace_the_answer(tmp_path: Path) -> None:
    """Else each of two equal runs is compared by its luckiest point."""
    trials = [Trial(None, 90.0), Trial(make_point(1), 100.0), Trial(make_point(2), 100.02)]
    comparison = compare([make_run(tmp_path / name, trials) for name in "ab"])
    assert row(comparison, "B", "best candidate").configuration == "1 step, 2 tokens"


def test_all_points_that_runs_share_and_those_that_they_do_not(tmp_path: Path) -> None:
    trials = [Trial(None, 90.0), Trial(make_point(2), 110.0), Trial(make_point(3), 100.0)]
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_run(tmp_path / "b", trials)], every=True
    )
    assert row(comparison, "B", "2 steps, 3 tokens").verdict == "faster"
    assert comparison.unshared == (
        "1 step, 2 tokens at concurrency 1: only in A",
        "3 steps, 4 tokens at concurrency 1: only in B",
    )
    for text in (comparison_text(comparison), comparison_markdown(comparison)):
        assert "3 steps, 4 tokens at concurrency 1: only in B" in text
    assert (
        compare([make_compared_run(tmp_path, "c"), make_compared_run(tmp_path, "d")]).unshared == ()
    )


def test_a_shared_point_that_is_slower_is_no_regression(tmp_path: Path) -> None:
    """Nobody deploys it: the gate is for what would be served."""
    trials = [Trial(None, 90.0), Trial(make_point(1), 50.0), Trial(make_point(2), 100.0)]
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_run(tmp_path / "b", trials)], every=True
    )
    assert row(comparison, "B", "1 step, 2 tokens").verdict == "slower"
    assert comparison.regressions(0.02) == ()


def test_no_speculation_is_gated_too(tmp_path: Path) -> None:
    comparison = compare(
        [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", baseline=80.0)]
    )
    assert [each.what for each in comparison.regressions(0.02)] == ["no speculation"]


@pytest.mark.usefixtures("crossing")
def test_a_concurrency_that_failed_is_not_passed(tmp_path: Path) -> None:
    """Exit code 0 of a gate says that nothing is slower."""
    one = make_compared_run(tmp_path, "a", sweep=TWO_LEVELS, levels=(1, 4))
    other = make_compared_run(tmp_path, "b", sweep=TWO_LEVELS, levels=(1,))
    comparison = compare([one, other])
    assert comparison.regressions(0.02) == ()
    comparison.refuse_incomparable()
    with pytest.raises(NotComparable, match="best candidate of B at concurrency 4: not measured"):
        comparison.refuse_unjudged()
    compare([one, one]).refuse_unjudged()


@pytest.mark.parametrize("speculates", [True, False])
def test_endpoints_are_one_server_each(tmp_path: Path, speculates: bool) -> None:
    """They have no baseline, so there is no block for one, and neither kind goes without rows."""
    a = make_run(tmp_path / "a", [Trial(None, 90.0)], sweep=ENDPOINT)
    point = make_point(2) if speculates else None
    b = make_run(tmp_path / "b", [Trial(point, 110.0)], sweep=ENDPOINT)
    comparison = compare([a, b])
    assert {each.what for each in comparison.rows} == {"the server as it is"}
    found = row(comparison, "B", "the server as it is")
    assert found.verdict == "faster"
    assert found.configuration == ("2 steps, 3 tokens" if speculates else "no speculation")
    assert "concurrency 1, no speculation" not in comparison_text(comparison)
    comparison.refuse_unjudged()


def test_an_endpoint_is_not_held_against_a_sweep(tmp_path: Path) -> None:
    endpoint = make_run(tmp_path / "b", [Trial(make_point(2), 100.0)], sweep=ENDPOINT)
    with pytest.raises(NotComparable, match=r"engine\.kind is sglang in the first run and endpoin"):
        compare([make_compared_run(tmp_path, "a"), endpoint])


def logged(run: Run) -> Run:
    for launch in range(3):
        run.log_file(launch).write_text(LOG)
    return run


def test_what_lies_behind_a_speed_is_shown(tmp_path: Path) -> None:
    """A ratio alone does not say what to look at."""
    runs = [
        logged(make_compared_run(tmp_path, "a")),
        logged(make_compared_run(tmp_path, "b", best=110.0)),
    ]
    comparison = compare(runs)
    figures = row(comparison, "B", "best candidate").figures
    assert figures.metrics["accept_rate_by_position"] == pytest.approx([0.5, 0.24])
    assert figures.metrics["accept_rate"] == pytest.approx(0.37)
    assert figures.metrics["cycle_ms"] is not None
    name, plain_ms = figures.cycle_parts[0]
    assert name == "as a plain decode step"
    assert plain_ms == pytest.approx(1000 / 90, rel=0.01)
    assert figures.memory is not None
    assert (figures.memory.target, figures.memory.draft) == (7.48, 1.12)
    assert figures.memory.cache == pytest.approx(72.08)
    assert figures.memory.free == 54.97
    for text in (comparison_text(comparison), comparison_markdown(comparison)):
        assert "0.50 0.24" in text
        assert "ms; by the model " in text
        assert "a plain decode step + " in text
        assert "(verify" not in text, "brackets in brackets"
        assert "KV cache 72.08 (1,180,799 tokens)" in text
    data = json.loads(json.dumps(comparison.to_json()))["rows"][-1]
    assert data["gpu_memory_gib"]["tokens"] == 1180799
    assert {"ttft_ms_p90", "tpot_ms_p99", "accept_rate", "cycle_parts_ms"} <= set(data)


def test_energy_per_token_is_compared_where_it_was_read(tmp_path: Path) -> None:
    """Faster at twice the power is not an upgrade."""
    trials = [Trial(None, 90.0, watts=400.0), Trial(make_point(2), 100.0, watts=500.0)]
    runs = [make_run(tmp_path / "a", trials), make_compared_run(tmp_path, "b")]
    comparison = compare(runs)
    rows = [row(comparison, letter, "best candidate") for letter in "AB"]
    found = [each.figures.metrics["energy_j_per_token"] for each in rows]
    assert found[0] is not None and found[0] > 0
    assert found[1] is None
    for text in (comparison_text(comparison), comparison_markdown(comparison)):
        assert "energy, J/token" in text
        assert f"{found[0]:.3f}" in text
    told = [each["energy_j_per_token"] for each in comparison.to_json()["rows"]]
    assert told.count(None) == 2
    assert found[0] in told


def test_the_page_says_the_verdicts_and_shows_the_ratios(tmp_path: Path) -> None:
    """It is sent around: it must need nothing but itself, and say what is simulated."""
    runs = [make_compared_run(tmp_path, name, sweep=SIMULATED, best=best) for name, best in
            (("a", 100.0), ("<b>", 90.0))]  # fmt: skip
    html = comparison_page(compare(runs))
    assert "<strong>slower</strong>" in html
    assert "<svg" in html and "95 % intervals: B, no speculation at 1" in html
    assert "(simulated)" in html
    assert "<b>" not in html
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_a_page_without_a_ratio_has_the_reasons(tmp_path: Path) -> None:
    runs = [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", keep_samples=False)]
    html = comparison_page(compare(runs))
    assert "<svg" not in html
    assert "no raw samples, so no interval" in html


def test_a_best_candidate_whose_own_launch_failed_is_not_passed(tmp_path: Path) -> None:
    """Its figures are of a shared server, and nobody could serve it."""
    failed = Trial(make_point(2), role="confirm", outcome="failed", failure="OOM")
    trials = [Trial(None, 90.0), Trial(make_point(2), 100.0), failed]
    comparison = compare([make_compared_run(tmp_path, "a"), make_run(tmp_path / "b", trials)])
    found = row(comparison, "B", "best candidate")
    assert found.verdict == "not comparable: a launch of its own failed"
    assert found.tok_s is not None
    with pytest.raises(NotComparable, match="a launch of its own failed"):
        comparison.refuse_unjudged()
