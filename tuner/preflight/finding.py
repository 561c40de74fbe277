"""What a check says."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Level = Literal["ok", "doubt", "stop"]


@dataclass(frozen=True)
class Finding:
    """One line of `specbench doctor`.

    `stop` is for what no launch survives, or what the sweep itself refuses; anything less certain
    is a `doubt`. `todo` says what to do about it, None where there is nothing to do.
    """

    level: Level
    what: str
    message: str
    todo: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as `--json` prints it."""
        return asdict(self)


def softened(findings: Iterable[Finding], why: str | None) -> list[Finding]:
    """The findings with each stop a doubt, where `why` says what makes it uncertain."""
    if why is None:
        return list(findings)
    return [
        replace(each, level="doubt", message=f"{each.message} ({why})")
        if each.level == "stop"
        else each
        for each in findings
    ]


def exit_code(findings: Iterable[Finding]) -> int:
    """1 where something stops the sweep, else 0."""
    return int(any(each.level == "stop" for each in findings))
