"""Files that are there whole or not at all, whatever ends the program or the machine meanwhile.

Written beside their place, onto the disk, and then renamed: the only way in which this package
writes a file that somebody may read later. (trials.jsonl and logs grow instead.)
"""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from tuner.core.secrets import hidden_values

SUFFIX = ".partial"
"""Of a file that is not written to its end; what a crash leaves of it `specbench clean` removes."""


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `file` when the block is through.

    Whatever is raised in the block, `file` is as it was, and nothing lies beside it. A link in the
    place of `file` is replaced, not followed. Processes that write the same file do not meet.
    """
    partial = file.with_name(f"{file.name}.{os.getpid()}{SUFFIX}")
    try:
        partial.unlink(missing_ok=True)  # of a killed process with this id, or a link
        yield partial
        _synced(partial)
        partial.replace(file)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and str(error.filename) == str(partial):
            error.filename = str(file)  # the name that the user knows
        raise
    with suppress(OSError):  # a file system without it; the file itself is whole
        _synced(file.parent)


def _synced(path: Path) -> None:
    """On the disk when this returns: else a lost node may keep the new name and no content."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(file: Path, buffering: int = -1) -> BinaryIO:
    """A file to read from. Raises OSError, also for what is none: a pipe in its place would be
    waited for and a device read without end."""
    # Path's own takes no opener.
    return open(file, "rb", buffering, opener=_no_pipe)


def at_once(name: str, flags: int) -> int:
    """An opener for `open`, which by itself would wait for ever for somebody to write to a pipe."""
    return os.open(name, flags | os.O_NONBLOCK)


def _no_pipe(name: str, flags: int) -> int:
    descriptor = at_once(name, flags)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "this is a pipe or a device and no file", name)
    return descriptor


def read_bytes(file: Path) -> bytes:
    """What is in a file. Raises OSError, as `opened` does."""
    with opened(file) as whole:
        return whole.read()


def read_json(file: Path) -> Any:
    """The value in a JSON file. Raises OSError, as `opened` does; ValueError for what is no JSON,
    RecursionError for what is nested too deeply."""
    return json.loads(read_bytes(file))


def write_bytes(file: Path, data: bytes) -> None:
    """Write these bytes. Raises OSError; `file` is then as it was."""
    with replacing(file) as partial:
        partial.write_bytes(data)


def write_text(file: Path, text: str) -> None:
    """Write UTF-8. Raises OSError; `file` is then as it was."""
    write_bytes(file, text.encode("utf-8"))


def write_json(file: Path, data: object, *, ascii_only: bool = False) -> None:
    """Write a JSON object, without secrets. Raises OSError; `file` is then as it was."""
    text = hidden_values(json.dumps(data, indent=2, ensure_ascii=ascii_only))
    write_text(file, text + "\n")
