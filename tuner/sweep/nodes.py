"""Servers that span several nodes: what the sweep file must say of them."""

from tuner.sweep.document import Document
from tuner.sweep.model import Sweep

NNODES = "nnodes"


def nodes_of(sweep: Sweep) -> int:
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
    if nodes > 1 and sweep.engine.kind == "endpoint":
        raise document.error(place, "an endpoint runs already, wherever it does: remove it")
