"""`specbench draft-tp`: the plug-in outside of a sweep."""

import os
import shlex
from pathlib import Path

import click

from tuner.core.errors import UserError


@click.group("draft-tp")
def draft_tp() -> None:
    """Run the draft on its own tensor-parallel size in production."""


@draft_tp.command()
@click.option("--tp", type=click.IntRange(min=1), required=True, help="The draft's size.")
@click.option("--sglang", "version", metavar="VERSION", help="The server's release.")
def env(tp: int, version: str | None) -> None:
    """Print the environment for SGLang: eval "$(specbench draft-tp env --tp 1)".

    Without --sglang it is that of 0.5.11 and later.
    """
    from tuner.config.dimensions import DRAFT_TP
    from tuner.sglang.draft_tp import python_path
    from tuner.sglang.releases import latest, parse_version

    release = parse_version(version, "--sglang") if version else latest()
    path = shlex.quote(python_path(release, None))
    click.echo(f"export {DRAFT_TP.variable}={tp}")
    click.echo(f'export PYTHONPATH={path}"${{PYTHONPATH:+{os.pathsep}$PYTHONPATH}}"')


@draft_tp.command()
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder that holds sglang/, such as site-packages or a checkout's python/.",
)
@click.option("--python", help="Whose SGLang, without --source; default: this interpreter.")
def diff(source: Path | None, python: str | None) -> None:
    """Print the plug-in as a diff of your SGLang; git apply -p1 applies it there."""
    from tuner.sglang.draft_tp import draft_tp_diff

    click.echo(draft_tp_diff(source or _installed(python)), nl=False)


def _installed(python: str | None) -> Path:
    """Where an interpreter's SGLang lies. Raises UserError where it has none."""
    from tuner.sglang.interpreter import folder_of_sglang
    from tuner.sglang.tokenizer import default_python

    chosen = default_python(python)
    folder = folder_of_sglang(chosen)
    if folder is None:
        message = f"{chosen} shows no SGLang, give --source DIR or the --python that has it"
        raise UserError(message)
    return folder
