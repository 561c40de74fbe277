"""What a start of the simulated server costs before it serves."""

import subprocess
import sys

HEAVY = "import sys, tuner.simulator.__main__; print(*sys.modules)"


def test_a_start_reads_no_library_that_serving_needs_not() -> None:
    """Demos, plans that are tried out and these tests start thousands of servers: pydantic and the
    sweep file's models would double the time of each."""
    command = [sys.executable, "-c", HEAVY]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "aiohttp" in loaded
    assert not {"pydantic", "numpy", "requests", "tuner.config.schema"} & set(loaded)
