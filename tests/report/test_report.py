"""The report says what to run, by how much and how surely, and never makes a number up."""

import html
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.factories import SIMULATED, SWEEP, Trial, make_point, make_run
from tuner.analysis.summary import summarise_run
from tuner.cli.result import _answer
from tuner.config.loader import load_sweep
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.metrics.samples_file import read_samples
from tuner.report.answer import answer
from tuner.report.report import write_report
from tuner.runs.records import DecisionLine
from tuner.runs.run import Run

LL = (("NCCL_PROTO", "LL"),)
USUAL = [
    Trial(None, 90.0),
    Trial(make_point(1), 88.0),
    Trial(make_point(2, env=LL), 99.0),
    Trial(make_point(3), 81.0),
]


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take nearly all of a report's time; tests that need them ask for `drawn`."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("tuner.report.report.draw_figures", lambda summary, folder: [])


@pytest.fixture
def drawn() -> None:
    """The report of this test has its figures."""


def report_of(run: Run) -> str:
    return write_report(summarise_run(run)).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The usual run with its report; tests only read it."""
    run = make_run(tmp_path_factory.mktemp("usual"), USUAL)
    write_report(summarise_run(run))
    return run


@pytest.fixture(scope="module")
def report(usual: Run) -> str:
    return usual.report_md.read_text(encoding="utf-8")


def row_of(report: str, start: str) -> list[str]:
    """The cells of the first table row of `## Measured` whose first cell begins with `start`."""
    measured = report.split("## Measured")[1]
    line = next(line for line in measured.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_answer_names_the_fastest_point_and_its_gain_with_an_interval(report: str) -> None:
    # 101 tokens in 0.05 s + 100 / 99 s, against 0.05 s + 100 / 90 s.
    gain = (0.05 + 100 / 90) / (0.05 + 100 / 99)
    assert (
        f"**Run `2 steps, 3 tokens, NCCL_PROTO=LL`.** It is {100 * (gain - 1):.1f} % faster"
        in report
    )
    assert re.search(r"95 % interval \+\d\.\d % to \+\d+\.\d %", report)
    assert "the interval lies above 1" in report


def test_table_shows_the_ledgers_figures(usual: Run, report: str) -> None:
    cells = row_of(report, "`2 steps, 3 tokens, NCCL_PROTO=LL`")
    figures = usual.ledger().records[2].metrics["1"]
    assert cells[1].startswith(f"{101 / (0.05 + 100 / 99):.1f} (")
    assert cells[2] == "99.0"
    assert cells[3].startswith(f"{figures['speedup']:.3f} ({figures['speedup_low']:.3f} to ")
    # 50 verifies accept 25 and 12 drafts at the two positions.
    assert cells[4:6] == ["1.74", "50.0 %"]
    assert cells[6] == "50.0"
    assert cells[9] == "2"


def test_baseline_and_reference_stand_beside_each_other(report: str) -> None:
    """A figure from elsewhere that looks measured would be a lie."""
    assert row_of(report, "**no speculation**")[2] == "90.0"
    reference = row_of(report, "no speculation, reference (not measured)")
    assert reference[1] == "88.8"
    assert set(reference[2:]) == {"-"}


def test_baseline_that_wins_is_the_answer_and_the_launch(tmp_path: Path) -> None:
    """Otherwise a user serves with speculation that slows the model down."""
    run = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(2), 70.0), Trial(make_point(1), 80.0)]
    )
    report = report_of(run)
    assert "**No speculation is fastest here.**" in report
    assert "`1 step, 2 tokens`, is 10." in report
    assert "--speculative" not in run.best_sh.read_text()
    text = run.best_yaml.read_text()
    assert "# No speculation was faster" in text
    assert load_sweep(run.best_yaml).space.points == (make_point(1),)


def test_difference_within_noise_is_not_called_sure(tmp_path: Path) -> None:
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 90.5)], noise=0.05)
    report = report_of(run)
    assert "the interval includes 1, so no difference has been shown" in report
    first = next(line for line in report.splitlines() if line.startswith("**"))
    assert first.startswith("**No candidate is shown to be faster yet.** The best: `2 steps, 3 ")
    assert "0.5 % faster (95 % interval -" in first


def test_a_gain_at_one_level_and_a_loss_at_another_are_told_apart(tmp_path: Path) -> None:
    """Both intervals exclude 1; only one of them is a reason to deploy."""
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8]")
    run = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0)], sweep=sweep, levels=(1, 8)
    )
    record = run.ledger().candidates[0]
    slower = {"speedup": 0.94, "speedup_low": 0.92, "speedup_high": 0.96}
    metrics = {**record.metrics, "8": {**record.metrics["8"], **slower}}
    lines = run.trials_file.read_text().splitlines()
    lines[1] = record.model_copy(update={"metrics": metrics}).model_dump_json()
    run.trials_file.write_text("\n".join(lines) + "\n")
    report = report_of(run)
    assert "at concurrency 1 the interval lies above 1, so it is faster" in report
    assert "at concurrency 8 the interval lies below 1, so it is slower" in report


def test_what_was_not_measured_is_a_dash(tmp_path: Path) -> None:
    """0 ms TTFT or 0 % acceptance would be read as a measurement."""
    bare = {"output_tok_s": 95.0, "accept_length": None, "ttft_ms_p50": None, "speedup": None}
    run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), metrics={"1": bare})])
    report = report_of(run)
    assert row_of(report, "`2 steps")[1:9] == ["95.0"] + ["-"] * 7
    assert "No answer" in report
    assert " 0.0 " not in report.split("## Where")[0]


def test_failures_are_listed_with_label_and_message(tmp_path: Path) -> None:
    trials = [
        *USUAL,
        Trial(make_point(4), failure="OOM", message="CUDA out of memory", outcome="infeasible"),
        Trial(make_point(5), failure="CRASH", message="exit status -9", outcome="failed"),
    ]
    run = make_run(tmp_path, trials)
    run.log_file(4).write_text("log")
    failures = report_of(run).split("## Failures")[1]
    oom = "| `OOM` | 4 | `4 steps, 5 tokens` | CUDA out of memory | `logs/0004.log` |"
    assert oom in failures
    assert "| `CRASH` | 5 | `5 steps, 6 tokens` | exit status -9 | - |" in failures


def test_failed_baseline_is_told_instead_of_an_answer(tmp_path: Path, drawn: None) -> None:
    run = make_run(tmp_path, [Trial(None, failure="OOM", message="no room", outcome="infeasible")])
    report = report_of(run)
    assert "**No answer.** The server without speculation failed" in report
    assert "`OOM`: no room" in report
    assert not run.best_sh.exists()
    assert not run.best_yaml.exists()
    assert not run.figures.exists()


def test_run_without_any_trial_has_a_report(tmp_path: Path) -> None:
    """A run that was interrupted in its first launch must not crash the report."""
    assert "**No answer yet.**" in report_of(make_run(tmp_path, []))


def test_all_candidates_failed(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(2), failure="HANG", outcome="failed")]
    )
    assert "No candidate gave numbers" in report_of(run)
    assert not run.best_sh.exists()


def test_energy_is_a_column_where_nvml_told_it(tmp_path: Path, report: str) -> None:
    """A configuration that is as fast and takes more power is not as good."""
    trials = [
        Trial(None, 90.0, watts=400.0),
        Trial(make_point(1), 95.0, watts=500.0),
        Trial(make_point(2), 99.0),
    ]
    run = make_run(tmp_path, trials)
    told = report_of(run)
    tokens = run.records()[0].metrics["1"]["completion_tokens"]
    windows = len(read_samples(run.samples_file(0))[1])
    per_token = f"{windows * 10 * 400.0 / tokens:.3f}"
    header = row_of(told, "configuration")
    place = header.index("energy, J/token")
    cells = [row_of(told, start)[place] for start in ("**no spec", "`1 step", "`2 steps")]
    assert cells == [per_token, f"{float(per_token) * 1.25:.3f}", "-"]
    assert "Energy is what NVML counts for the boards" in told
    assert "energy" not in report.lower()


def test_a_doubt_is_told_with_its_remedy(tmp_path: Path) -> None:
    """A doubt alone leaves the user where they were."""
    doubt = {"check": "GPU clock", "level": "doubt", "message": "1600 MHz", "remedy": "cool it"}
    old = {"check": "noisy", "level": "doubt", "message": "wide: raise measure.repeats"}
    report = report_of(make_run(tmp_path, [Trial(None, 90.0, checks=[doubt, old])]))
    assert "`GPU clock`, trial 0: 1600 MHz; cool it" in report
    assert "`noisy`, trial 0: wide: raise measure.repeats" in report


TAGS = {"h1", "h2", "p", "strong", "ul", "li", "code", "pre", "img"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
HOSTILE = "a|b<script>alert(1)</script>`x`*y*"


def test_user_text_stays_text_in_markdown(tmp_path: Path, drawn: None) -> None:
    """A model name with a pipe would shift a table, one with HTML would run in a browser."""
    sweep = SWEEP.replace("example/target", f"'{HOSTILE}'")
    doubt = {"check": "a|b", "level": "note", "message": "see <img src=x> | `rm` [x](y)"}
    trials = [
        Trial(None, 90.0, checks=[doubt]),
        Trial(make_point(2, env=(("NCCL_PROTO", "a|b```<i>"),)), 99.0),
        Trial(make_point(3), failure="CRASH", message="1 | 2 <b> ```", outcome="failed"),
    ]
    report = report_of(make_run(tmp_path, trials, sweep=sweep))
    page = MarkdownIt("commonmark").enable("table").render(report)
    tags = set(re.findall(r"<([a-z0-9]+)", page))
    assert tags <= TAGS
    assert page.count("<img") == 6
    assert html.escape(HOSTILE) in page
    for table in re.findall(r"<table>.*?</table>", page, flags=re.DOTALL):
        rows = re.findall(r"<tr>.*?</tr>", table, flags=re.DOTALL)
        assert len({len(re.findall(r"<t[hd]", row)) for row in rows}) == 1, table


def test_launch_block_cannot_be_closed_by_user_text(tmp_path: Path) -> None:
    flags = 'server: {flags: {chat-template: "x\\n```\\n# owned"}}'
    sweep = SWEEP.replace("space:\n", f"{flags}\nspace:\n")
    report = report_of(make_run(tmp_path, USUAL, sweep=sweep))
    assert "````bash" in report


def test_simulated_run_says_so_in_title_and_first_line(tmp_path: Path, drawn: None) -> None:
    run = make_run(tmp_path, USUAL, sweep=SIMULATED)
    lines = report_of(run).splitlines()
    assert lines[0] == "# trial (simulated)"
    assert lines[2].startswith("> **Simulated.**")
    assert "none was measured on hardware" in lines[2]
    assert "of model time" in "\n".join(lines)
    assert "(simulated)" in (run.figures / "tok_s_by_steps.svg").read_text()


def test_inherited_nccl_variables_are_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They change every launch and are in nobody's sweep file."""
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    report = report_of(make_run(tmp_path, USUAL))
    assert "**Inherited variables.** `NCCL_P2P_DISABLE=1`" in report


