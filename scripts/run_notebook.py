"""Run notebooks/analyse_sweep.ipynb in Jupyter and keep its outputs (make notebook).

It is committed with outputs, since who looks at it on GitHub wants to see the figures. The
tests run its cells without Jupyter and hold the text outputs against these.
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "analyse_sweep.ipynb"


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    notebook.metadata.language_info = {"name": "python"}  # without this machine's versions
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        cell.metadata = {}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
