"""`engine.command`: the words in front of a launch."""

import shutil
from collections.abc import Sequence

from tuner.sweep.document import Document

LOCAL = ("chrt", "env", "ionice", "nice", "numactl", "prlimit", "setarch", "stdbuf", "taskset")
"""Words in front of a launch that leave it on this machine, with its files and GPUs."""


def refuse_missing_program(command: Sequence[str], document: Document) -> None:
    """Raises UserError where the first word is no program of this machine.

    Launches only: a plan may be made on a machine without the program.
    """
    if not command or shutil.which(command[0]) is not None:
        return
    message = f"there is no program '{command[0]}' on this machine, install it or write its path"
    raise document.error(("engine", "command", 0), message)
