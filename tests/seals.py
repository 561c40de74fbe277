"""A mark that every process which a test starts inherits, however deep: what is left is found."""

from tests.engine.launching import processes_with

SEAL = "SPECBENCH_TEST_SEAL"


def left_behind(seal: str) -> list[list[str]]:
    """The command lines of living processes with this seal."""
    return [process.cmdline() for process in processes_with(SEAL, seal)]
