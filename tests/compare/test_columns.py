"""One entry adds a column to compare-report, and one entry adds a metric to every view."""

import json
from pathlib import Path

import pytest

from tests.factories import Trial, make_compared_run, make_point, make_run
from tuner import load_run
from tuner.analysis.summary import summarise_run
from tuner.cli.result import print_summary
from tuner.compare import columns as table
from tuner.compare.columns import Column
from tuner.compare.comparison import compare
from tuner.compare.render import comparison_markdown, comparison_page, comparison_text
from tuner.dashboard.notes import trial_note
from tuner.metrics import catalogue
from tuner.metrics.catalogue import MetricEntry
from tuner.report.report import write_report


@pytest.mark.parametrize("in_table", [True, False])
def test_new_column_is_in_every_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_table: bool
) -> None:
    """A column that one view forgets is missed by whoever reads that view."""
    runs = [make_compared_run(tmp_path, "a"), make_compared_run(tmp_path, "b", best=110.0)]
    known = table.columns()
    added = Column(
        "letters", lambda row: f"word {row.run}", {"letter": lambda row: row.run}, in_table
    )
    for module in ("columns", "render"):
        monkeypatch.setattr(f"tuner.compare.{module}.columns", lambda: (*known[:-1], added))
    comparison = compare(runs)
    pages = (comparison_text(comparison), comparison_markdown(comparison))
    for text in (*pages, comparison_page(comparison)):
        assert "letters" in text
        assert "word B" in text
    rows = json.loads(json.dumps(comparison.to_json()))["rows"]
    assert [row["letter"] for row in rows] == ["A", "B", "A", "B"]


def test_json_keys_of_columns_are_unique() -> None:
    keys = [key for column in table.columns() for key in column.json]
    assert len(keys) == len(set(keys))
    assert set(table.metric_names()) <= set(keys)


@pytest.fixture
def new_metric(monkeypatch: pytest.MonkeyPatch) -> MetricEntry:
    """A metric that the catalogue does not have."""
    entry = MetricEntry(
        "tokens_by_request",
        "tokens/request",
        lambda level: sum(sample.tokens for sample in level.samples) / len(level.samples) + 0.25,
        digits=2,
        label="size, tokens",
        views=("report", "terminal", "comparison", "dashboard"),
        short="size",
        legend="tokens a request",
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", (*catalogue.CATALOGUE, entry))
    return entry


def test_new_metric_is_in_every_view(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    new_metric: MetricEntry,
) -> None:
    """Adding a metric is one entry. A view with a list of its own would lose it."""
    monkeypatch.setenv("COLUMNS", "160")
    trials = [Trial(None, 90.0), Trial(make_point(2), 110.0)]
    runs = [make_run(tmp_path / name, trials) for name in "ab"]
    records = runs[0].records()
    value = records[1].metrics["1"][new_metric.name]
    cell = f"{value:.2f}"
    comparison = compare(runs)
    views = {
        "report.md": write_report(summarise_run(runs[0])).read_text(),
        "report.html": (runs[0].path / "report.html").read_text(),
        "compare-report": comparison_text(comparison),
        "compare-report --markdown": comparison_markdown(comparison),
        "compare-report --html": comparison_page(comparison),
        "dashboard": trial_note(records[1], runs[0].sweep()),
    }
    lacking = [name for name, text in views.items() if "size, tokens" not in text]
    lacking += [name for name, text in views.items() if cell not in text]
    assert lacking == []
    assert comparison.to_json()["rows"][-1][new_metric.name] == value
    assert load_run(runs[0].path).metrics[new_metric.name].tolist()[1] == value
    print_summary(summarise_run(runs[0]), runs[0].report_md)
    shown = " ".join(capsys.readouterr().out.split())
    assert "┃ size ┃" in shown and cell in shown and "size: tokens a request" in shown
