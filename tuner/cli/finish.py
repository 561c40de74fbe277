"""`on_finish`: a command of the user's at the end of a run."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

LIMIT_S = 60.0


def run_on_finish(words: Sequence[str], run: Path, outcome: str) -> None:
    """Run `words` without a shell, with SPECBENCH_RUN and SPECBENCH_OUTCOME; [] is no command.

    `outcome` is done, failed or interrupted. Its stdout goes to stderr. What goes wrong with it is
    said and changes nothing: the run is over.
    """
    if not words:
        return
    environment = {**os.environ, "SPECBENCH_RUN": str(run), "SPECBENCH_OUTCOME": outcome}
    try:
        code = subprocess.run(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=environment,
            timeout=LIMIT_S,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        _say(words, f"has not ended in {LIMIT_S:g} s and was killed")
    except OSError as error:
        _say(words, f"cannot be run: {error.strerror}")
    else:
        if code:
            _say(words, f"ended with {code}")


def _say(words: Sequence[str], what: str) -> None:
    click.echo(f"specbench: on_finish: {words[0]} {what}", err=True)
