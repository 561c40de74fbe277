"""State that all routes of one server share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tuner.simulator.arguments import Arguments
from tuner.simulator.scheduler import Scheduler
from tuner.simulator.step_switching import StepSwitch

ANOTHER_MODEL = "somebody-else/another-model"


@dataclass
class ServerState:
    """Arguments, scheduler and phase of one server."""

    arguments: Arguments
    scheduler: Scheduler
    launch_s: float
    """Model time."""
    phase: Literal["starting", "up", "exiting"] = "starting"
    served: int = 0
    """Requests for tokens answered so far, the warm-up not included."""

    def __post_init__(self) -> None:
        self.step_switch = StepSwitch(self.arguments, self.scheduler)

    @property
    def server_args(self) -> Mapping[str, Any]:
        """The arguments that the server reports."""
        args = self.arguments.server_args
        if not self.arguments.faults.has("wrong-server"):
            return args
        return {
            **args,
            "model_path": ANOTHER_MODEL,
            "tokenizer_path": ANOTHER_MODEL,
            "served_model_name": ANOTHER_MODEL,
            "random_seed": args["random_seed"] + 1,
        }

    def next_fault(self) -> str | None:
        """Count one request. Return the fault of its answer, or None if there is none."""
        if self.phase == "starting":
            return None
        self.served += 1
        return self.arguments.faults.answer_fault(self.served - 1)

    def info(self) -> dict[str, Any]:
        """Return the answer of /server_info."""
        machine = self.arguments.performance.machine
        internal: dict[str, Any] = {
            **self.server_args,
            **self.step_switch.state(),
            "last_gen_throughput": self.scheduler.last_gen_throughput,
            "memory_usage": {
                "weight": machine.weight_gb,
                "kvcache": machine.kv_cache_gb,
                "token_capacity": machine.token_capacity,
                "graph": 0.17,
            },
            "effective_max_running_requests_per_dp": self.arguments.max_running_requests,
        }
        length = self.scheduler.totals.accept_length
        if length is not None:
            internal["avg_spec_accept_length"] = length
        return {
            **self.server_args,
            "status": "ready",
            "max_total_num_tokens": machine.token_capacity,
            "internal_states": [internal],
            "version": self.arguments.release.asked,
            "kv_events": None,
            "simulated": {
                "preset": machine.name,
                "launch_s": self.launch_s,
                "startup_scale": self.arguments.startup_scale,
                "worst_lateness_s": self.scheduler.worst_lateness_s,
            },
        }
