"""A mark that every process which a test starts inherits, however deep: what is left is found."""

from contextlib import suppress

import psutil

from tests.server.launching import processes_with

SEAL = "SPECBENCH_TEST_SEAL"


def left_behind(seal: str) -> list[list[str]]:
    """The command lines of living processes with this seal."""
    found = []
    for process in processes_with(SEAL, seal):
        with suppress(psutil.Error):  # it has ended since
            found.append(process.cmdline())
    return found
