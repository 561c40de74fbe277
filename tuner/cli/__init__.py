"""`specbench`: arguments, printing and exit codes. Every command's work is done in lower rooms.

Exit codes: 0 done, also when nothing beats the baseline; 1 the engine or every trial failed; 2 bad
input; 3 a regression was found (compare-report); 4 the runs are not comparable; 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence

import click

from tuner.cli.commands import specbench
from tuner.errors import EngineFailure, UserError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    try:
        code = specbench.main(args=argv, prog_name="specbench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        click.echo(f"specbench: {error}", err=True)
        sys.exit(error.exit_code)
    except EngineFailure as error:
        click.echo(f"specbench: {error}", err=True)
        if error.log_tail:
            click.echo(f"The end of the server's log:\n{error.log_tail}", err=True)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("specbench: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # `specbench plan FILE | head` closes our output: nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)