def test_two_engine_versions_in_one_run_are_a_doubt(tmp_path: Path) -> None:
    report = report_of(make_run(tmp_path, [*USUAL, Trial(make_point(4), 80.0, version="0.5.18")]))
    assert "the engine changed during the run: `0.5.17`, `0.5.18`" in report


def test_left_out_combinations_have_their_reason(tmp_path: Path) -> None:
    sweep = SWEEP.replace(
        "draft_tp:", "eagle_topk: [1, 2]\n  num_draft_tokens: [2, 3]\n  draft_tp:"
    )
    left_out = report_of(make_run(tmp_path, USUAL, sweep=sweep)).split("## Left out")[1]
    assert "num_draft_tokens is num_steps + 1 | the same as another |" in left_out


def test_report_repeats_the_command_of_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, USUAL, settings={"engine": "simulated", "extended_to": 26})
    file = run.path / "sweep.yaml"
    assert f"specbench sweep {file} --engine simulated --trials 26\n" in report_of(run)
    usual = make_run(tmp_path / "usual", USUAL)
    report = report_of(usual)
    assert f"specbench sweep {usual.path / 'sweep.yaml'}\n" in report, "as the file says"
    assert f"again with `specbench sweep {usual.best_yaml}`:" in report


def test_several_concurrencies_have_a_table_each(tmp_path: Path) -> None:
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 8]")
    report = report_of(make_run(tmp_path, USUAL, sweep=sweep, levels=(1, 8)))
    assert "(output_tok_s, geometric mean of concurrency 1, 8)" in report
    assert "### Concurrency 8" in report
    assert report.count("reference (not measured)") == 1


