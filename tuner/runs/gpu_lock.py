"""One specbench run on a GPU at a time.

Two runs on one GPU measure each other. So whatever measures on GPUs here locks a file for each one
that it uses, by the GPU's UUID, in a folder of this user's; the kernel ends the lock with
the process, however that ends. Servers do not inherit it. What strangers hold of a GPU is no claim:
that is told as a doubt (engine/gpu.py).
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, Any

from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.runs.crash_recovery import lock_soon
from tuner.runs.ledger import Ledger
from tuner.server.gpu import ask_nvml
from tuner.server.lifecycle import LOCAL
from tuner.sglang.server_settings import Launches

FOLDER_VARIABLE = "SPECBENCH_GPU_LOCKS"
"""The folder of the locks, where it is not /tmp/specbench-UID: not TMPDIR, which batch jobs have
each of their own."""
OWN_FOLDER = f"remove it, or name a folder of your own as {FOLDER_VARIABLE}"


@dataclass
class GpuClaims:
    """The GPUs that a run holds."""

    gpus: Mapping[str, str]
    """UUIDs, by the GPUs' names in CUDA_VISIBLE_DEVICES."""
    notes: tuple[str, ...] = ()
    """What the run should say about it."""
    _files: list[IO[bytes]] = field(default_factory=list)

    def tell(self, run: Path) -> None:
        """Say in the locks which run has them, for whoever is refused."""
        told = {"run": str(run.resolve()), "pid": os.getpid()}
        data = json.dumps(told).encode("utf-8", errors="backslashreplace")
        for file in self._files:
            with suppress(OSError):  # a full disk: the lock holds all the same
                file.seek(0)
                file.truncate()
                file.write(data)
                file.flush()


