"""One process group that times all-reduces: a leader, and one process per rank below it.

Runs under the interpreter that has SGLang and needs torch; imports nothing of specbench.

    python child.py ORDER: the leader, starts the ranks, ends them all when one fails
    python child.py ORDER RANK PID of the leader: one rank

ORDER is JSON:
    {"world": N, "device": "cuda" or "cpu", "first_gpu": I, "gpu_step": I, "dtype": NAME,
     "sizes": [[NUMEL, RANKS], ...], "folder": PATH, "batch": N, "budget_s": S}
RANKS are those of one group: all blocks of so many ranks reduce at the same time, 0: all together.
Lines on standard output that begin with MARK hold JSON:
    {"stage": "imported"}                      torch is there, nothing of the GPU was touched
    {"stage": "ready", "backend": NAME, "device": NAME, "torch": VERSION}
                                               a first all-reduce went through
    {"numel": N, "ranks": N, "us": [US, ...], "graphs": BOOL, "why": null or TEXT}
                                               microseconds of one all-reduce, one entry a batch
    {"stage": "done"}
    {"refused": TEXT}                          this machine or interpreter cannot do it
    {"rank": I, "error": TEXT}
The ranks wait for FOLDER/turn before they measure and for FOLDER/leave before they go. They end
when their parent does.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

MARK = "SPECBENCH_COMM "
WARM_UP = 3
FEWEST, MOST = 8, 40
"""Batches of one message size."""
FOR_EVER = timedelta(hours=12)
"""Nothing is given up here: specbench holds the clock, and calls what exceeds it a hang."""

# A script's own folder comes first on the path; its modules are not for torch to find.
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]  # noqa: PTH100


class Refused(Exception):
    """Not a failure of this setting: every setting would meet it."""


def say(**facts: Any) -> None:
    """One line in one write, so that lines of several ranks do not mix."""
    sys.stdout.write(f"{MARK}{json.dumps(facts)}\n")
    sys.stdout.flush()


def lead(order: dict[str, Any]) -> int:
    """Start all ranks and wait for them; 0 where all of them ended well."""
    parent = os.getppid()
    command = [sys.executable, os.path.abspath(__file__), sys.argv[1]]  # noqa: PTH100
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(order["world"]):
            words = [*command, str(rank), str(os.getpid())]
            ranks.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
        while os.getppid() == parent:
            codes = [each.poll() for each in ranks]
            if any(codes):
                return next(code for code in codes if code) & 0xFF
            if None not in codes:
                return 0
            time.sleep(0.02)
        return 1
    finally:
        for each in ranks:
            if each.poll() is None:
                each.kill()
        for each in ranks:
            each.wait()


def end_with_parent(parent: int) -> None:
    """A rank that waits in a collective sees nothing; this thread does."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_rank(order: dict[str, Any], rank: int, leader: int) -> int:
    """Measure as one rank of the group; rank 0 speaks."""
    end_with_parent(leader)
    try:
        measure(order, rank)
    except Refused as refusal:
        say(refused=str(refusal))
        return 3
    except Exception as error:  # noqa: BLE001,RUF100 - whatever it is, it is this setting's end
        say(rank=rank, error=one_line(error))
        return 1
    return 0


def measure(order: dict[str, Any], rank: int) -> None:
    """The whole life of a rank. Raises Refused, or what torch raises."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        raise Refused(f"{sys.executable} has no torch ({one_line(error)})") from error
    if rank == 0:
        say(stage="imported")
    device, backend = place(torch, dist, order, rank)
    if backend == "gloo":  # one host; its name need not lead to an address
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        backend,
        init_method=f"file://{order['folder']}/store",
        rank=rank,
        world_size=order["world"],
        timeout=FOR_EVER,
    )
    of_sizes = sorted({0} | {ranks for _, ranks in order["sizes"]})  # all together first
    groups = {ranks: block(dist, order["world"], ranks, rank) for ranks in of_sizes}
    for ranks, group in groups.items():
        first, count = torch.ones(1, device=device), ranks or order["world"]
        dist.all_reduce(first, group=group)
        if int(first.item()) != count:
            raise RuntimeError(f"an all-reduce of ones over {count} ranks gave {first.item()}")
    if rank == 0:
        say(stage="ready", **described(torch, device, backend))
    wait_for(f"{order['folder']}/turn")
    for numel, ranks in order["sizes"]:
        answer = time_size(torch, dist, order, device, numel, groups[ranks])
        if rank == 0:
            say(numel=numel, ranks=ranks, **answer)
    if rank == 0:
        say(stage="done")
    wait_for(f"{order['folder']}/leave")
    dist.destroy_process_group()


def block(dist: Any, world: int, ranks: int, rank: int) -> Any:
    """This rank's group of so many consecutive ranks, as a draft on that TP size has; None: all.

    Every rank has to make every group.
    """
    mine = None
    for first in range(0, world, ranks or world):
        members = list(range(first, first + ranks))
        made = dist.new_group(members, timeout=FOR_EVER) if ranks else None
        if rank in members:
            mine = made
    return mine


def place(torch: Any, dist: Any, order: dict[str, Any], rank: int) -> tuple[Any, str]:
    """This rank's device and the back-end for it. Raises Refused."""
    if order["device"] == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu"), "gloo"
    index = order["first_gpu"] + rank * order["gpu_step"]
    last = order["first_gpu"] + (order["world"] - 1) * order["gpu_step"]
    seen = torch.cuda.device_count()
    if seen <= last:
        raise Refused(f"torch of {sys.executable} sees {seen} GPUs, {last + 1} are needed")
    if not dist.is_nccl_available():
        raise Refused(f"torch of {sys.executable} has no NCCL")
    torch.cuda.set_device(index)
    return torch.device("cuda", index), "nccl"


