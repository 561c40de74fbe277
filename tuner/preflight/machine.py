"""Checks of the machine: GPUs, the ways between them, ports, disk, inherited variables."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.preflight.finding import Finding
from tuner.server.base import Checked, server_config
from tuner.server.gpu import CROWDED_SHARE, Gpus
from tuner.server.memory import MemoryEstimator, words

ENOUGH_BYTES = 2**30
"""Free space below which it is worth saying: logs and samples of a long sweep take less."""


@dataclass(frozen=True)
class Disk:
    """The file system that a run folder would be on. `folder` is the nearest one that exists."""

    folder: Path
    free: int
    writable: bool


def gpus(found: Gpus | None, wanted: int | None) -> Iterator[Finding]:
    """Count, driver and memory. `wanted` is what one server takes; None: no server in view."""
    if found is None or not found.cards:
        yield _none(found, wanted)
        return
    kinds = Counter(card.name for card in found.cards)
    shown = ", ".join(f"{count} x {name}" for name, count in kinds.items())
    driver = f"driver {found.driver}, up to CUDA {found.cuda}"
    if wanted is not None and len(found.cards) < wanted:
        yield _too_few(found, wanted)
    else:
        enough = "" if wanted is None else f", tp is {wanted}"
        yield Finding("ok", "GPUs", f"{shown} ({driver}){enough}")
    if len(kinds) > 1:
        yield Finding(
            "doubt", "GPUs", f"they differ ({shown}), the slowest sets the pace",
            "choose equal ones with CUDA_VISIBLE_DEVICES in server.env",
        )  # fmt: skip
    yield from _memory(found)


def _none(found: Gpus | None, wanted: int | None) -> Finding:
    if wanted is None:
        return Finding("ok", "GPUs", "NVML shows none: simulated sweeps and plans need none")
    if found is not None:
        return _too_few(found, wanted)
    return Finding(
        "doubt",
        "GPUs",
        "NVML does not show them (no NVIDIA driver, or CUDA_VISIBLE_DEVICES names what it does not "
        f"know), and tp is {wanted}",
        "run nvidia-smi on the machine that serves, or write device: cpu in server.flags",
    )


def _too_few(found: Gpus, wanted: int) -> Finding:
    return Finding(
        "stop",
        "GPUs",
        f"{len(found.cards)} visible and tp is {wanted}",
        "lower model.tp, or look at CUDA_VISIBLE_DEVICES",
    )


def _memory(found: Gpus) -> Iterator[Finding]:
    crowded = [card for card in found.cards if card.used > CROWDED_SHARE * card.total]
    for card in crowded:
        yield Finding(
            "doubt",
            "GPU memory",
            f"GPU {card.index}: {card.used / 2**30:.0f} of {card.total / 2**30:.0f} GiB in use",
            "end what uses it (nvidia-smi names it): SGLang takes a share of what is free",
        )
    if not crowded:
        least = min((card.total - card.used) / 2**30 for card in found.cards)
        yield Finding("ok", "GPU memory", f"{least:.0f} GiB free on each, or more")


def taken(whose: str) -> Finding:
    """`whose` is `GPU 0 is used by the specbench run ...`."""
    right = "wait for it, set CUDA_VISIBLE_DEVICES to other GPUs, or sweep with --share-gpus"
    return Finding("stop", "GPUs", whose, right)


def links(found: Gpus | None) -> Iterator[Finding]:
    """NVLink or PCIe, and P2P. Says nothing of a single GPU."""
    if found is None or not found.links:
        return
    ways = Counter((link.way, link.peer) for link in found.links)
    for (way, peer), count in ways.items():
        pairs = f"{count} of {len(found.links)} pairs of GPUs: {way or 'way not told'}"
        if peer is None:
            yield Finding(
                "doubt", "topology", f"{pairs}, the driver does not tell whether P2P works",
                "see nvidia-smi topo -p2p r",
            )  # fmt: skip
        elif not peer:
            yield Finding(
                "doubt", "topology", f"{pairs}, without P2P: NCCL copies through host memory",
                "see nvidia-smi topo -p2p r and the IOMMU's settings; vary NCCL_P2P_DISABLE and "
                "NCCL_PROTO in space.env",
            )  # fmt: skip
        else:
            yield Finding("ok", "topology", f"{pairs}, P2P")


def ports(trouble: str | None) -> Finding:
    """`trouble` is why no port was found, None where one was."""
    if trouble is None:
        return Finding("ok", "ports", "a free one was found")
    return Finding("stop", "ports", trouble, "end servers that nobody needs any more")


def disk(found: Disk) -> Finding:
    """Where the run folder goes."""
    free = f"{found.free / 2**30:.1f} GiB free at {found.folder}"
    if not found.writable:
        todo = "choose another folder with --out"
        return Finding("stop", "disk", f"{found.folder} cannot be written", todo)
    if found.free < ENOUGH_BYTES:
        return Finding("doubt", "disk", free, "make room, or choose another folder with --out")
    return Finding("ok", "disk", free)


def variables(inherited: Mapping[str, str], settled: Collection[str]) -> Finding:
    """NCCL_* and SGLANG_* of the shell; `settled` are those that the sweep sets or varies."""
    loose = [
        f"{name}={value}"
        for name, value in inherited.items()
        if name not in settled and name != "CUDA_VISIBLE_DEVICES"
    ]
    if not loose:
        return Finding("ok", "variables", "every server inherits no NCCL_* or SGLANG_* setting")
    return Finding(
        "doubt", "variables", f"every server, the baseline too, inherits {', '.join(loose)}",
        "unset them, or write them in server.env, so that the next run has them as well",
    )  # fmt: skip


_SQLITE = "sqlite:///"


def storage(url: str | None) -> Finding:
    """Opens the storage as a sweep does, but makes no SQLite file that is not there."""
    from tuner.search.optuna_storage import StorageUnusable, open_storage

    if url is None:
        return Finding("ok", "storage", "study.db in the run folder")
    if url.startswith(f"{_SQLITE}file:") or "?" in url:
        return Finding("ok", "storage", "not looked at: its URL has options")
    if url.startswith(_SQLITE) and not (file := Path(url.removeprefix(_SQLITE))).exists():
        if file.parent.is_dir():
            return Finding("ok", "storage", f"{file} will be made")
        todo = f"make the folder {file.parent}"
        return Finding("stop", "storage", f"there is no folder for {file}", todo)
    try:
        open_storage(url)
    except StorageUnusable as error:
        todo = "give an Optuna storage URL as search.storage"
        return Finding("stop", "storage", f"it cannot be used ({error})", todo)
    return Finding("ok", "storage", "it opens")


def fits(checked: Checked, fitting: Checked, memory: MemoryEstimator) -> Iterator[Finding]:
    """Points that cannot fit, and the estimate of the first server that drafts.

    `checked` is the sweep before such points were taken out, `fitting` after.
    """
    left = [*fitting.loaded.space.points]
    known = dict(checked.loaded.space.excluded)
    gone = [why for at, why in fitting.loaded.space.excluded.items() if at not in known]
    for why, count in Counter(gone).items():
        yield Finding(
            "doubt", "memory", f"{count} points are left out: {why}",
            "raise model.tp, or write another draft_tp",
        )  # fmt: skip
    sweep = fitting.loaded.sweep
    found = memory.memory(server_config(sweep, left[0] if left else None))
    name = left[0].label() if left else "no speculation"
    message = f"{name}, GiB on each GPU: {words(found, memory.gpu)}"
    if found.is_tight(memory.gpu):
        todo = "raise mem-fraction-static or model.tp; docs/memory.md says what is assumed"
        yield Finding("doubt", "memory", message, todo)
    else:
        yield Finding("ok", "memory", message)
