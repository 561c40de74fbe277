"""The run folder: made, opened, read, and locked for writing."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any

from tuner.config.load_level import Level, at
from tuner.config.schema import Sweep
from tuner.config.space import Space
from tuner.config.yaml_document import Document, read_document
from tuner.core.errors import UserError
from tuner.core.files import opened, read_bytes, write_json, write_text
from tuner.core.secrets import hidden_values
from tuner.metrics.samples_file import read_samples
from tuner.runs.crash_recovery import end_servers, hold, is_locked
from tuner.runs.ledger import READ_BUFFER_BYTES, Ledger, parse_ledger
from tuner.runs.machine import machine_facts, read_machine
from tuner.runs.model_configs import keep_configs, read_configs
from tuner.runs.records import TrialRecord, read_record
from tuner.runs.run_folder import RunFolder
from tuner.runs.settings import RunSettings, read_settings
from tuner.runs.status import forget_state
from tuner.sglang.memory.model_shape import Configs


class Run(RunFolder):
    """One execution of a sweep, as a folder. Make it with `create` or `open`."""

    def __init__(self, path: Path, settings: RunSettings) -> None:
        super().__init__(path)
        self.settings = settings
        self._writing: FileIO | None = None
        self._held: Ledger | None = None

    @classmethod
    def create(
        cls,
        root: Path,
        sweep_text: str,
        settings: RunSettings,
        machine: dict[str, Any] | None = None,
        document: Document | None = None,
    ) -> "Run":
        """Make a run folder in `root`, named by the time (UTC), with a suffix if that exists.

        `sweep_text` is kept as it is: the caller has hidden its secrets. `machine` is what
        measures; None means this machine. `document` is what `sweep_text` holds, if the caller
        has read it.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        try:
            path = _new_folder(root, stamp)
            run = cls(path, settings)
            write_text(run.sweep_file, sweep_text)
            write_json(run.machine_file, machine or machine_facts())
            write_json(run.settings_file, settings.model_dump())
            run.trials_file.touch()
            for folder in (run.logs, run.samples):
                folder.mkdir()
            if document is not None:
                run.document = document
        except OSError as error:
            message = f"{error.strerror}, give a folder that can be written to"
            raise UserError(message, error.filename or root) from error
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """An existing run. Raises UserError where `path` is none, or a newer specbench's."""
        return cls(path, read_settings(path))

    @property
    def resume_command(self) -> str:
        """What goes on with the run, as a shell reads it."""
        path = shlex.quote(str(self.path))
        if self.settings.worker is None:
            return f"specbench sweep --resume {path}"
        return f"specbench worker --resume {path} --storage URL"

    def sweep_text(self) -> str:
        """The sweep file as it was given, its secrets as `${NAME}`.

        Raises UserError where it is gone or broken.
        """
        try:
            return read_bytes(self.sweep_file).decode("utf-8")
        except OSError as error:
            message = f"{error.strerror}, restore the sweep file that the run began with"
            raise UserError(message, self.sweep_file) from error
        except ValueError as error:
            raise UserError("this is not UTF-8 text, restore it", self.sweep_file) from error

    def sweep(self) -> Sweep:
        """The sweep as it runs, with the command line's engine and trials. No prompts are read."""
        search = self._sweep.search.model_copy(update={"trials": self.settings.wanted})
        return self._sweep.model_copy(update={"search": search})

    @cached_property
    def document(self) -> Document:
        """The run's copy of the sweep file, read once. Raises UserError if it cannot be read."""
        return read_document(self.sweep_text(), str(self.sweep_file))

    @cached_property
    def space(self) -> Space:
        """The points of the sweep, before an engine has checked them."""
        return Space.from_sweep(self._sweep, self.document)

    @cached_property
    def _sweep(self) -> Sweep:
        value = self.document.value
        try:
            if self.settings.engine is not None:
                value = {**value, "engine": {**value["engine"], "kind": self.settings.engine}}
            return Sweep.model_validate(value)
        except (ValueError, TypeError, KeyError) as error:
            message = "this is not the sweep file that the run began with. Restore it."
            raise UserError(message, self.sweep_file) from error

    def machine(self) -> dict[str, Any]:
        """machine.json. Raises UserError where it is gone or broken."""
        return read_machine(self.machine_file)

    def configs(self) -> Configs:
        """models.json. Raises UserError where it is broken."""
        return read_configs(self.models_file)

    def ledger(self) -> Ledger:
        """Every trial so far. Raises UserError with FILE:LINE for a line that is none.

        While this process holds the run nobody else writes it, so it is not read again.
        """
        if self._held is not None:
            return self._held
        try:
            with opened(self.trials_file, READ_BUFFER_BYTES) as lines:
                return parse_ledger(lines, self.trials_file)
        except OSError as error:
            raise UserError(f"{error.strerror}, restore it", self.trials_file) from error

    def records(self) -> tuple[TrialRecord, ...]:
        """The ledger's trials alone."""
        return self.ledger().records

    @property
    def is_being_written(self) -> bool:
        """Another process holds the run now."""
        try:
            if not self.trials_file.is_file():
                return False
            with self.trials_file.open("rb") as file:
                return is_locked(file)
        except OSError:
            return False

    @contextmanager
    def locked(self) -> Iterator[str | None]:
        """Hold the run for writing, and clear away what a crash left; keep what the models are.

        Cuts off a last line that is half written, and ends servers that a killed specbench left
        running here or in a run beside this one. Yields what was done of that, as a sentence, or
        None. Raises UserError where another process holds the run, or where the ledger is no
        ground for more trials. The lock ends with the process.
        """
        try:
            opened(self.trials_file).close()  # a pipe can be written to as well
            file = self.trials_file.open("r+b", buffering=0)
        except OSError as error:
            raise UserError(f"{error.strerror}, it must be writable", self.trials_file) from error
        with file:
            if not hold(file):
                message = "another specbench is writing this run, wait for it or stop it"
                raise UserError(message, self.path)
            with opened(self.trials_file, READ_BUFFER_BYTES) as lines:
                ledger = parse_ledger(lines, self.trials_file)
            if ledger.records:
                refuse_unusable(self, ledger)
            file.truncate(ledger.size)
            file.seek(ledger.size)
            notes = [*([ledger.note] if ledger.note else []), *end_servers(self)]
            keep_configs(self.models_file, self.sweep(), self.settings.models)
            self._writing, self._held = file, Ledger(ledger.records, size=ledger.size)
            forget_state(self)
            try:
                yield "; ".join(notes) or None
            finally:
                self._writing = self._held = None
                forget_state(self)
                with suppress(UserError):  # a model that a server has fetched; its absence is shown
                    keep_configs(self.models_file, self.sweep(), self.settings.models)

    def append(self, *records: TrialRecord) -> None:
        """Append a line per trial and wait until the lines are on the disk. Only inside `locked`.

        Raises UserError if the disk is full; the ledger is then as it was before.
        """
        assert self._writing is not None and self._held is not None, "append is for a locked run"
        lines = [ledger_line(record) for record in records]
        kept = [read_record(line, str(self.trials_file)) for line in lines]
        written = "".join(f"{line}\n" for line in lines).encode("utf-8")
        before = self._writing.tell()
        left = memoryview(written)
        try:
            while left:
                left = left[self._writing.write(left) :]
            synced(self._writing)
        except OSError as error:
            with suppress(OSError):  # a half line that stays is cut off by the next `locked`
                self._writing.truncate(before)
                self._writing.seek(before)
            message = f"{error.strerror}, free some space and resume the run"
            raise UserError(message, self.trials_file) from error
        self._held = Ledger((*self._held.records, *kept), size=before + len(written))

    def extend_to(self, trials: int) -> None:
        """Want this many candidates from now on, also after an interruption."""
        self.settings = self.settings.model_copy(update={"extended_to": trials})
        try:
            write_json(self.settings_file, self.settings.model_dump())
        except OSError as error:
            message = f"this cannot be written: {error.strerror}, give a run that can be"
            raise UserError(message, self.settings_file) from error