def test_report_is_the_same_when_written_again(usual: Run, drawn: None) -> None:
    """Otherwise a committed run changes with every `specbench report`."""
    files = [f for f in usual.path.rglob("*") if f.is_file()]
    first = {f: f.read_bytes() for f in files}
    write_report(summarise_run(usual))
    assert {f: f.read_bytes() for f in files} == first


def test_links_in_the_report_lead_to_files(usual: Run, report: str) -> None:
    links = re.findall(r"!\[.*?\]\((.*?)\)", report)
    assert len(links) == 6
    assert all((usual.path / link).is_file() for link in links)


def test_endpoint_has_a_report_and_no_launch(tmp_path: Path) -> None:
    """A running server has neither a baseline nor a command."""
    sweep = SWEEP.replace(
        "{kind: sglang, python: /opt/sglang/bin/python}",
        "{kind: endpoint, url: 'http://127.0.0.1:1'}",
    )
    run = make_run(tmp_path, [Trial(None, 90.0, role="candidate")], sweep=sweep)
    report = report_of(run)
    assert "A measurement of a running server" in report
    assert row_of(report, "`the server as it is`")[2] == "90.0"
    assert not run.best_sh.exists()


def test_an_endpoint_that_is_simulated_is_no_measurement_of_hardware(tmp_path: Path) -> None:
    """`specbench simulate` answers like any server, and its figures are a model's."""
    endpoint = "{kind: endpoint, url: 'http://127.0.0.1:1'}"
    sweep = SWEEP.replace("{kind: sglang, python: /opt/sglang/bin/python}", endpoint)
    trial = Trial(None, 90.0, role="candidate", engine="simulated")
    report = report_of(make_run(tmp_path, [trial], sweep=sweep))
    assert report.startswith("# trial (simulated)\n")
    assert "> **Simulated.** The server said that it is a simulated one" in report
    assert "**A measurement of a simulated server.**" in report
    assert "running server" not in report
    assert "model time" not in report  # attaching to it took real seconds


