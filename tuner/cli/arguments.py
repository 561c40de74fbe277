"""The types of the command line's arguments."""

from dataclasses import dataclass
from pathlib import Path

import click

SWEEP_FILE = click.Path(path_type=Path)
"""Not checked here: the door's sentence is the better one."""

RUN = click.Path(path_type=Path)
"""A run folder, results/NAME/RUN-ID."""


@dataclass(frozen=True)
class TrialCount:
    """`--trials 20` is a number of candidates, `--trials +20` so many more."""

    number: int
    more: bool


class Trials(click.ParamType["TrialCount"]):
    """Reads a TrialCount."""

    name = "N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TrialCount:
        """A TrialCount, or click's own refusal with exit code 2."""
        text = str(value)
        digits = text.removeprefix("+")
        if not (digits.isascii() and digits.isdigit()) or not 0 < int(digits) <= 1_000_000:
            self.fail(
                f"'{text}' is no number of trials, write 20, or +20 with --resume", param, ctx
            )
        return TrialCount(int(digits), more=text.startswith("+"))
