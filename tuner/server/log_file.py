"""A launch's log: kept to a size while its server writes it, and without secrets once it has ended.

A server that writes a line for each request, or a traceback in a loop, fills a disk in a night.
What is kept is the beginning (arguments, loading, graphs) and the end (why it died).
"""

import logging
import os
import re
from pathlib import Path

from tuner.core.files import write_bytes
from tuner.core.secrets import hidden

HEAD_BYTES = 4 * 2**20
TAIL_BYTES = 12 * 2**20
MOST_BYTES = 64 * 2**20
"""From here on a log is cut to its head and tail, which happens between two windows."""
TAIL_LINES = 40
"""Lines at the end of a log that a failure shows."""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LEFT_OUT = re.compile(rb"\[specbench left out ([0-9]+) bytes here\]\n")

_log = logging.getLogger(__name__)


class ServerLog:
    """The file that a launch's processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def end(self, size: int) -> str:
        """The last `size` bytes as text; "" where there is no file."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size))
                return file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def cut(self, most: int = MOST_BYTES) -> None:
        """Keep head and tail of a file of more than `most` bytes; it may be written meanwhile.

        In place: the server holds it open, for appending. A line that it writes in the same moment
        may be lost, or stand before the tail.
        """
        try:
            if self.path.stat().st_size > most:
                self._cut()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s: %s", self.path, error.strerror)

    def _cut(self) -> None:
        with self.path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            head = file.read(HEAD_BYTES)
            before = _LEFT_OUT.search(head)
            head = head[: before.start() if before else head.rfind(b"\n") + 1]
            start = max(size - TAIL_BYTES, len(head))
            file.seek(start)
            tail = file.read()
            first = tail.find(b"\n") + 1
            left_out = start + first - len(head)
            if before is not None:
                left_out += int(before[1]) - len(before[0])
            file.truncate(len(head))
        with self.path.open("ab") as file:
            file.write(b"[specbench left out %d bytes here]\n" % left_out)
            file.write(tail[first:])

    def seal(self) -> None:
        """Its server has ended: hide what is secret in it. A full disk leaves it as it is."""
        self.cut()
        try:
            was = self.path.read_bytes().decode("utf-8", errors="surrogateescape")
            text = hidden(was)
            if text != was:
                write_bytes(self.path, text.encode("utf-8", errors="surrogateescape"))
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s may show a secret: %s", self.path, error.strerror)


def clean_lines(log_text: str) -> list[str]:
    """The log's lines without colours and without redrawn progress bars."""
    lines = []
    for line in _ANSI.sub("", log_text).replace("\r\n", "\n").split("\n"):
        drawn = [part for part in line.split("\r") if part.strip()]
        lines.append(drawn[-1].rstrip() if drawn else "")
    return lines


def log_tail(log_text: str, count: int = TAIL_LINES) -> str:
    """The end of the log for a report."""
    lines = clean_lines(log_text.rstrip())
    return "\n".join(line[:500] for line in lines[-count:])
