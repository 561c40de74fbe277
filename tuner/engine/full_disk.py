"""Whether a disk is full: servers that cannot write end with anything but that as their reason."""

import errno
import tempfile
from pathlib import Path

from tuner.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE = b"\0" * 65536


def refuse_full_disk(log: Path) -> None:
    """Raises UserError where there is no space left beside a server's log."""
    try:
        with tempfile.TemporaryFile(dir=log.parent) as file:
            file.write(_PROBE)
            file.flush()
    except OSError as error:
        if error.errno not in _FULL:
            return
        message = f"{error.strerror}, which ended a server; free some space and resume the run"
        raise UserError(message, log) from error
