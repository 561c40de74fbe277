"""`on_finish`: a command of the user's at the end of a run."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
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
        process = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=2, env=environment, start_new_session=True
        )
    except OSError as error:
        _say(words, f"cannot be run: {error.strerror}")
        return
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        _say(words, f"has not ended in {LIMIT_S:g} s and was killed")
    except BaseException:  # Ctrl-C, SIGTERM
        _end(process)
        _say(words, "was killed: specbench was interrupted")
        raise
    else:
        if code:
            _say(words, f"ended with {code}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """With what it has started and not put into a session of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _say(words: Sequence[str], what: str) -> None:
    click.echo(f"specbench: on_finish: {words[0]} {what}", err=True)
