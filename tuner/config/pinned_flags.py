"""What every server of a run gets alike where the sweep file leaves it open.

SGLang chooses these by itself, and differently with and without speculation, so that a comparison
would measure them as well.
"""

from collections.abc import Mapping

from tuner.config.schema import ServerFlag, Sweep

RUNNING = "max-running-requests"
GRAPHS = "cuda-graph-max-bs-decode"
_GRAPH_FLAGS = (
    GRAPHS,
    "cuda-graph-max-bs",
    "cuda-graph-bs",
    "cuda-graph-bs-decode",
    "cuda-graph-config",
    "disable-cuda-graph",
    "disable-decode-cuda-graph",
    "cuda-graph-backend-decode",
)


def pins(sweep: Sweep) -> Mapping[str, ServerFlag]:
    """Flags for every server of the run, in SGLang's newest spelling.

    max-running-requests and the largest decode graph get one number: the smallest batch size that
    SGLang captures in any case and that holds the highest concurrency, 4 at least. Unpinned, the
    first is 48 with speculation and 2048 or more without, and graphs are captured up to 160 or
    512. DP ranks share max-running-requests, so there it is that number for each rank.
    """
    given = given_flags(sweep)
    size = _captured_size(max(sweep.workload.concurrency))
    found: dict[str, ServerFlag] = {}
    if RUNNING not in given:
        found[RUNNING] = size * _ranks(sweep)
    on_cpu = sweep.server.flags.get("device") == "cpu"
    if not given.intersection(_GRAPH_FLAGS) and not on_cpu:
        found[GRAPHS] = size
    return found


def given_flags(sweep: Sweep) -> set[str]:
    """Every flag that the file names anywhere."""
    return {*sweep.server.flags, *sweep.space.flags, *sweep.baseline.flags}


def _ranks(sweep: Sweep) -> int:
    names = ("dp-size", "data-parallel-size", "attn-dp-size")
    ranks = 1
    for name in names:
        size = sweep.server.flags.get(name)
        if isinstance(size, int):
            ranks = max(ranks, size)
    return ranks


def _captured_size(concurrency: int) -> int:
    """A batch size on SGLang's lists of captured ones, with and without speculation.

    4, 8, 12 and then multiples of 8 up to 256, of 16 up to 512 (server_args.py,
    _generate_cuda_graph_batch_sizes of 0.5.8).
    """
    sizes: tuple[int, ...] = (4, 8, 12, *range(16, 257, 8), *range(272, 513, 16))
    return next(size for size in sizes if size >= concurrency)
