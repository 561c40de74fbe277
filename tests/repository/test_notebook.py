"""notebooks/analyse_sweep.ipynb: what people copy into their own.

It is committed with its outputs, so that GitHub shows the figures. Its cells are plain Python, so
they are run here without Jupyter, which the tests would otherwise have to install.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path("notebooks/analyse_sweep.ipynb")
RUNNER = """
import ast, json, sys
scope, shown = {}, []
for source in json.load(sys.stdin):
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), scope)
    value = None
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope)
    shown.append(None if value is None else repr(value))
import matplotlib.pyplot as plt
print(json.dumps([shown, len(plt.get_fignums())]), file=sys.stderr)
"""


def cells() -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(cell: dict[str, Any], kind: str) -> list[str]:
    """What the cell shows as `text/plain` or `image/png`, and what it prints as `stdout`."""
    found = [out["data"] for out in cell["outputs"] if "data" in out]
    if kind == "stdout":
        return ["".join(out["text"]) for out in cell["outputs"] if out.get("name") == "stdout"]
    plain = [data for data in found if kind in data and (kind != "text/plain" or len(data) < 3)]
    return [
        "".join(data[kind]) for data in plain if kind != "text/plain" or "image/png" not in data
    ]


@pytest.fixture(scope="module")
def ran() -> tuple[str, list[str | None], int]:
    """stdout, the value of each cell's last expression, and figures drawn; run beside the file."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore:FigureCanvasAgg", "-c", RUNNER],
        input=json.dumps(["".join(cell["source"]) for cell in cells()]),
        capture_output=True,
        text=True,
        cwd=NOTEBOOK.parent,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(Path().resolve())},
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    shown, figures = json.loads(done.stderr.splitlines()[-1])
    return done.stdout, shown, figures


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_it_runs_and_its_tables_are_those_that_are_committed(
    ran: tuple[str, list[str | None], int],
) -> None:
    """Figures under an old table are worse than none. `make notebook` makes them again."""
    stdout, shown, _ = ran
    committed = [outputs(cell, "text/plain") for cell in cells()]
    assert [[squeezed(value)] if value else [] for value in shown] == [
        [squeezed(text) for text in texts] for texts in committed
    ]
    printed = [text for cell in cells() for text in outputs(cell, "stdout")]
    assert squeezed(stdout) == squeezed(" ".join(printed))


def test_its_figures_are_committed(ran: tuple[str, list[str | None], int]) -> None:
    assert ran[2] == sum(len(outputs(cell, "image/png")) for cell in cells()) == 3


def test_it_has_no_path_of_a_machine_and_no_error() -> None:
    """It is run by others, elsewhere."""
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not re.search(r'"[^"]*/(home|root|Users|tmp|opt|usr|work)/', text)
    assert '"output_type": "error"' not in text
    assert not re.search(r'"\s*[%!]', "".join(json.dumps(cell["source"]) for cell in cells()))
