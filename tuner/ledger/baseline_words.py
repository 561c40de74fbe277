"""What launches of the baseline that disagree say of a run's answer."""

from collections.abc import Mapping

from tuner.measure.drift import Baselines
from tuner.measure.spelled import speed_words
from tuner.sweep.level import Level, at


def disagreement(baselines: Mapping[Level, Baselines]) -> str | None:
    """A sentence that names the launches' figures; None where they agree.

    `baselines`: of a run that has launched its baseline more than once, by level.
    """
    apart = {level: known for level, known in baselines.items() if known.disagree}
    if not apart:
        return None
    told = []
    for level, known in apart.items():
        where = f" {at(level)}" if len(baselines) > 1 else ""
        figures = ", ".join(f"{each:.1f}" for each in known.figures)
        told.append(f"{figures} {speed_words(known.metric)}{where}")
    return (
        f"the baseline's launches disagree ({'; '.join(told)}): something disturbed the machine, "
        "so measure again before you rely on this answer"
    )