def gpus_used(sweep: Sweep, inherited: Mapping[str, str]) -> dict[str, str]:
    """UUIDs of the GPUs that the sweep's servers use here, by name; {} where there are none.

    As many of the visible ones as a server has ranks, times `slots`, from `base-gpu-id` on in
    steps of `gpu-id-step`; all of them where a dimension of the space decides.
    """
    launches, prefix = Launches(sweep, inherited), sweep.engine.command
    elsewhere = bool(prefix) and PurePath(prefix[0]).name not in LOCAL
    if not sweep.engine.uses_gpus or elsewhere or not launches.takes_gpus:
        return {}
    visible = visible_gpus(launches.environment)
    varied = {*sweep.space.flags, *sweep.baseline.flags, *launches.varied}
    if varied & {"base-gpu-id", "gpu-id-step", "CUDA_VISIBLE_DEVICES"}:
        return visible
    first, step = (_whole(launches.flag(name), usual) for name, usual in _PLACES)
    count = gpu_count(sweep)
    if sweep.slots == "auto":
        count *= max(1, len(visible) // max(1, count))
    else:
        count *= sweep.slots
    return dict(islice(visible.items(), first, first + count * step, step))


def visible_gpus(environment: Mapping[str, str]) -> dict[str, str]:
    """UUIDs by name of the GPUs that CUDA would show, in its order; {} where NVML knows none."""
    return ask_nvml(environment, _uuids) or {}


_PLACES = (("base-gpu-id", 0), ("gpu-id-step", 1))


def _whole(value: Any, usual: int) -> int:
    return value if type(value) is int and value >= usual else usual


def _uuids(nvml: Any, handles: Mapping[str, Any]) -> dict[str, str]:
    found = {name: nvml.nvmlDeviceGetUUID(handle) for name, handle in handles.items()}
    return {n: u.decode() if isinstance(u, bytes) else str(u) for n, u in found.items()}


@contextmanager
def claimed(
    gpus: Mapping[str, str], inherited: Mapping[str, str], *, share: bool
) -> Iterator[GpuClaims]:
    """Hold these GPUs, UUIDs by name, while the block runs.

    Raises UserError where another run has one of them; with `share` that is a note. Where no lock
    can be had at all, that is a note too.
    """
    with ExitStack() as stack:
        claims = GpuClaims(gpus)
        if gpus:
            try:
                folder = _folder(inherited)
                files = {name: stack.enter_context(_open(folder, gpus[name])) for name in gpus}
                _lock(claims, files, share=share)
            except OSError as error:
                claims.notes = (f"{_not_known(error)}; {OWN_FOLDER}",)
        yield claims


def _not_known(error: OSError) -> str:
    why = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"whether another specbench uses these GPUs is not known: {why}"


def _lock(claims: GpuClaims, files: Mapping[str, IO[bytes]], *, share: bool) -> None:
    """In the order of their UUIDs, so that of two that begin at once one gets all."""
    for name in sorted(files, key=lambda each: claims.gpus[each]):
        if lock_soon(files[name]):
            with suppress(OSError):
                files[name].truncate(0)  # what the last one said
            claims._files.append(files[name])
            continue
        taken = f"GPU {name} is used by {_holder(files[name])}"
        if not share:
            raise UserError(
                f"{taken}: two runs on one GPU measure each other; wait for it, set "
                "CUDA_VISIBLE_DEVICES to other GPUs, or begin all the same with --share-gpus"
            )
        claims.notes = (*claims.notes, f"{taken}, which is measured along with this run")


def _holder(file: IO[bytes]) -> str:
    """Who says that it has the lock; it may be about to say so."""
    try:
        file.seek(0)
        told = json.loads(file.read(65536))
        return f"the specbench run {told['run']} (process {int(told['pid'])})"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return "another specbench run"


def why_not_known(gpus: Mapping[str, str], inherited: Mapping[str, str]) -> str | None:
    """Why it cannot be told whether another run has one of these GPUs; None where it can."""
    try:
        folder = _folder(inherited) if gpus else Path()
        for uuid in gpus.values():
            with _open(folder, uuid):
                pass
    except OSError as error:
        return _not_known(error)
    return None


def holders(sweep: Sweep, inherited: Mapping[str, str]) -> list[str]:
    """`GPU 0 is used by the specbench run ...` for each that is; takes nothing."""
    found = []
    with suppress(OSError), ExitStack() as stack:
        folder = _folder(inherited)
        for name, uuid in gpus_used(sweep, inherited).items():
            file = stack.enter_context(_open(folder, uuid))
            if not lock_soon(file):
                found.append(f"GPU {name} is used by {_holder(file)}")
    return found


def _folder(inherited: Mapping[str, str]) -> Path:
    """Where the locks are: this user's alone, since whoever writes there could hold up every run.

    Raises OSError where it is somebody else's.
    """
    # /tmp: the runs of one user on one host must meet, whatever session they are of.
    usual = f"/tmp/specbench-{os.getuid()}"  # noqa: S108 - whose it is, is looked at
    folder = Path(inherited.get(FOLDER_VARIABLE) or usual)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is no folder of this user's alone")
    return folder


@contextmanager
def _open(folder: Path, uuid: str) -> Iterator[IO[bytes]]:
    """The file of a GPU. It stays: to remove it would let two hold it. Raises OSError."""
    path = folder / re.sub(r"[^A-Za-z0-9-]", "_", uuid)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        yield file
        fcntl.flock(file, fcntl.LOCK_UN)


@dataclass(frozen=True)
class Spent:
    """Time of servers, launching and under load."""

    hours: float
    gpus: int
    """That each server holds."""
    unknown: int
    """Launches that ended before they said how long they took, those before a retry and those that
    were cut off among them: `hours` is without them."""

    @property
    def gpu_hours(self) -> float:
        """Of all GPUs together."""
        return self.hours * self.gpus

    def paid_back_after(self, speedup: float) -> float | None:
        """Hours of serving, at that many times the baseline's speed, that save as much as was
        spent; None where nothing is saved. Each such hour does the work of `speedup` hours."""
        return self.hours / (speedup - 1) if speedup > 1 else None


def spent(ledger: Ledger, sweep: Sweep) -> Spent | None:
    """None where nothing is known, and for a server that this run did not launch."""
    launches = {record.launch_id: record.launch_s for record in ledger.records}
    known = [seconds for seconds in launches.values() if seconds is not None]
    measured = [r.measured_s for r in ledger.records if r.measured_s is not None]
    if not sweep.engine.launches_servers or not known:
        return None
    seconds = sum(known) + sum(measured)
    return Spent(seconds / 3600, gpu_count(sweep), ledger.next_launch - len(known))


def gpu_count(sweep: Sweep) -> int:
    """GPUs that a server holds: tensor-parallel ranks by pipeline stages, times replicas without DP
    attention."""
    flags = sweep.server.flags
    if flags.get("device") == "cpu":
        return 0
    replicas = _size(sweep, "dp-size", "data-parallel-size")
    stages = _size(sweep, "pp-size", "pipeline-parallel-size")
    return sweep.model.tp * stages * (1 if flags.get("enable-dp-attention") else replicas)


def _size(sweep: Sweep, *names: str) -> int:
    sizes = [sweep.server.flags.get(name) for name in names]
    return max([size for size in sizes if isinstance(size, int)], default=1)