def ledger_line(record: TrialRecord) -> str:
    """Return a trial as JSON on one line, its secrets as `${NAME}`."""
    return hidden_values(json.dumps(record.model_dump(), ensure_ascii=False, allow_nan=False))


def synced(file: FileIO) -> None:
    """What was written is on the disk when this returns. Raises OSError."""
    os.fsync(file.fileno())


def _new_folder(root: Path, stamp: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    suffix = 1
    while True:
        path = root / (stamp if suffix == 1 else f"{stamp}-{suffix}")
        try:
            path.mkdir()
        except FileExistsError:
            suffix += 1
        else:
            return path


def refuse_unusable(run: Run, ledger: Ledger) -> None:
    """Raise UserError if a candidate is not in the space or the baseline cannot be used."""
    sweep = run.sweep()
    if not sweep.engine.launches_servers:  # has its own point, and nothing to compare it with
        return
    _refuse_foreign_points(run, ledger, run.space)
    _refuse_baseline(run, ledger, sweep.workload.levels)


def _refuse_foreign_points(run: RunFolder, ledger: Ledger, space: Space) -> None:
    known = set(space.points)
    settings = {its for point in space.points if (its := point.settings) is not None}
    for number, record in enumerate(ledger.records, start=1):
        if record.role in ("baseline", "abreast"):
            continue
        point = record.at
        if point in known or (record.role == "plain" and point in settings):
            continue
        what = "no point" if point is None else f"the point {point.label()}"
        raise UserError(
            f"trial {record.trial} has {what}, which is not in the sweep's space: restore the "
            "line or begin a new run",
            f"{run.trials_file}:{number}",
        )


def _refuse_baseline(run: RunFolder, ledger: Ledger, levels: Sequence[Level]) -> None:
    """Its samples are what candidates are compared with, level by level."""
    baseline = ledger.baseline
    if baseline is None:
        return
    where = f"{run.trials_file}:{ledger.records.index(baseline) + 1}"
    if baseline.samples is None:
        message = "the baseline has no samples to compare candidates with, begin a new run"
        raise UserError(message, where)
    path = run.within(baseline.samples)
    found = read_samples(path)
    missing = [str(level) for level in levels if not found.get(level)]
    if missing:
        message = f"these are the baseline's samples and have none {at(missing[0])}"
        raise UserError(f"{message}, restore them or begin a new run", path)
