"""Several chain lengths in one launch: what it is started with, and where SGLang cannot do it.

SGLang's adaptive speculation keeps the CUDA graphs of several lengths; specbench's plug-in pins one
of them and changes it on request (docs/step_switch.md).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.config.schema import ModelSpec, ServerFlag, Sweep
from tuner.metrics.samples import EngineCounters
from tuner.server.base import AdaptiveSpeculation, ServerConfig
from tuner.sglang.releases import FIRST_SWITCHED, Release
from tuner.sglang.rules import EAGLE_FAMILY, Planned, adaptive

SWITCH_VARIABLE, STEPS_VARIABLE = "SPECBENCH_STEP_SWITCH", "SPECBENCH_STEPS"
"""What the plug-in reads (tuner/sglang/plugin/specbench_sglang/settings.py)."""
_ADAPTIVE = "speculative-adaptive"
_RIVALS = (
    "enable-dp-attention",
    "enable-multi-layer-eagle",
    "enable-two-batch-overlap",
    "enable-pdmux",
)
"""Without adaptive speculation in SGLang (speculative/adaptive_spec_params.py)."""
_ONE = ("attn-dp-size", "pp-size", "tokenizer-worker-num")
"""Above 1 the lengths would not change everywhere at once."""


def step_switch_refusal(
    release: Release, model: ModelSpec, flags: Mapping[str, ServerFlag], topk: int = 1
) -> str | None:
    """Why one launch cannot serve several chain lengths; None where it can.

    `flags` are in the release's spelling, without those that are off.
    """
    if not release.at_least(FIRST_SWITCHED):
        first = f"{FIRST_SWITCHED} is the first that can"
        return f"SGLang {release.known} cannot switch chain lengths, {first}"
    if model.algorithm not in EAGLE_FAMILY:
        return f"{model.algorithm} cannot switch chain lengths, EAGLE, EAGLE3 and NEXTN can"
    if topk != 1:
        return f"trees (eagle_topk {topk}) cannot be switched, chains can"
    named = {release.arguments[n].name if n in release.arguments else n: flags[n] for n in flags}
    for name in (_ADAPTIVE, f"{_ADAPTIVE}-config"):
        if name in named:
            return f"{name} would choose the chain length itself"
    for name in (*_RIVALS, "enable-lora", "lora-paths"):
        if name in named:
            return f"SGLang has no adaptive speculation with {name}"
    for name in _ONE:
        if named.get(name) not in (None, 1):
            return f"chain lengths cannot be switched with {name} {named[name]}"
    if named.get("disaggregation-mode") not in (None, "null"):
        return "chain lengths cannot be switched with PD disaggregation"
    return None


def with_switch(config: ServerConfig) -> ServerConfig:
    """`config` as it is launched for its `warm_steps`: with the longest, which buffers need."""
    if not config.warm_steps or config.point is None:
        return config
    longest = max(config.warm_steps)
    return replace(
        config,
        point=replace(config.point, num_steps=longest, num_draft_tokens=longest + 1),
        flags={**config.flags, _ADAPTIVE: True},
        env={
            **config.env,
            SWITCH_VARIABLE: "1",
            STEPS_VARIABLE: ",".join(map(str, config.warm_steps)),
        },
    )


# The file of SGLang's adaptive speculation: which chain length at which batch size.
#
# Its shape differs by release (releases.TABLE, "adaptive_config"). 0.5.11 and 0.5.12 have one list
# for all batch sizes, of two lengths or more, and choose among them by acceptance. From 0.5.13 on
# there is a list for each batch size, which holds up to the next one. 0.5.14 is the first that
# accepts 0 steps. A list of one length leaves nothing to choose, so the length is the batch size's.


SWITCH, FILE = "speculative-adaptive", "speculative-adaptive-config"
"""The flags that such a server is launched with."""


def adaptive_config(sweep: Sweep, release: Release) -> AdaptiveSpeculation:
    """Return how the release's servers choose a chain length from a file."""
    return AdaptiveSpeculation(
        release=f"SGLang {release.known}",
        takes_zero=release.at_least("0.5.14"),
        has_one_list=release.text("adaptive_config") == "one list",
        flags=(f"--{SWITCH}", f"--{FILE}"),
        refusal=lambda point: adaptive_refusal(Planned.of(sweep, point, release)),
        content=lambda steps: adaptive_content(steps, release),
    )


def adaptive_refusal(server: Planned) -> str | None:
    """Return why the server cannot choose its chain length by batch size, or None if it can."""
    release = server.release
    if release.text("adaptive_config") is None:
        return f"SGLang {release.known} has no adaptive speculation, 0.5.11 is the first that has"
    if server.is_set(SWITCH):
        return f"the servers were launched with {SWITCH} already"
    broken = adaptive(replace(server, flags={**server.flags, SWITCH: True}))
    return None if broken is None else broken.message


def adaptive_content(steps: Mapping[int, int], release: Release) -> dict[str, Any] | str:
    """Return the file's content for `steps` by batch size, or why the release has none for them.

    `release` has adaptive speculation, and takes 0 if 0 is among the steps.
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


def read_counters(info: Mapping[str, Any]) -> EngineCounters | None:
    """One entry of `internal_states` for each data-parallel rank; None where there are none."""
    states = info.get("internal_states")
    if not isinstance(states, list):
        return None
    ranks = info.get("dp_size")
    told = [state for state in states if isinstance(state, dict)]
    return EngineCounters(
        ranks=ranks if type(ranks) is int else 1,
        accept_lengths=tuple(_number(state.get("avg_spec_accept_length")) for state in told),
        throughputs=tuple(_number(state.get("last_gen_throughput")) for state in told),
    )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
