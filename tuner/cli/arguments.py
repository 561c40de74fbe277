"""The types of the command line's arguments."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tuner.core.errors import UserError

if TYPE_CHECKING:
    from tuner.config.loader import LoadedSweep

SWEEP_FILE = click.Path(path_type=Path)
"""Not checked here: the door's sentence is the better one."""

RUN = click.Path(path_type=Path)
"""A run folder, results/NAME/RUN-ID."""

OUT_FILE = click.Path(path_type=Path, dir_okay=False)
"""Where something is written."""

AMBIGUOUS = 0.1
"""From here on a bare number is no share beyond doubt."""


@dataclass(frozen=True)
class TrialCount:
    """`--trials 20` is a number of candidates, `--trials +20` so many more."""

    number: int
    more: bool

    def of_new_run(self) -> int:
        """The number. Raises UserError for one that extends a run."""
        if self.more:
            raise UserError(
                f"--trials +{self.number} extends a run, add --resume RUN or write "
                f"--trials {self.number}"
            )
        return self.number


def unused_trials(loaded: "LoadedSweep") -> str | None:
    """Why this sweep does not ask how many trials are wanted; None where it does."""
    if not loaded.sweep.engine.launches_servers:
        return "an endpoint is measured once, --trials is not used"
    if loaded.sweep.search.sampler == "grid":
        return f"grid measures all {len(loaded.space.points):,} points, --trials is not used"
    return None


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


class DeadlineText(click.ParamType[str]):
    """Reads a text as `search.deadline` takes it."""

    name = "WHEN"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """The text, or click's own refusal with exit code 2."""
        from tuner.config.field_types import refused

        if (why := refused(str(value))) is not None:
            self.fail(why, param, ctx)
        return str(value)


class SlotCount(click.ParamType["int | Literal['auto']"]):
    """Reads `--slots`: `auto` or a number."""

    name = "N"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["auto"]:
        """A number from 1 to 256 or `auto`; or click's own refusal with exit code 2."""
        text = str(value)
        if text == "auto":
            return "auto"
        if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 256:
            self.fail(f"'{text}' is no number of slots, write auto, 1 or more", param, ctx)
        return int(text)


class LaunchTime(click.ParamType[float]):
    """Reads a duration above 0, `15m`, as seconds."""

    name = "15m"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; or click's own refusal with exit code 2."""
        from tuner.config.field_types import parse_duration

        try:
            seconds = float(parse_duration(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail(f"'{value}' is no time that a launch takes, write 15m", param, ctx)
        return seconds


class Percent(click.ParamType[float]):
    """Reads a share: `2%`, or `0.02`. A bare number from 0.1 on could be meant as either."""

    name = "2%"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The share, from 0 to below 1; or click's own refusal with exit code 2."""
        text = str(value).strip()
        digits = text.removesuffix("%").rstrip()
        if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", digits, re.ASCII):
            self.fail(f"'{text}' is no percentage, write 2%", param, ctx)
        number = float(digits)
        if text.endswith("%"):
            if number >= 100:
                self.fail(f"'{text}' allows any slowdown, write less than 100%", param, ctx)
            return number / 100
        if number >= AMBIGUOUS:
            self.fail(
                f"'{text}' may be {number:g} % or {100 * number:g} %, write {number:g}%", param, ctx
            )
        return number
