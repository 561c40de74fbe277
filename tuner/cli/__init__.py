"""`specbench`: arguments, printing and exit codes. Every command's work is done in lower rooms.

Exit codes: 0 done, also when nothing beats the baseline; 1 the engine or every trial failed; 2 bad
input; 3 a regression was found (compare-report); 4 the runs are not comparable; 130 interrupted.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence

import click

from tuner.cli.commands import specbench
from tuner.cli.terminal import lost_output, outlive_streams
from tuner.core.errors import EngineFailure, UserError
from tuner.core.secrets import learn_environment

INTERRUPTED = 130
GARBAGE_THRESHOLD = 100_000
"""Records of a ledger are not garbage. Python's own 700 doubles the time to read 10,000 trials."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    learn_environment(os.environ)
    gc.set_threshold(GARBAGE_THRESHOLD)
    outlive_streams()
    code = _run(argv)
    if (reason := lost_output()) is not None:
        click.echo(f"specbench: the output could not be written: {reason}", err=True)
        code = code or 1
    sys.exit(code)


def _run(argv: Sequence[str] | None) -> int:
    try:
        code = specbench.main(args=argv, prog_name="specbench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UserError as error:
        click.echo(f"specbench: {error}", err=True)
        return error.exit_code
    except EngineFailure as error:
        click.echo(f"specbench: {error}", err=True)
        if error.log_tail:
            click.echo(f"The end of the server's log:\n{error.log_tail}", err=True)
        return 1
    except OSError as error:  # a full disk, a folder without write permission
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"specbench: {place}{error.strerror or error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left to do takes seconds
        click.echo("specbench: interrupted", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0
