"""A new engine is one file (table_engine.py) and one registration."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tuner
from tests.server.table_engine import TableEngine
from tuner.cli.commands import specbench
from tuner.config.loader import load_sweep
from tuner.config.schema import ENGINE_TRAITS, EngineTraits
from tuner.core.errors import UserError
from tuner.engines import ENGINES, make_engine, register

SWEEP = """
name: table
engine: {kind: table}
model: {target: some/model, draft: some/draft, algorithm: EAGLE3}
space: {num_steps: [1, 2, 3]}
workload: {requests: 4, output_tokens: 8, concurrency: [1]}
measure: {warmup_requests: 1}
search: {trials: 2, stages: []}
"""


@pytest.fixture(params=[EngineTraits(), EngineTraits(is_simulated=True)], ids=["real", "simulated"])
def traits(request: pytest.FixtureRequest) -> Iterator[EngineTraits]:
    register("table", lambda sweep: TableEngine(), request.param)
    yield request.param
    del ENGINES["table"], ENGINE_TRAITS["table"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("table.yaml")
    path.write_text(SWEEP)
    return path


def invoke(*words: object) -> Result:
    found = CliRunner().invoke(specbench, list(map(str, words)), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found


def records_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "trials.jsonl").read_text().splitlines()]


def test_new_engine_sweeps_resumes_and_reports(file: Path, traits: EngineTraits) -> None:
    """A vLLM engine must not need edits in forty files."""
    invoke("sweep", file, "--out", "runs")
    (run,) = Path("runs").iterdir()
    before = records_of(run)
    assert [each["role"] for each in before].count("candidate") == 2
    found = json.loads(invoke("sweep", "--resume", run, "--trials", "3", "--json").stdout)
    assert found["best"]["num_steps"] == 2
    assert found["speedup"]["1"]["value"] > 2
    records = records_of(run)
    assert records[: len(before)] == before
    assert {each["engine"] for each in records} == {"table"}
    assert {each["engine_version"] for each in records} == {"table 1"}
    assert {each["outcome"] for each in records} == {"ok"}

    (run / "report.md").unlink()
    invoke("report", run)
    report = (run / "report.md").read_text()
    assert "**Run `2 steps, 3 tokens`.**" in report
    assert "the engine table has no adaptive speculation" in report
    assert "| engine version | `table 1` |" in report
    assert ("none was measured on hardware" in report) is traits.is_simulated
    assert "exec table-server \\\n  --steps=2" in (run / "best.sh").read_text()
    assert tuner.load_run(run).simulated is traits.is_simulated
    invoke("compare-report", run, run)
    invoke("status", run)


@pytest.mark.usefixtures("traits")
def test_new_engine_plans_without_other_engines_capabilities(file: Path) -> None:
    """A plan that promises what the engine cannot do is wrong by hours."""
    text = SWEEP.replace("EAGLE3}", "EAGLE3, tp: 2}").replace(", stages: []", "")
    file.write_text(text.replace("3]}", "3], env: {NCCL_PROTO: [unset, LL]}}"))
    plan = json.loads(invoke("plan", file, "--json").stdout)
    assert plan["engine"] == "table"
    assert plan["memory"] is None
    assert "answers come from a table" in plan["notes"]
    assert any("the engine table cannot time all-reduces" in each for each in plan["notes"])
    assert isinstance(make_engine(load_sweep(file).sweep), TableEngine)
    with pytest.raises(UserError, match="the engine table cannot time all-reduces"):
        invoke("comm", file)


def test_engine_without_registration_is_refused(file: Path) -> None:
    with pytest.raises(UserError, match="'table' does not fit, write sglang"):
        load_sweep(file)
    assert ENGINES.keys() == ENGINE_TRAITS.keys()
