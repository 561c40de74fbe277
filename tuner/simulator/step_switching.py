"""Several chain lengths on one server: prepared at launch, one of them pinned while it is idle.

Plays SGLang's adaptive speculation under specbench's plug-in, which takes the choice of the length
from SGLang's controller. `--speculative-adaptive` without the plug-in's variables stays at the
length of the launch here; SGLang would go up and down by what is accepted.
"""

from collections.abc import Mapping
from typing import Any

from tuner.simulator.arguments import Arguments
from tuner.simulator.log import log
from tuner.simulator.scheduler import Scheduler

STEPS = "speculative_num_steps"
STATE = "specbench_steps"


class StepSwitch:
    """The switch that /set_internal_state operates."""

    def __init__(self, arguments: Arguments, scheduler: Scheduler) -> None:
        self._arguments = arguments
        self._scheduler = scheduler
        self._refused: str | None = None

    def state(self) -> dict[str, Any]:
        """Return what internal_states has beside the arguments; {} if nothing can be switched."""
        now, built = self._scheduler.speculation, list(self._arguments.warm_steps)
        if not built or now is None:
            return {}
        return {STATE: {"pinned": now.steps, "built": built, "refused": self._refused}}

    def update(self, wanted: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Pin a chain length. Returns the status and the answer of the plug-in, or of SGLang."""
        built = list(self._arguments.warm_steps)
        if STEPS not in wanted or not built:
            log("; ".join(f"Updating {key} is not supported." for key in wanted), 0)
            return 200, [False]
        self._refused = self._refusal(wanted)
        if self._refused is None:
            self._scheduler.pin(wanted[STEPS])
            log(f"specbench: chain length {wanted[STEPS]} pinned", 0)
        assert self._scheduler.speculation is not None
        done = {"updated": self._refused is None, STEPS: self._scheduler.speculation.steps}
        answer = {**done, "built": built}
        return (200, [answer]) if done["updated"] else (409, [answer | {"reason": self._refused}])

    def _refusal(self, wanted: Mapping[str, Any]) -> str | None:
        value, built = wanted[STEPS], self._arguments.warm_steps
        if self._arguments.faults.has("refuse-steps"):
            return "a fault on purpose"
        if len(wanted) > 1:
            return f"{STEPS} is set alone, not with {', '.join(k for k in wanted if k != STEPS)}"
        if isinstance(value, bool) or value not in built:
            lengths = ", ".join(map(str, built))
            return f"{value} is not among the chain lengths built: {lengths}"
        if not self._scheduler.is_idle:
            running, waiting = self._scheduler.running_count, self._scheduler.queue_count
            return f"the scheduler is not idle ({running} requests running, {waiting} waiting)"
        return None
