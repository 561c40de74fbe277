"""The score of a task against the baseline's, question by question. Pure."""

from dataclasses import dataclass

from scipy.special import bdtr

LEVEL = 0.01
"""Chance at which an equal configuration is taken for a worse one."""

RIGHT, WRONG, MISSING = "1", "0", "-"


@dataclass(frozen=True)
class Worse:
    """McNemar's exact test of whether answers got worse, one-sided."""

    lost: int
    """Questions that only the baseline has right."""
    won: int
    """Questions that only the other one has right."""
    p: float
    """The chance of so many lost among those that changed, if either way were as likely."""

    @property
    def clearly(self) -> bool:
        """By more than chance."""
        return self.p < LEVEL


def mark(right: float, said: float | None, missing: bool) -> str:
    """The letter of one question; `said` None is an answer without a number."""
    if missing:
        return MISSING
    is_right = said is not None and abs(right - said) <= 1e-6 * max(1.0, abs(right))
    return RIGHT if is_right else WRONG


def worse(baseline: str, measured: str) -> Worse:
    """`measured` against `baseline`, marks of the same questions; those missing do not count."""
    pairs = list(zip(baseline, measured, strict=True))
    lost, won = pairs.count((RIGHT, WRONG)), pairs.count((WRONG, RIGHT))
    return Worse(lost, won, float(bdtr(won, lost + won, 0.5)) if lost + won else 1.0)
