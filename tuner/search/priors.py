"""What is known of a setting before it is measured: a guess and how far to trust it.

A guess is a share of the cycle that the setting adds. It decides what is tried first and is
outweighed by the first launch that has the setting. Only NCCL's own description of its settings
is used: messages of a decode pass are tens of kilobytes, where latency counts.
"""

from collections.abc import Mapping

ENVIRONMENT: Mapping[tuple[str, str], float] = {
    ("NCCL_PROTO", "LL"): -0.05,  # flags beside the data: lowest latency, half the bandwidth
    ("NCCL_PROTO", "LL128"): -0.02,
    ("NCCL_PROTO", "Simple"): 0.03,  # bandwidth first, with memory fences
    ("NCCL_P2P_LEVEL", "SYS"): -0.04,  # peer-to-peer also between sockets, not through the host
    ("NCCL_P2P_LEVEL", "PHB"): -0.02,
    ("NCCL_P2P_LEVEL", "LOC"): 0.15,  # never peer-to-peer
    ("NCCL_P2P_DISABLE", "1"): 0.15,
}
"""By variable and value."""
FLAGS: Mapping[str, float] = {
    "disable-custom-all-reduce": 0.05,  # it is there because it is faster than NCCL
    "disable-cuda-graph": 0.5,
}


def expected_effect(kind: str, name: str, value: object) -> float:
    """The guess for one setting, 0 where nothing is known. `kind` is env or flags."""
    if kind == "env":
        return ENVIRONMENT.get((name, str(value)), 0.0)
    return FLAGS.get(name, 0.0) if value is True else 0.0
