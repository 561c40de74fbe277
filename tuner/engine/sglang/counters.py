"""What SGLang's /server_info tells of its own counts."""

import math
from collections.abc import Mapping
from typing import Any

from tuner.measure.counters import EngineCounters


def counters_of(info: Mapping[str, Any]) -> EngineCounters | None:
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
