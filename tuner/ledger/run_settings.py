"""run.json: what a run was begun with beside its sweep file."""

from pathlib import Path
from typing import Final, Literal
from uuid import uuid4

from pydantic import Field, ValidationError

from tuner import __version__
from tuner.errors import UserError
from tuner.ledger.fleet_line import WorkerSettings
from tuner.ledger.newest import no_run_words
from tuner.sweep.fields import Strict
from tuner.whole import read_json

FORMAT: Final = 1
"""Of run.json; trials.jsonl has its own."""


class RunSettings(Strict):
    """run.json: what the command line and the prompts added to the sweep file."""

    format: Literal[1] = FORMAT
    specbench: str = __version__
    """The version that began the run."""
    identity: str = Field(default_factory=lambda: uuid4().hex)
    """Random: tells this run from another one that began in the same second elsewhere."""
    engine: str | None = None
    """`--engine`, where it was given."""
    worker: WorkerSettings | None = None
    """Where the run is a worker's."""
    trials: int
    """Candidates that the run was begun with; samplers plan by it, so it never changes."""
    extended_to: int | None = None
    """Candidates wanted since `--trials +N`."""
    prompts: str
    """Content hash of the prompts."""
    prompts_there: int | None = None
    """How many of them there are; None in a run of an older version."""
    prompts_read: str | None = None
    """How a file of prompts was read: its shape, how many of each kind, what was left out."""
    task: str | None = None
    """Content hash of the task; None without one."""
    beside: str | None = None
    """The folder that the sweep file lay in, where a file of prompts is looked for."""
    models: dict[str, dict[str, str | None]] = Field(default_factory=dict)
    """`target` and `draft` as they lay here: `{name, source, revision, digest}`, see
    engine/sglang/revisions.py; {} where nothing was known."""

    @property
    def wanted(self) -> int:
        """Candidates to measure in all."""
        return self.extended_to or self.trials


def read_settings(path: Path) -> RunSettings:
    """Those of the run in that folder. Raises UserError where it is none or of a newer version."""
    settings_file = path / "run.json"
    try:
        data = read_json(settings_file)
    except FileNotFoundError as error:
        raise UserError(no_run_words(path), path) from error
    except OSError as error:
        raise UserError(f"{error.strerror}, give the path of a run folder", path) from error
    except (ValueError, RecursionError) as error:
        raise UserError("this is not JSON, restore it or begin a new run", settings_file) from error
    found = data.get("format") if isinstance(data, dict) else None
    if isinstance(found, bool):  # true is 1 to Python
        raise UserError("format is no number, restore it or begin a new run", settings_file)
    if isinstance(found, int) and found > FORMAT:
        message = f"the run has format {found}, this specbench reads up to {FORMAT}: upgrade it"
        raise UserError(message, settings_file)
    try:
        return RunSettings.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        message = f"this is not what specbench wrote: {place}: {first['msg']}"
        raise UserError(message, settings_file) from error