@pytest.mark.parametrize("name", ["report.md", "best.yaml", "best.sh", "figures"])
def test_a_place_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, name: str, drawn: None
) -> None:
    run = make_run(tmp_path, USUAL)
    place = run.path / name
    if name == "figures":
        place.write_text("")
    else:
        place.mkdir()
    with pytest.raises(UserError, match=r"cannot be written: .*, give a run folder") as caught:
        write_report(summarise_run(run))
    assert str(caught.value).startswith(str(place))


class TestEarlierScript:
    """An older ledger has no commands: best.sh is all that remembers what was launched."""

    def test_it_stays_as_it_is(self, tmp_path: Path) -> None:
        run = make_run(tmp_path, USUAL)
        write_report(summarise_run(run))
        before = run.best_sh.read_text().replace("/opt/sglang/bin/python", "/elsewhere/python")
        run.best_sh.write_text(before)
        assert "exec /elsewhere/python" in report_of(run)
        assert "/opt/sglang" not in run.report_md.read_text().split("## ")[0]
        assert run.best_sh.read_text() == before

    def test_another_winners_script_is_written_anew(self, tmp_path: Path) -> None:
        run = make_run(tmp_path, USUAL)
        write_report(summarise_run(run))
        run.best_sh.write_text(run.best_sh.read_text().replace("# 2 steps", "# 4 steps"))
        write_report(summarise_run(run))
        assert "# 2 steps" in run.best_sh.read_text()

    def test_a_recorded_command_is_what_it_launches(self, tmp_path: Path) -> None:
        command = {"argv": ["/recorded/python", "--port", "PORT"], "env": {}, "unset": []}
        trials = [USUAL[0], replace(USUAL[2], command=command)]
        run = make_run(tmp_path, trials)
        write_report(summarise_run(run))
        run.best_sh.write_text(run.best_sh.read_text().replace("/recorded", "/edited"))
        assert "exec /recorded/python" in report_of(run)
        assert "exec /recorded/python" in run.best_sh.read_text()


