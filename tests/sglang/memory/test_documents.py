"""What docs/memory.md says of the estimate's error is what the committed logs give."""

import subprocess
import sys
from pathlib import Path


def test_the_table_is_what_the_script_prints() -> None:
    """A figure copied by hand is a figure that nobody measured."""
    words = [sys.executable, "scripts/memory_error.py"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    text = Path("docs/memory.md").read_text(encoding="utf-8")
    lines = [line for line in printed.splitlines() if line.strip()]
    assert len(lines) > 20
    assert [line for line in lines if line not in text] == []
