"""The only place that reads the plug-in's environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .problems import STEP_SWITCH as SWITCHING
from .problems import Refused

DRAFT_TP = "SPECBENCH_DRAFT_TP"
SYNC = "SPECBENCH_DRAFT_TP_SYNC"
FORCE = "SPECBENCH_DRAFT_TP_FORCE"
SYNCS = ("broadcast", "off")
STEP_SWITCH = "SPECBENCH_STEP_SWITCH"
STEPS = "SPECBENCH_STEPS"


@dataclass(frozen=True)
class Settings:
    """What the environment asks for."""

    draft_tp: int
    sync: bool = True
    """Broadcast the draft tokens from the target's first rank once a cycle."""
    force: bool = False
    """Take drafts with experts, each rank with all of them."""


def read(environment: Mapping[str, str] = os.environ) -> Settings | None:
    """None where no draft TP is asked for. Raises Refused for values that mean nothing."""
    text = environment.get(DRAFT_TP, "").strip()
    if text in ("", "target"):
        return None
    if not text.isdecimal() or int(text) < 1:
        raise Refused(f"{DRAFT_TP}={text} is neither a whole number from 1 on nor `target`")
    sync = environment.get(SYNC, "broadcast")
    if sync not in SYNCS:
        raise Refused(f"{SYNC}={sync} is neither of {', '.join(SYNCS)}")
    return Settings(int(text), sync == "broadcast", environment.get(FORCE) == "1")


@dataclass(frozen=True)
class StepSettings:
    """What the environment asks for in switching chain lengths."""

    steps: tuple[int, ...] | None
    """Chain lengths to build, ascending; None: those of --speculative-adaptive-config."""


def read_steps(environment: Mapping[str, str] = os.environ) -> StepSettings | None:
    """None where no switching is asked for. Raises Refused for values that mean nothing."""
    switch = environment.get(STEP_SWITCH, "").strip()
    if switch in ("", "0"):
        return None
    if switch != "1":
        raise Refused(f"{STEP_SWITCH}={switch} is neither 1 nor 0", SWITCHING)
    text = environment.get(STEPS, "").strip()
    if not text:
        return StepSettings(None)
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words) or not any(int(word) for word in words):
        raise Refused(f"{STEPS}={text} is no list of chain lengths such as 1,3,5", SWITCHING)
    return StepSettings(tuple(sorted({int(word) for word in words})))
