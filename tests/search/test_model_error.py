"""The stated errors of the cycle model are those of the committed run."""

import re
import subprocess
import sys
from pathlib import Path

RUN = "results/h200_llama8b_eagle3/20261129-195508"


def test_the_documents_table_is_what_the_script_prints() -> None:
    """A figure copied by hand is a figure that nobody measured."""
    printed = subprocess.run(
        [sys.executable, "scripts/model_error.py", RUN],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": "."},
    ).stdout
    text = Path("docs/cycle_model.md").read_text()
    rows = re.findall(
        r"^\| (\d) \| ([\d.]+) \| (\d\.\d+ \([\d.]+ to [\d.]+\)) \| ([+-][\d.]+ %)", text, re.M
    )
    told = [row for row in rows if row[0] and f"{row[1]} " in printed]
    assert len(told) >= 5
    for _, measured, predicted, off in told[:5]:
        assert re.search(rf"{measured} +{re.escape(predicted)} +{re.escape(off)}", printed)