class TestWinner:
    def test_best_yaml_is_a_sweep_of_the_winner_alone(self, tmp_path: Path) -> None:
        tree = Point(4, 2, 8, 1, (), (("disable-custom-all-reduce", True),))
        sweep = SWEEP.replace(
            "draft_tp:", "flags: {disable-custom-all-reduce: [false, true]}\n  draft_tp:"
        )
        run = make_run(tmp_path, [*USUAL, Trial(tree, 120.0)], sweep=sweep)
        write_report(summarise_run(run))
        loaded = load_sweep(run.best_yaml)
        assert loaded.space.points == (tree,)
        assert loaded.sweep.space.env == {"NCCL_PROTO": ["unset"]}
        before = run.sweep()
        for part in ("name", "engine", "model", "server", "baseline", "workload", "measure"):
            assert getattr(loaded.sweep, part) == getattr(before, part)

    def test_best_sh_launches_the_winner_with_its_environment(self, tmp_path: Path) -> None:
        """What the user starts in production must be what was measured."""
        sweep = SWEEP.replace("example/target", "'my model; $(touch owned)'")
        run = make_run(tmp_path, USUAL, sweep=sweep)
        write_report(summarise_run(run))
        script = run.best_sh.read_text()
        assert run.best_sh.stat().st_mode & 0o111
        subprocess.run(["bash", "-n", run.best_sh], check=True)
        said = script.replace("exec /opt/sglang/bin/python", 'printf "%s\\n" "$NCCL_PROTO"')
        done = subprocess.run(
            ["bash", "-c", said],
            env={"PATH": "/usr/bin:/bin", "PORT": "31000", "NCCL_PROTO": "Simple"},
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        words = done.stdout.splitlines()
        assert words[:3] == ["LL", "-m", "sglang.launch_server"]
        assert words[words.index("--model-path") + 1] == "my model; $(touch owned)"
        assert words[words.index("--port") + 1] == "31000"
        assert words[words.index("--speculative-num-steps") + 1] == "2"
        assert "--served-model-name" not in words

    def test_best_sh_has_a_default_port_and_unsets_what_the_winner_leaves_alone(
        self, tmp_path: Path
    ) -> None:
        run = make_run(tmp_path, [Trial(None, 90.0), Trial(make_point(2), 99.0)])
        write_report(summarise_run(run))
        said = run.best_sh.read_text().replace(
            "exec /opt/sglang/bin/python", 'printf "%s\\n" "${NCCL_PROTO-gone}"'
        )
        done = subprocess.run(
            ["bash", "-c", said],
            env={"PATH": "/usr/bin:/bin", "NCCL_PROTO": "Simple"},
            capture_output=True,
            text=True,
            check=True,
        )
        words = done.stdout.splitlines()
        assert words[0] == "gone"
        assert words[words.index("--port") + 1] == "30000"

    def test_best_yaml_can_be_swept_where_it_lies_also_with_own_prompts(
        self, tmp_path: Path
    ) -> None:
        """The prompts lie beside the sweep file, which is in another folder than best.yaml."""
        (tmp_path / "mine.jsonl").write_text('{"prompt": "mine"}\n')
        sweep = SWEEP.replace("workload: {", "workload: {prompts: mine.jsonl, ")
        run = make_run(tmp_path, USUAL, sweep=sweep, settings={"beside": str(tmp_path)})
        write_report(summarise_run(run))
        (prompt,) = load_sweep(run.best_yaml).prompts
        assert prompt.text == "mine"
        assert f"# Needs {tmp_path}/mine.jsonl" in run.best_yaml.read_text()

    def test_own_prompts_of_an_unknown_folder_are_named_in_best_yaml(self, tmp_path: Path) -> None:
        sweep = SWEEP.replace("workload: {", "workload: {prompts: mine.jsonl, ")
        run = make_run(tmp_path, USUAL, sweep=sweep)
        write_report(summarise_run(run))
        assert "# Needs mine.jsonl beside this file" in run.best_yaml.read_text()


def test_a_choice_that_is_not_the_highest_figure_is_explained(tmp_path: Path) -> None:
    """Otherwise the report would recommend what its own table puts second."""
    run = make_run(
        tmp_path, [Trial(None, 90.0), Trial(make_point(2), 110.0), Trial(make_point(3), 112.0)]
    )
    again = run.ledger().candidates[0]
    reason = DecisionLine(stage="confirm", why="fastest by all measurements")
    with run.locked():
        trial = run.ledger().next_trial
        run.append(again.model_copy(update={"role": "confirm", "trial": trial, "decision": reason}))
    words = "\n".join(answer(summarise_run(run)))
    assert words.startswith(f"**Run `{make_point(2).label()}`.**")
    assert f"`{make_point(3).label()}` has a higher figure (" in words
    assert "asks for more: more draft tokens. By the measurements of 2 configurations" in words
    said = words.split("its two launches measured ")[1].split("\n")[0]
    assert re.fullmatch(
        r"1\.\d{3} and 1\.\d{3} \(together 1\.\d{3}\), against 1\.\d{3} in one launch of "
        rf"`{make_point(3).label()}`\.",
        said,
    ), said


def test_report_screen_and_json_have_one_list_of_what_is_alike(tmp_path: Path) -> None:
    """The report lacked two candidates that were higher, the screen said `3 alike`."""
    trials = [
        Trial(None, 90.0),
        Trial(make_point(2), 110.0),
        Trial(make_point(3), 110.2),
        Trial(make_point(5), 99),
    ]
    run = make_run(tmp_path, trials)
    result = summarise_run(run)
    assert result.to_json()["not_told_apart"] == [make_point(3).to_json()]
    assert f"Not told apart from it by these measurements: `{make_point(3).label()}`." in answer(
        summarise_run(run)
    )
    assert f"not told apart from it: {make_point(3).label()}" in _answer(result).splitlines()


@pytest.mark.parametrize(
    ("noise", "shorter", "why"),
    [
        (0.05, 102.0, "but its figure is 6.1 % lower, and more than 2 % is not given up for that."),
        (0.05, 108.5, None),
    ],
)
def test_a_simpler_one_that_is_alike_and_not_taken_has_a_reason(
    tmp_path: Path, noise: float, shorter: float, why: str | None
) -> None:
    """Of equals the simplest is recommended, says the page beside: why is 2 steps not?"""
    trials = [Trial(None, 60.0), Trial(make_point(3), 109.0), Trial(make_point(2), shorter)]
    summary = summarise_run(make_run(tmp_path, trials, noise=noise))
    words = "\n".join(answer(summary))
    if why is None:
        assert words.startswith(f"**Run `{make_point(2).label()}`")
        return
    assert f"Not told apart from it by these measurements: `{make_point(2).label()}`. " in words
    assert f"`{make_point(2).label()}` would ask for less, {why}" in words


def test_a_simpler_one_whose_launch_was_lucky_has_a_reason(tmp_path: Path) -> None:
    """Its figure is 0.5 % below the answer's, and of equals the simplest is recommended."""
    trials = [Trial(None, 60.0), Trial(make_point(3), 109.0), Trial(make_point(2), 108.5)]
    run = make_run(tmp_path, [*trials, Trial(make_point(3), 109.0, role="confirm")], noise=0.05)
    *lines, last = run.trials_file.read_text().splitlines()
    told = json.dumps({**json.loads(last), "smoothed": {"1": 1.80, "2": 1.71}})
    run.trials_file.write_text("".join(f"{line}\n" for line in (*lines, told)))
    words = "\n".join(answer(summarise_run(Run.open(run.path))))
    assert words.startswith(f"**Run `{make_point(3).label()}`")
    assert (
        f"`{make_point(2).label()}` would ask for less, but by the measurements of 2 conf" in words
    )
    assert "together it is 5.0 % slower, and more than 1 % by these is not given up" in words


def test_a_simpler_one_that_is_slower_at_a_level_is_said_to_be(tmp_path: Path) -> None:
    """Alike over both levels, and for who serves one request surely slower."""

    def at_both(one: float, four: float) -> dict[str, dict[str, float]]:
        return {
            level: {"speedup": r, "speedup_low": r * 0.99, "speedup_high": r * 1.01,
                    "output_tok_s": 90 * r}
            for level, r in (("1", one), ("4", four))
        }  # fmt: skip

    base = {"1": {"output_tok_s": 90.0}, "4": {"output_tok_s": 90.0}}
    trials = [
        Trial(None, metrics=base),
        Trial(make_point(3), metrics=at_both(1.40, 1.20)),
        Trial(make_point(2), metrics=at_both(1.34, 1.248)),
    ]
    sweep = SWEEP.replace("concurrency: [1]", "concurrency: [1, 4]")
    words = "\n".join(answer(summarise_run(make_run(tmp_path, trials, sweep=sweep, levels=(1, 4)))))
    assert "2 steps, 3 tokens` would ask for less, but is 4.3 % slower" in words
    assert "at concurrency 1." in words
