"""report.md and report.html: the answer first, then what it rests on."""

import errno
import shlex
from pathlib import Path

import jinja2

from tuner.analysis.summary import RunSummary
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
from tuner.report.winner_files import again_command, launch_command, write_winner
from tuner.server.launch_script import launch_script


def write_report(summary: RunSummary) -> Path:
    """Write report.md, report.html, figures/, best.yaml, best.sh and adaptive.json into the folder.

    Returns the path of report.md. Works on an unfinished run too: it shows what is there. Raises
    UserError where the run's files cannot be read, or the folder cannot be written to.
    """
    try:
        return _written(summary)
    except OSError as error:
        path = summary.run.path
        right = "give a run folder that can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            again = f"specbench report {shlex.quote(str(path))}"
            right = f"free some space and write it with: {again}"
        message = f"this cannot be written: {error.strerror or error}, {right}"
        raise UserError(message, error.filename or path) from error


def _written(summary: RunSummary) -> Path:
    run, script = summary.run, _earlier_script(summary)
    if run.figures.is_symlink():  # of a stranger's folder: nothing is written elsewhere
        raise UserError("this is a link, make it a folder or remove it", run.figures)
    write_winner(summary)
    if script is not None:
        write_text(run.best_sh, script)
        run.best_sh.chmod(0o755)
    drawn = draw_figures(summary, run.figures)
    text = _template().render(
        title=escaped(summary.sweep.name) + (" (simulated)" if summary.simulated else ""),
        summary=summary,
        answer=answer(summary),
        answer_table=answer_table(summary),
        axis=axis(summary.levels),
        levels_table=levels_table(summary),
        adaptive=write_adaptive(summary),
        again=again_command(summary.run.best_yaml),
        launch=_launch(summary, script),
        metric=code(summary.metric),
        workload=sections.workload(summary),
        baselines=describe_baselines(summary),
        beside=describe_slot_interference(summary),
        interval_words=describe_intervals(summary),
        tables=top_tables(summary),
        figures=drawn,
        kinds=[*kind_tables(summary), *length_tables(summary)],
        cycles=cycle_section(summary),
        searched=search_table(summary),
        doubts=sections.doubts(summary),
        outliers=outliers(summary),
        failures=sections.failures(summary),
        left_out=sections.left_out(summary),
        alike=sections.alike(summary),
        memory=memory_table(run),
        cost=describe_cost(summary),
        facts=sections.facts(summary),
        inherited=_inherited_nccl(summary),
        command=block(sections.command(summary), "bash"),
    )
    write_text(run.report_html, _page(summary, text, drawn))
    write_text(run.report_md, text)
    return run.report_md


def _inherited_nccl(summary: RunSummary) -> list[str]:
    """Return the NCCL variables of the environment that specbench was started in."""
    found = summary.run.machine().get("env", {})
    return [f"{name}={value}" for name, value in sorted(found.items()) if name.startswith("NCCL_")]


def _page(summary: RunSummary, text: str, drawn: list[Drawn]) -> str:
    """report.html: the Markdown `text` with its figures in it."""
    run = summary.run
    title = f"{summary.sweep.name}/{run.id}" + (" (simulated)" if summary.simulated else "")
    figures = {
        each.svg: inline_svg((run.path / each.svg).read_text("utf-8"), each.name, each.alt)
        for each in drawn
    }
    return page(text, title, figures)


def _earlier_script(summary: RunSummary) -> str | None:
    """best.sh as it is, where it launches the winner and no record has that launch's command.

    Older ledgers keep no commands. To spell one anew would put this machine's interpreter and this
    specbench's pins in the place of what was measured.
    """
    winner = summary.winner
    if winner is None or winner.record.command is not None or not summary.run.best_sh.exists():
        return None
    try:
        script = read_bytes(summary.run.best_sh).decode("utf-8")
    except UnicodeDecodeError:  # nothing that specbench wrote
        return None
    return script if f"# {winner.label}, from run " in script else None


def _launch(summary: RunSummary, script: str | None) -> str | None:
    """The winner's launch as the report shows it: `script`, or the recorded command as one."""
    if script is None:
        command = launch_command(summary)
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
    environment.filters.update(code=code, escaped=escaped)
    return environment.get_template("report.md.j2")
