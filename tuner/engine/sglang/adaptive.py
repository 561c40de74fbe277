"""The file of SGLang's adaptive speculation: which chain length at which batch size.

Its shape differs by release (releases.TABLE, "adaptive_config"). 0.5.11 and 0.5.12 have one list
for all batch sizes, of two lengths or more, and choose among them by acceptance. From 0.5.13 on
there is a list for each batch size, which holds up to the next one; 0.5.14 is the first that takes
0 steps. A list of one length leaves nothing to choose, so the length is the batch size's.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.engine.sglang.planned import Planned
from tuner.engine.sglang.releases import Release
from tuner.engine.sglang.rules import adaptive

SWITCH, FILE = "speculative-adaptive", "speculative-adaptive-config"
"""The flags that such a server is launched with."""


def takes_zero(release: Release) -> bool:
    """True where a batch size may have 0 steps: nothing is drafted."""
    return release.at_least("0.5.14")


def adaptive_refusal(server: Planned) -> str | None:
    """Why the server cannot choose its chain length by batch size; None where it can."""
    release = server.release
    if release.text("adaptive_config") is None:
        return f"SGLang {release.known} has no adaptive speculation, 0.5.11 is the first that has"
    if server.is_set(SWITCH):
        return f"the servers were launched with {SWITCH} already"
    broken = adaptive(replace(server, flags={**server.flags, SWITCH: True}))
    return None if broken is None else broken.message


def adaptive_config(steps: Mapping[int, int], release: Release) -> dict[str, Any] | str:
    """The file's content for `steps` by batch size, or why the release has none for them.

    `release` has adaptive speculation, and takes 0 where that is among the steps.
    """
    lengths = sorted(set(steps.values()))
    if lengths == [0]:
        return "no speculation is fastest at each concurrency"
    if release.text("adaptive_config") != "one list":
        return {str(size): {"candidate_steps": [steps[size]]} for size in sorted(steps)}
    if len(lengths) < 2:
        return (
            f"SGLang {release.known} wants two chain lengths or more, and {lengths[0]} is the best "
            "at each concurrency"
        )
    return {"candidate_steps": lengths}
