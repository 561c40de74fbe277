"""NCCL settings that nothing reads: without a word the report would rank their noise."""

from pathlib import Path

from tests.factories import Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.report.report import write_report
from tuner.runs.run import Run

LL = (("NCCL_PROTO", "LL"),)
CUSTOM = (
    "server_args=ServerArgs(tp_size=4, device='cuda')\nAll Reduce config: symmetric_memory = 8\n"
)
NCCL = "server_args=ServerArgs(tp_size=4, device='cuda', disable_custom_all_reduce=True)\n"
SENTENCE = "NCCL settings had no effect on all-reduces"


def run_with(folder: Path, *logs: str) -> Run:
    """A baseline, a chain that leaves NCCL alone, and one with LL for each further log."""
    settings = [make_point(2), *(make_point(2 + index, env=LL) for index in range(len(logs) - 2))]
    run = make_run(folder, [Trial(None, 90.0), *(Trial(each, 100.0) for each in settings)])
    for number, text in enumerate(logs):
        run.log_file(number).write_text(text)
    return run


def report(run: Run) -> str:
    return write_report(summarise_run(run)).read_text()


def test_it_is_said_where_another_back_end_reduced(tmp_path: Path) -> None:
    text = report(run_with(tmp_path, CUSTOM, CUSTOM, CUSTOM, CUSTOM))
    assert f"{SENTENCE} here: the logs show custom all-reduce in 2 servers in place of NCCL" in text


def test_it_is_said_of_some_servers(tmp_path: Path) -> None:
    text = report(run_with(tmp_path, CUSTOM, CUSTOM, CUSTOM, NCCL))
    assert f"{SENTENCE} in some servers: of 2 that set them the logs show custom all-red" in text


def test_nothing_is_said_where_nccl_reduced_or_the_logs_are_silent(tmp_path: Path) -> None:
    assert SENTENCE not in report(run_with(tmp_path / "a", CUSTOM, CUSTOM, NCCL))
    assert SENTENCE not in report(run_with(tmp_path / "b", "", "", ""))
