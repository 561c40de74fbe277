"""Who breaks the limits of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.analysis.winner import broken_by, divergent_outputs, read_objective
from tuner.config.schema import SearchSpec
from tuner.runs.latency_limits import describe_broken_limits, format_required_limits
from tuner.runs.ledger import Ledger
from tuner.runs.records import BrokenLimit, TrialRecord


@dataclass(frozen=True)
class LimitsFound:
    """What came of `search.limits`."""

    asked: Mapping[str, float]
    """{} where nothing was asked; what can be broken then is to keep up with a rate, and to
    answer."""
    baseline: Sequence[BrokenLimit]
    broken: tuple[tuple[TrialRecord, Sequence[BrokenLimit]], ...]
    """Candidates that are not recommended because they, or launches of their own, break a limit,
    the faster first."""
    decided: bool = True
    """Without the limits something faster than no speculation would have been recommended."""
    base: TrialRecord | None = None
    """No speculation, where it was measured."""

    @classmethod
    def of(cls, ledger: Ledger, search: SearchSpec) -> "LimitsFound":
        """Of a run."""
        base = ledger.baseline
        found = [(each, broken_by(ledger, each)) for each in ledger.candidates]
        out = [pair for pair in found if pair[1]]
        out.sort(key=lambda pair: -(read_objective(pair[0], search.objective) or 0.0))
        spec = search.objective
        decided = any(
            (read_objective(each, spec) or 0.0) > 1 and divergent_outputs(ledger, each) is None
            for each, _ in out
        )
        return cls(search.limits, [] if base is None else base.broken, tuple(out), decided, base)

    @property
    def trials(self) -> frozenset[int]:
        """The numbers of those candidates."""
        return frozenset(record.trial for record, _ in self.broken)

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it; {} where nothing was asked and nobody broke anything."""
        if not self.asked and not self.broken:
            return {}
        told = [{"point": each.point, "broken": _told(found)} for each, found in self.broken]
        return {
            "limits": {
                "asked": dict(self.asked),
                "baseline": _told(self.baseline),
                "not_recommended": told,
            }
        }

    def words(self) -> str:
        """Who breaks them, in a line."""
        words = [f"limits: {format_required_limits(self.asked, self._every)}"]
        if self.baseline:
            words.append(f"the baseline breaks them ({self._describe_baseline()})")
        elif self.base is not None and self.asked:
            words.append("the baseline keeps them")
        many = len(self.broken)
        words.append(f"{many} candidate{'s' * (many != 1)} not recommended for breaking them")
        return "; ".join(words)

    def why_not(self, fastest: TrialRecord | None) -> str:
        """What they have to do with it that no candidate is recommended; "" for nothing."""
        told = ""
        if self.baseline:
            told += f"; it breaks the limits itself: {self._describe_baseline()}"
        if fastest is None or fastest.at is None:
            return told
        found = next((found for each, found in self.broken if each is fastest), None)
        if found is not None and self.decided:
            does = f"keeps {format_required_limits(self.asked, self._every)}"
            does = does.replace("keeps to keep", "keeps").replace("to answer", "answers")
            told += f"; no faster one {does.replace('keeps answers', 'answers')}: of "
            told += f"{fastest.at.label()} {describe_broken_limits(found, fastest.metrics)}"
        elif found is None and told:
            told += f"; {fastest.at.label()} keeps them"
        return told

    @property
    def _every(self) -> list[BrokenLimit]:
        return [each for _, found in self.broken for each in found]

    def _describe_baseline(self) -> str:
        return describe_broken_limits(self.baseline, self.base.metrics if self.base else None)


def _told(broken: Sequence[BrokenLimit]) -> list[dict[str, Any]]:
    return [{**each.model_dump(), "excess": each.excess} for each in broken]
