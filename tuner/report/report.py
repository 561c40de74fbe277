"""report.md and report.html: the answer first, then what it rests on."""

import errno
import shlex
from pathlib import Path

import jinja2

from tuner.analysis.run_results import RunView
from tuner.config.load_level import axis
from tuner.core.errors import UserError
from tuner.core.files import read_bytes, write_text
from tuner.core.markdown import block, code, escaped
from tuner.report import sections
from tuner.report.answer import answer, answer_table
from tuner.report.baselines import (
    describe_baselines,
    describe_intervals,
    describe_slot_interference,
)
from tuner.report.best_per_level import levels_table, write_adaptive
from tuner.report.cycle import cycle_section
from tuner.report.figures.figures import draw_figures
from tuner.report.figures.style import Drawn
from tuner.report.html import inline_svg, page
from tuner.report.memory import memory_table
from tuner.report.prompt_categories import kind_tables, length_tables
from tuner.report.results_table import top_tables
from tuner.report.search_history import search_table
from tuner.report.sections import describe_cost, outliers
from tuner.report.winner_files import launch_command, write_winner
from tuner.runs.run import Run
from tuner.server.launch_script import launch_script


def write_report(run: Run) -> Path:
    """Write report.md, report.html, figures/, best.yaml, best.sh and adaptive.json into the folder.

    Returns the path of report.md. Works on an unfinished run too: it shows what is there. Raises
    UserError where the run's files cannot be read, or the folder cannot be written to.
    """
    findings = RunView(run)
    try:
        return _written(findings)
    except OSError as error:
        right = "give a run folder that can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            right = (
                f"free some space and write it with: specbench report {shlex.quote(str(run.path))}"
            )
        message = f"this cannot be written: {error.strerror or error}, {right}"
        raise UserError(message, error.filename or run.path) from error


def _written(findings: RunView) -> Path:
    run, script = findings.run, _earlier_script(findings)
    if run.figures.is_symlink():  # of a stranger's folder: nothing is written elsewhere
        raise UserError("this is a link, make it a folder or remove it", run.figures)
    write_winner(findings)
    if script is not None:
        write_text(run.best_sh, script)
        run.best_sh.chmod(0o755)
    drawn = draw_figures(findings, run.figures)
    text = _template().render(
        title=escaped(findings.sweep.name) + (" (simulated)" if findings.simulated else ""),
        simulated=sections.describe_simulation(findings),
        artificial=sections.describe_synthetic(findings),
        answer=answer(findings),
        answer_table=answer_table(findings),
        axis=axis(findings.levels),
        levels_table=levels_table(findings),
        adaptive=write_adaptive(findings),
        launch_words=sections.describe_launch(findings),
        launch=_launch(findings, script),
        metric=code(findings.metric),
        workload=sections.workload(findings),
        baselines=describe_baselines(findings),
        beside=describe_slot_interference(findings),
        interval_words=describe_intervals(findings),
        tables=top_tables(findings),
        figures=drawn,
        kinds=[*kind_tables(findings), *length_tables(findings)],
        cycles=cycle_section(findings),
        searched=search_table(findings),
        doubts=sections.doubts(findings),
        outliers=outliers(findings),
        failures=sections.failures(findings),
        left_out=sections.left_out(findings),
        alike=sections.alike(findings),
        memory=memory_table(run),
        cost=describe_cost(findings),
        facts=sections.facts(findings),
        inherited=sections.inherited(findings),
        command=block(sections.command(findings), "bash"),
    )
    write_text(run.report_html, _page(findings, text, drawn))
    write_text(run.report_md, text)
    return run.report_md


def _page(findings: RunView, text: str, drawn: list[Drawn]) -> str:
    """report.html: the Markdown `text` with its figures in it."""
    run = findings.run
    title = f"{findings.sweep.name}/{run.id}" + (" (simulated)" if findings.simulated else "")
    figures = {
        each.svg: inline_svg((run.path / each.svg).read_text("utf-8"), each.name, each.alt)
        for each in drawn
    }
    return page(text, title, figures)


def _earlier_script(findings: RunView) -> str | None:
    """best.sh as it is, where it launches the winner and no record has that launch's command.

    Older ledgers keep no commands. To spell one anew would put this machine's interpreter and this
    specbench's pins in the place of what was measured.
    """
    winner = findings.winner
    if winner is None or winner.record.command is not None or not findings.run.best_sh.exists():
        return None
    try:
        script = read_bytes(findings.run.best_sh).decode("utf-8")
    except UnicodeDecodeError:  # nothing that specbench wrote
        return None
    return script if f"# {winner.label}, from run " in script else None


def _launch(findings: RunView, script: str | None) -> str | None:
    """The winner's launch as the report shows it: `script`, or the recorded command as one."""
    if script is None:
        command = launch_command(findings)
        script = None if command is None else launch_script(command)
    return None if script is None else block(script.partition("\nset -eu\n")[2], "bash")


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tuner.report"),
        autoescape=False,  # noqa: S701 - Markdown: text.escaped and text.code do it, cell by cell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.md.j2")
