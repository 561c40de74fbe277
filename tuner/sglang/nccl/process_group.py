"""One process group under one setting: started, let measure, ended; nothing is left of it."""

import json
import os
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core.errors import Failure, UserError
from tuner.server.all_reduce import Setting
from tuner.server.log_file import log_tail
from tuner.server.process import ProcessTree, child_environment

CHILD = Path(__file__).with_name("child.py")
_MARK = "SPECBENCH_COMM "
IMPORT_LIMIT_S = 180.0
"""Until torch is imported, which a cold disk makes slow; a setting has no part in it."""
_STARTING = "in starting torch"
_REDUCING = "in its first all-reduce"
_MEASURING = "in measuring"
LEAVE_LIMIT_S = 3.0
BUDGET_S = 0.2
PAUSE_S = 0.02


@dataclass(frozen=True)
class GroupOrder:
    """What every group of a benchmark is told, whatever its setting."""

    program: tuple[str, ...]
    """Prefix and interpreter."""
    world: int
    device: str
    """cuda or cpu."""
    sizes: tuple[tuple[int, int], ...]
    """Elements of each message and the ranks of a group that reduces it, 0: all."""
    dtype: str
    limit_s: float
    """Seconds that a group may take to its first all-reduce, and again for its measurement."""
    first_gpu: int = 0
    gpu_step: int = 1
    batch: int = 20
    """All-reduces of one graph, and between two readings of the clock."""
    budget_s: float = BUDGET_S
    """Seconds to spend on one message size, as far as the smallest number of batches allows."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that every group has; a setting's win."""
    unset: frozenset[str] = frozenset()
    """Variables that are removed where the setting does not set them."""

    def words(self, folder: Path) -> list[str]:
        """The child's command line."""
        given = {
            "world": self.world,
            "device": self.device,
            "first_gpu": self.first_gpu,
            "gpu_step": self.gpu_step,
            "dtype": self.dtype,
            "sizes": [list(each) for each in self.sizes],
            "folder": str(folder),
            "batch": self.batch,
            "budget_s": self.budget_s,
        }
        return [*self.program, str(CHILD), json.dumps(given)]


@dataclass(frozen=True)
class Trouble:
    """Why a group gave no figures."""

    failure: Failure
    message: str


class Group:
    """The processes of one setting. Call `stop` whatever happens."""

    def __init__(self, setting: Setting, order: GroupOrder, folder: Path) -> None:
        self.setting = setting
        self.trouble: Trouble | None = None
        self._order = order
        self._folder = folder
        self._log = folder / "log"
        wanted = dict(setting.env)
        environment = child_environment(
            {**order.env, **wanted},
            order.unset - set(wanted),
            f"specbench-{uuid.uuid4().hex[:16]}",
        )
        self._tree = ProcessTree(order.words(folder), environment, self._log)
        self._deadline = 0.0
        self._counting_from, self._limit = _STARTING, IMPORT_LIMIT_S
        self._read = 0
        self._rest = b""
        self.said: list[dict[str, Any]] = []

    def start(self) -> None:
        """Start the processes. Raises UserError where the interpreter cannot be run."""
        self._folder.mkdir(parents=True)
        try:
            self._tree.start()
        except OSError as error:
            raise UserError(
                f"cannot run {self._order.program[0]}: {error.strerror}; check engine.command and "
                "engine.python, or give --python"
            ) from error
        self._count(_STARTING, IMPORT_LIMIT_S)

    @property
    def is_settled(self) -> bool:
        """Ready for its turn, or in trouble."""
        return self.trouble is not None or self._has("ready")

    @property
    def is_done(self) -> bool:
        """Measured, or in trouble."""
        return self.trouble is not None or self._has("done")

    def begin_turn(self) -> None:
        """Let a settled group measure."""
        (self._folder / "turn").touch()
        self._count(_MEASURING, self._order.limit_s)

    def look(self) -> None:
        """Read what the group has said and judge whether it is in trouble; then it is ended.

        Raises UserError where no setting at all can be measured with this interpreter.
        """
        if self.trouble is not None:
            return
        status = self._tree.exit_status()
        self._hear()
        for line in self.said:
            if "refused" in line:
                raise UserError(f"{line['refused']}: give another --python, --tp or --device cpu")
        if self._has("imported") and self._counting_from == _STARTING:
            self._count(_REDUCING, self._order.limit_s)
        error = next((line for line in self.said if "error" in line), None)
        if error is not None:
            self._give_up(Failure.CRASH, f"rank {error['rank']}: {error['error']}")
        elif status is not None and not self._has("done"):
            self._give_up(Failure.CRASH, self._last_lines(status))
        elif time.monotonic() > self._deadline and not (self._has("done") or self._waits):
            waited = f"no answer for {self._limit:g} s {self._counting_from}"
            self._give_up(Failure.HANG, waited)
        else:
            self._tree.observe()

    def sizes(self) -> dict[tuple[int, int], dict[str, Any]]:
        """What was measured, by number of elements and ranks."""
        return {(line["numel"], line["ranks"]): line for line in self.said if "numel" in line}

    def ready_facts(self) -> dict[str, Any]:
        """What the group is made of; empty before it is ready."""
        return next((line for line in self.said if line.get("stage") == "ready"), {})

    def dismiss(self) -> None:
        """Ask the group to end by itself, so that NCCL takes down what it built."""
        if self.trouble is None and self._folder.exists():
            (self._folder / "leave").touch()

    def stop(self) -> None:
        """End every process of the group: a dismissed one has a moment to go by itself."""
        left = (self._folder / "leave").exists()
        if left and not isinstance(sys.exception(), KeyboardInterrupt):
            self._tree.wait(LEAVE_LIMIT_S)
        self._tree.stop()

    @property
    def _waits(self) -> bool:
        """Ready, and nobody has let it measure."""
        return self._has("ready") and self._counting_from != _MEASURING

    def _count(self, what: str, limit_s: float) -> None:
        self._counting_from, self._limit = what, limit_s
        self._deadline = time.monotonic() + limit_s

    def _has(self, stage: str) -> bool:
        return any(line.get("stage") == stage for line in self.said)

    def _hear(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            _, mark, text = line.partition(_MARK.encode())
            if not mark:
                continue
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):  # torn by another process's line
                continue
            if isinstance(found, dict):
                self.said.append(found)

    def _last_lines(self, status: int) -> str:
        text = self._log.read_bytes().decode("utf-8", errors="replace")
        lines = [line for line in log_tail(text).splitlines() if line.strip() and _MARK not in line]
        ending = f"exit status {status}" if status >= 0 else f"signal {-status}"
        return f"{ending}, last line: {lines[-1].strip()[:200]}" if lines else ending

    def _give_up(self, failure: Failure, message: str) -> None:
        self.trouble = Trouble(failure, message)
        self._tree.stop()


def usable_cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))
