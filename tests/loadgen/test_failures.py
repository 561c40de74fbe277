"""What a failure says, and to whom its blame goes."""

from tuner.core.errors import EngineFailure, Failure
from tuner.loadgen.client import beside_others


def test_memory_that_ran_out_is_told_with_who_else_had_some() -> None:
    """Otherwise a forgotten process on the GPU makes every configuration look too large."""
    others = ["GPU 0: 71 of 140 GiB in use by others"]
    told = beside_others(EngineFailure(Failure.OOM, "no memory", "log"), others)
    assert told is not None
    assert told.message == f"no memory; before the launch {others[0]}"
    assert (told.label, told.log_tail) == (Failure.OOM, "log")
    crash = EngineFailure(Failure.CRASH, "ended")
    assert beside_others(crash, others) is crash
    assert beside_others(None, others) is None
