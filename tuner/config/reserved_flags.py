"""Flags and variables that a sweep file may not set by itself, and what sets them instead."""

from tuner.config.dimensions import DIMENSIONS
from tuner.config.schema import Sweep
from tuner.config.yaml_document import Document

_LOOPBACK = "it chooses a free port of 127.0.0.1"
_RANKS = "each rank's own: write server.flags.nnodes and give --ray ADDRESS"


def _key(name: str) -> str:
    return f"write {name} instead"


RESERVED: dict[str, str] = {
    "model-path": _key("model.target"),
    "model": _key("model.target"),
    "tp": _key("model.tp"),
    "tp-size": _key("model.tp"),
    "tensor-parallel-size": _key("model.tp"),
    "speculative-algorithm": _key("model.algorithm"),
    "speculative-draft-model-path": _key("model.draft"),
    "speculative-draft-model": _key("model.draft"),
    **{
        dimension.argument: _key(f"space.{dimension.name}")
        for dimension in DIMENSIONS
        if dimension.argument is not None
    },
    "host": _LOOPBACK,
    "port": _LOOPBACK,
    "nccl-port": _LOOPBACK,
    "node-rank": _RANKS,
    "dist-init-addr": _RANKS,
    "nccl-init-addr": _RANKS,
}
"""Flag without dashes -> the end of the refusal `specbench sets this flag, ...`.

tuner/sglang/flags.py writes these flags. If a flag is given twice, its position decides.
"""

HIDING: dict[str, str] = {
    "config": "SGLang reads more flags from that file, which no plan or report would show: write "
    "them here, one by one",
}
"""Flag without dashes -> why it is refused: what it does would be seen nowhere."""

RESERVED_VARIABLES: dict[str, str] = {
    "SPECBENCH_LAUNCH": "it marks the processes of a launch: remove it",
    "SPECBENCH_DRAFT_TP": _key("space.draft_tp"),
    "SPECBENCH_STEP_SWITCH": _key("server.step_switch"),
    "SPECBENCH_STEPS": _key("server.step_switch"),
}
"""Variable -> the end of the refusal `specbench sets this variable, ...`."""


NNODES = "nnodes"


def node_count(sweep: Sweep) -> int:
    """Nodes that each server of the sweep spans."""
    nodes = sweep.server.flags.get(NNODES, 1)
    return nodes if isinstance(nodes, int) and not isinstance(nodes, bool) else 1


def check_nodes(document: Document, sweep: Sweep) -> None:
    """Raises UserError at the line of an `nnodes` that no server could have."""
    for section in ("baseline", "space"):
        if NNODES in getattr(sweep, section).flags:
            raise document.error(
                (section, "flags", NNODES),
                "every server of a sweep spans the same nodes, write it in server.flags",
            )
    if NNODES not in sweep.server.flags:
        return
    nodes, place = sweep.server.flags[NNODES], ("server", "flags", NNODES)
    if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
        raise document.error(place, "nnodes is a number of nodes, such as 2")
    stages = sweep.server.flags.get("pp-size", sweep.server.flags.get("pipeline-parallel-size", 1))
    ranks = sweep.model.tp * (stages if isinstance(stages, int) else 1)
    if ranks % nodes:
        raise document.error(
            place,
            f"{ranks} ranks (model.tp by pp-size) cannot be split over {nodes} nodes alike, write "
            f"a divisor of {ranks}",
        )
    if nodes > 1 and not sweep.engine.launches_servers:
        raise document.error(place, "an endpoint runs already, wherever it does: remove it")
