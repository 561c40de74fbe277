"""report.md: the answer first, then what it rests on."""

from pathlib import Path

import jinja2

from tuner.ledger.run import Run
from tuner.report import sections
from tuner.report.answer import answer, answer_table
from tuner.report.figures import draw_figures
from tuner.report.findings import Findings
from tuner.report.text import block, code, escaped
from tuner.report.winner import launch_command, launch_script, write_winner


def write_report(run: Run) -> Path:
    """Write report.md, figures/, best.yaml and best.sh into the run folder.

    Returns the path of report.md. Works on an unfinished run too: it shows what is there. Raises
    UserError where the run's files cannot be read.
    """
    findings = Findings(run)
    write_winner(findings)
    text = _template().render(
        title=escaped(findings.sweep.name) + (" (simulated)" if findings.simulated else ""),
        simulated=sections.simulated_words(findings),
        artificial=sections.artificial_words(findings),
        answer=answer(findings),
        answer_table=answer_table(findings),
        launch_words=sections.launch_words(findings),
        launch=_launch(findings),
        metric=code(findings.metric),
        workload=sections.workload(findings),
        tables=sections.top_tables(findings),
        figures=draw_figures(findings, run.figures),
        by_kind_words=sections.by_kind_words(findings),
        by_kind=sections.by_kind(findings),
        doubts=sections.doubts(findings),
        failures=sections.failures(findings),
        left_out=sections.left_out(findings),
        alike=sections.alike(findings),
        facts=sections.facts(findings),
        inherited=sections.inherited(findings),
        command=block(sections.command(findings), "bash"),
    )
    run.report_md.write_text(text, encoding="utf-8")
    return run.report_md


def _launch(findings: Findings) -> str | None:
    command = launch_command(findings)
    if command is None:
        return None
    script = launch_script(command).split("\n", 2)[2]  # without the first line and set -eu
    return block(script, "bash")


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
