"""Several chain lengths in one launch: what it is started with, and where SGLang cannot do it.

SGLang's adaptive speculation keeps the CUDA graphs of several lengths; specbench's plug-in pins one
of them and changes it on request (docs/step_switch.md).
"""

from collections.abc import Mapping
from dataclasses import replace

from tuner.engine.base import ServerConfig
from tuner.engine.sglang.releases import FIRST_SWITCHED, Release
from tuner.engine.sglang.rules import EAGLE_FAMILY
from tuner.sweep.model import ModelSpec, ServerFlag

SWITCH_VARIABLE, STEPS_VARIABLE = "SPECBENCH_STEP_SWITCH", "SPECBENCH_STEPS"
"""What the plug-in reads (tuner/plugin/specbench_sglang/settings.py)."""
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
