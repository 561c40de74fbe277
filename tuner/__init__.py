"""specbench: which speculative-decoding configuration serves a model fastest on this hardware."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from tuner.report.dataframes import RunFrames

__version__ = "0.1.0"


def load_run(path: "str | PathLike[str]") -> "RunFrames":
    """A run folder (results/NAME/RUN-ID) as tidy pandas frames, for notebooks.

    Raises `tuner.core.errors.UserError` if it is not a run. Nothing is written, and a run in
    progress can be read: it has the trials so far. pandas is imported only now.

    >>> run = tuner.load_run("results/my_sweep/20261130-022458")
    >>> run.metrics[["label", "concurrency", "output_tok_s", "speedup"]]
    """
    from pathlib import Path

    from tuner.report.dataframes import RunFrames

    return RunFrames(Path(path))