def described(torch: Any, device: Any, backend: str) -> dict[str, Any]:
    """What the report says of the group."""
    if backend == "gloo":
        return {"backend": "gloo", "device": "CPU", "torch": torch.__version__}
    version = ".".join(map(str, torch.cuda.nccl.version()))
    name = torch.cuda.get_device_name(device)
    return {"backend": f"NCCL {version}", "device": name, "torch": torch.__version__}


def wait_for(path: str) -> None:
    """Sleeps until the file is there; a spinning rank would disturb the others' measurement."""
    while not os.path.exists(path):  # noqa: PTH110
        time.sleep(0.005)


def time_size(
    torch: Any, dist: Any, order: dict[str, Any], device: Any, numel: int, group: Any
) -> dict[str, Any]:
    """Microseconds of one all-reduce of that many elements, one entry for each batch of them.

    In `group`, None: of all ranks. What the ranks agree on they do in one of all.
    """
    tensor = torch.zeros(numel, dtype=getattr(torch, order["dtype"]), device=device)

    def reduce() -> None:
        dist.all_reduce(tensor, group=group)

    for _ in range(WARM_UP):
        reduce()
    if device.type == "cpu":
        us = timed_on_cpu(torch, dist, order, reduce, device)
        return {"us": us, "graphs": False, "why": None}
    torch.cuda.synchronize()
    graph, why = captured(torch, order["batch"], reduce)
    # All ranks replay or none does: who replays alone waits for ever.
    agreed = torch.tensor([0 if graph is None else 1], device=device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
    if int(agreed.item()) == 0:
        graph, why = None, why or "it failed on another rank"

    def batch() -> None:
        if graph is not None:
            graph.replay()
            return
        for _ in range(order["batch"]):
            reduce()

    us = timed_on_gpu(torch, dist, order, batch, device)
    return {"us": us, "graphs": graph is not None, "why": why}


def captured(torch: Any, count: int, reduce: Any) -> tuple[Any, str | None]:
    """A CUDA graph of `count` all-reduces, or None and why there is none."""
    graph = torch.cuda.CUDAGraph()
    try:
        # thread_local: the watchdog thread of torch's NCCL group asks for events meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(count):
                reduce()
    except Exception as error:  # noqa: BLE001,RUF100 - then there are no graphs
        with contextlib.suppress(Exception):
            torch.cuda.synchronize()
        return None, one_line(error)
    return graph, None


def timed_on_gpu(
    torch: Any, dist: Any, order: dict[str, Any], batch: Any, device: Any
) -> list[float]:
    """Batches back to back: ranks that come late spoil only the warm-up in front of them."""
    batch()
    torch.cuda.synchronize()
    began = time.perf_counter()
    batch()
    torch.cuda.synchronize()
    count = agreed_count(torch, dist, order, time.perf_counter() - began, device)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    batch()
    for mark in marks[:-1]:
        mark.record()
        batch()
    marks[-1].record()
    torch.cuda.synchronize()
    spans = zip(marks, marks[1:])  # noqa: B905,RUF007,RUF100 - the server's Python may be old
    return [1000 * one.elapsed_time(next_) / order["batch"] for one, next_ in spans]


def timed_on_cpu(
    torch: Any, dist: Any, order: dict[str, Any], reduce: Any, device: Any
) -> list[float]:
    """The same without a GPU's clock."""
    times: list[float] = []
    count = 1
    while len(times) < count + 1:
        began = time.perf_counter()
        for _ in range(order["batch"]):
            reduce()
        times.append(time.perf_counter() - began)
        if len(times) == 1:
            count = agreed_count(torch, dist, order, times[0], device)
    return [1e6 * each / order["batch"] for each in times[1:]]


def agreed_count(torch: Any, dist: Any, order: dict[str, Any], took: float, device: Any) -> int:
    """How many batches fit the budget, by the slowest rank: all ranks must do the same number."""
    slowest = torch.tensor([took], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return max(FEWEST, min(MOST, int(order["budget_s"] / max(float(slowest.item()), 1e-9))))


def one_line(error: BaseException) -> str:
    """The exception in one line; of NCCL's long ones also the end, which names the cause."""
    head, last, cause = str(error).partition("Last error:")
    text = f"{type(error).__name__}: {' '.join(head.split())[:200]}"
    return f"{text} {last} {' '.join(cause.split())[:200]}" if last else text


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if len(sys.argv) == 2:
        sys.exit(lead(given))
    sys.exit(run_rank(given, int(sys.argv[2]), int(sys.argv[3])))
