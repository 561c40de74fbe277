"""The names in a run folder. Every one of them is spelled here and nowhere else."""

import hashlib
from pathlib import Path

from tuner.core.errors import UserError
from tuner.core.files import read_bytes
from tuner.server.pid_file import footprints


class RunFolder:
    """Where a run keeps what; touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """The folder's name; also the study's."""
        return self.path.resolve().name

    @property
    def sweep_file(self) -> Path:
        """The sweep file, byte for byte as it was given but for its secrets."""
        return self.path / "sweep.yaml"

    @property
    def settings_file(self) -> Path:
        return self.path / "run.json"

    @property
    def machine_file(self) -> Path:
        return self.path / "machine.json"

    @property
    def models_file(self) -> Path:
        """The models' config.json; see `ledger.models_kept`."""
        return self.path / "models.json"

    @property
    def trials_file(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def study_file(self) -> Path:
        """SQLite, for optuna-dashboard; derived from trials.jsonl."""
        return self.path / "study.db"

    @property
    def conversations_file(self) -> Path:
        """Conversations whose answers a server of this run wrote, as a prompt file of specbench's
        own shape; there only where the prompts had none. See `campaign.conversations`."""
        return self.path / "conversations.jsonl"

    @property
    def conversations_hash(self) -> str | None:
        """Of that file's bytes; None where there is none."""
        try:
            return hashlib.sha256(read_bytes(self.conversations_file)).hexdigest()[:16]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{error.strerror}, restore it", self.conversations_file) from error

    @property
    def comm_file(self) -> Path:
        """What the stage comm measured, or why it did not."""
        return self.path / "comm.json"

    @property
    def fleet_file(self) -> Path:
        """Of a worker's run: who else took part in the search."""
        return self.path / "fleet.json"

    @property
    def state_file(self) -> Path:
        """What the run is doing; there only while a specbench holds it. See `ledger.at_work`."""
        return self.path / "state.json"

    @property
    def ended_file(self) -> Path:
        """How the last call on the run ended. See `ledger.ended`."""
        return self.path / "ended.json"

    @property
    def stop_file(self) -> Path:
        """Asks the specbench that holds the run to begin no further trial."""
        return self.path / "stop"

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
    def folders(self) -> list[Path]:
        """The run folder and those in it that a run writes to; links lead elsewhere."""
        within = (self.logs, self.samples, self.figures)
        return [self.path, *(each for each in within if not each.is_symlink())]

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

    @property
    def results(self) -> list[Path]:
        """What there is of the report, its figures and what the user takes to production."""
        named = [self.report_md, self.report_html, self.best_yaml, self.best_sh, self.adaptive_json]
        return [*(file for file in named if file.is_file()), *sorted(self.figures.glob("*.png"))]

    def log_file(self, launch_id: int) -> Path:
        """The server's output of one launch."""
        return self.logs / f"{launch_id:04d}.log"

    def log_files(self) -> dict[int, Path]:
        """Those that are there, by launch."""
        found = [file for file in self.logs.glob("*.log") if file.stem.isdecimal()]
        return {int(file.stem): file for file in sorted(found)}

    @property
    def running(self) -> list[Path]:
        """Footprints of servers that were started and not stopped; see `engine.footprint`."""
        return footprints(self.logs)

    def free_launch(self, launch_id: int) -> int:
        """This launch id, or the next one without a log.

        A launch that a crash cut off is in no record; its log is kept, and its server may still
        be writing it.
        """
        while self.log_file(launch_id).exists():
            launch_id += 1
        return launch_id

    def samples_file(self, trial: int, of: str = "") -> Path:
        """The raw samples of one trial, or `of` something besides its windows."""
        return self.samples / f"{trial:04d}{of and '.'}{of}.jsonl.gz"

    def held_out_file(self, trial: int) -> Path:
        """The raw samples of one trial on prompts that no candidate was chosen on."""
        return self.samples / f"{trial:04d}.held_out.jsonl.gz"

    def within(self, recorded: str) -> Path:
        """The file that a ledger line names, relative to the run folder.

        Raises UserError where it leads out of the folder, also by a link: the folder may be a
        stranger's, and what is read of it is shown.
        """
        path = self.path / recorded
        try:
            is_inside = path.resolve().is_relative_to(self.path.resolve())
        except (OSError, ValueError, RuntimeError):  # a loop of links, a zero byte
            is_inside = False
        if not is_inside:
            message = "this leads out of the run folder and is not read, restore the file itself"
            raise UserError(message, path)
        return path

    def relative(self, path: Path) -> str:
        """A path in the folder, as records keep it."""
        return path.relative_to(self.path).as_posix()


RESULTS = Path("results")
"""Where runs are, where nobody says otherwise."""


def newest_runs(below: Path = RESULTS) -> list[Path]:
    """Runs in a sweep's folder, or in the folders of several sweeps; the newest first."""
    found = [file.parent for deep in ("*", "*/*") for file in below.glob(f"{deep}/run.json")]
    return sorted(found, key=_age, reverse=True)


def describe_missing_run(path: Path) -> str:
    """What is wrong with a path that is given as a run and is none, and what would be right."""
    inside = newest_runs(path)
    right = f"its newest run is {inside[0]}" if inside else "give results/NAME/RUN-ID"
    return f"this is no run folder (it has no run.json), {right}"


def _age(path: Path) -> tuple[str, int, str, str]:
    """`20261130-135237-10` came after `20261130-135237-2` of the same second."""
    name = path.name
    return name[:15], len(name), name, str(path)
