"""The run folder. Every file name of it is spelled here and nowhere else."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from pydantic import Field, ValidationError

from tuner import __version__
from tuner.errors import UserError
from tuner.ledger.lines import Ledger, parse_ledger
from tuner.ledger.machine import machine_facts
from tuner.ledger.record import TrialRecord
from tuner.sweep.document import read_document
from tuner.sweep.model import Strict, Sweep

FORMAT = 1
"""Of run.json; trials.jsonl has its own."""


class RunSettings(Strict):
    """run.json: what the command line and the prompts added to the sweep file."""

    format: int = FORMAT
    specbench: str = __version__
    """The version that began the run."""
    identity: str = Field(default_factory=lambda: uuid4().hex)
    """Random: tells this run from another one that began in the same second elsewhere."""
    engine: str | None = None
    """`--engine`, where it was given."""
    trials: int
    """Candidates that the run was begun with; samplers plan by it, so it never changes."""
    extended_to: int | None = None
    """Candidates wanted since `--trials +N`."""
    prompts: str
    """Content hash of the prompts."""
    beside: str | None = None
    """The folder that the sweep file lay in, where a file of prompts is looked for."""

    @property
    def wanted(self) -> int:
        """Candidates to measure in all."""
        return self.extended_to or self.trials


class Run:
    """One execution of a sweep, as a folder. Make it with `create` or `open`."""

    def __init__(self, path: Path, settings: RunSettings) -> None:
        self.path = path
        self.settings = settings
        self._writing: BinaryIO | None = None

    @classmethod
    def create(cls, root: Path, sweep_text: str, settings: RunSettings) -> "Run":
        """A new folder in `root`, named by the time (UTC), with a suffix where it is taken."""
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        try:
            path = _new_folder(root, stamp)
            run = cls(path, settings)
            run.sweep_file.write_bytes(sweep_text.encode("utf-8"))
            _write_json(run.machine_file, machine_facts())
            _write_json(run.settings_file, settings.model_dump())
            run.trials_file.touch()
            for folder in (run.logs, run.samples):
                folder.mkdir()
        except OSError as error:
            message = f"{error.strerror}, give a folder that can be written to"
            raise UserError(message, error.filename or root) from error
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """An existing run. Raises UserError where `path` is none, or a newer specbench's."""
        settings_file = path / "run.json"
        try:
            data = json.loads(settings_file.read_bytes())
        except FileNotFoundError as error:
            message = "this is no run folder (it has no run.json), give results/NAME/RUN-ID"
            raise UserError(message, path) from error
        except OSError as error:
            raise UserError(f"{error.strerror}, give the path of a run folder", path) from error
        except ValueError as error:
            raise UserError(
                "this is not JSON, restore it or begin a new run", settings_file
            ) from error
        found = data.get("format") if isinstance(data, dict) else None
        if isinstance(found, int) and found > FORMAT:
            message = f"the run has format {found}, this specbench reads up to {FORMAT}: upgrade it"
            raise UserError(message, settings_file)
        try:
            return cls(path, RunSettings.model_validate(data))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = f"this is not what specbench wrote: {place}: {first['msg']}"
            raise UserError(message, settings_file) from error

    def sweep(self) -> Sweep:
        """The sweep as it runs, with the command line's engine and trials. No prompts are read."""
        try:
            text = self.sweep_file.read_bytes().decode("utf-8")
            data = read_document(text, str(self.sweep_file)).value
            if self.settings.engine is not None:
                data["engine"]["kind"] = self.settings.engine
            sweep = Sweep.model_validate(data)
        except (OSError, ValueError, TypeError, KeyError) as error:
            message = "this is not the sweep file that the run began with, restore it"
            raise UserError(message, self.sweep_file) from error
        search = sweep.search.model_copy(update={"trials": self.settings.wanted})
        return sweep.model_copy(update={"search": search})

    @property
    def id(self) -> str:
        """The folder's name; also the study's."""
        return self.path.resolve().name

    @property
    def sweep_file(self) -> Path:
        """The sweep file, byte for byte as it was given."""
        return self.path / "sweep.yaml"

    @property
    def settings_file(self) -> Path:
        return self.path / "run.json"

    @property
    def machine_file(self) -> Path:
        return self.path / "machine.json"

    @property
    def trials_file(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def study_file(self) -> Path:
        """SQLite, for optuna-dashboard; derived from trials.jsonl."""
        return self.path / "study.db"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def report_md(self) -> Path:
        return self.path / "report.md"

    @property
    def report_html(self) -> Path:
        return self.path / "report.html"

    @property
    def best_yaml(self) -> Path:
        """A sweep file of one point: the winner."""
        return self.path / "best.yaml"

    @property
    def best_sh(self) -> Path:
        return self.path / "best.sh"

    @property
    def adaptive_json(self) -> Path:
        return self.path / "adaptive.json"

    def log_file(self, launch_id: int) -> Path:
        """The server's output of one launch."""
        return self.logs / f"{launch_id:04d}.log"

    def samples_file(self, trial: int) -> Path:
        """The raw samples of one trial."""
        return self.samples / f"{trial:04d}.jsonl.gz"

    def relative(self, path: Path) -> str:
        """A path in the folder, as records keep it."""
        return path.relative_to(self.path).as_posix()

    def machine(self) -> dict[str, Any]:
        """machine.json. Raises UserError where it is gone or broken."""
        try:
            facts: dict[str, Any] = json.loads(self.machine_file.read_bytes())
        except (OSError, ValueError) as error:
            raise UserError("this cannot be read, restore it", self.machine_file) from error
        return facts

    def ledger(self) -> Ledger:
        """Every trial so far. Raises UserError with FILE:LINE for a line that is none."""
        try:
            data = self.trials_file.read_bytes()
        except OSError as error:
            raise UserError(f"{error.strerror}, restore it", self.trials_file) from error
        return parse_ledger(data, self.trials_file)

    def records(self) -> tuple[TrialRecord, ...]:
        """The ledger's trials alone."""
        return self.ledger().records

    @contextmanager
    def locked(self) -> Iterator[str | None]:
        """Hold the run for writing; cuts off a last line that a crash left half written.

        Yields what was cut off, as a sentence, or None. Raises UserError where another process
        holds the run. The lock ends with the process.
        """
        try:
            file = self.trials_file.open("r+b")
        except OSError as error:
            raise UserError(f"{error.strerror}, it must be writable", self.trials_file) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                message = "another specbench is writing this run, wait for it or stop it"
                raise UserError(message, self.path) from error
            data = file.read()
            note = parse_ledger(data, self.trials_file).note
            whole = data.rfind(b"\n") + 1
            file.truncate(whole)
            file.seek(whole)
            self._writing = file
            try:
                yield note
            finally:
                self._writing = None

    def append(self, record: TrialRecord) -> None:
        """Add a line, on the disk when this returns. Only inside `locked`."""
        assert self._writing is not None, "append is for a locked run"
        line = json.dumps(record.model_dump(), ensure_ascii=False, allow_nan=False)
        self._writing.write(line.encode("utf-8") + b"\n")
        self._writing.flush()
        os.fsync(self._writing.fileno())

    def extend_to(self, trials: int) -> None:
        """Want this many candidates from now on, also after an interruption."""
        self.settings = self.settings.model_copy(update={"extended_to": trials})
        _write_json(self.settings_file, self.settings.model_dump())


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


def _write_json(path: Path, data: dict[str, Any]) -> None:
    """Write the whole file or nothing."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
