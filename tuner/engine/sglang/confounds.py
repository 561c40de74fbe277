"""Settings that speculation changes by itself, so that a comparison measures them as well.

SGLang chooses some values differently with and without speculation, or by eagle_topk. Those that
engine/pins.py does not pin for every server are told here.
"""

from dataclasses import dataclass

from tuner.engine.pins import GRAPHS, RUNNING, given_flags
from tuner.engine.sglang.releases import Release
from tuner.sweep.model import Sweep

_OVERLAP = "disable-overlap-schedule"
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


@dataclass(frozen=True)
class Confound:
    """One setting that differs between baseline and candidates, or between candidates."""

    flag: str
    why: str
    """What SGLang does unasked, and what would pin it."""


def confounds(sweep: Sweep, release: Release) -> tuple[Confound, ...]:
    """What stays different and is not pinned by the file or by `pins`."""
    given = given_flags(sweep)
    found = []
    if not {"attention-backend", "decode-attention-backend"} & given:
        found.append(
            Confound(
                "attention-backend",
                "SGLang chooses it by GPU, page size and eagle_topk, so baseline, chains and trees "
                "may run on different ones; pin it under server.flags",
            )
        )
    if "mem-fraction-static" not in given:
        found.append(
            Confound(
                "mem-fraction-static",
                "SGLang reserves more with speculation, so the KV cache differs; pin it under "
                "server.flags",
            )
        )
    if (why := _overlap(sweep, release)) is not None:
        found.append(Confound(_OVERLAP, f"{why}; {_OVERLAP}: true under server.flags pins it off"))
    only_there = sorted((set(sweep.baseline.flags) - set(sweep.server.flags)) & {RUNNING, GRAPHS})
    found += [
        Confound(name, "the baseline alone has it; write it under server.flags instead")
        for name in only_there
    ]
    return tuple(found)


def _overlap(sweep: Sweep, release: Release) -> str | None:
    """Why the overlap scheduler is on for some servers of the run and off for others."""
    if sweep.server.flags.get(_OVERLAP) is True or _OVERLAP in sweep.space.flags:
        return None
    if sweep.model.algorithm == "NGRAM":
        if release.at_least("0.5.14"):
            return None
        return f"SGLang {release.known} turns the overlap scheduler off for NGRAM"
    asked = sweep.server.env.get(_SPEC_V2, "").lower()
    if not release.at_least("0.5.11"):
        if asked in ("1", "true"):
            return None
        return (
            f"SGLang {release.known} turns the overlap scheduler off for speculation and leaves it "
            f"on for the baseline ({_SPEC_V2}=1 keeps it for chains)"
        )
    if release.at_least("0.5.13"):
        return None
    topk = sweep.space.eagle_topk
    trees = topk is not None and (
        topk if isinstance(topk, list) else range(topk.low, topk.high + 1)
    )
    if trees and max(trees) > 1:
        return f"SGLang {release.known} turns the overlap scheduler off for trees only"
    return None
