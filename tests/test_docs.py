"""The documents against the code: no reader is told of a key that is not there, or misses one."""

import json
import re
from pathlib import Path

import pytest

from tuner.sweep.fields import Strict
from tuner.sweep.model import Sweep

SWEEP_FILE = Path("docs/sweep_file.md")


def keys(model: type[Strict], prefix: str = "") -> set[str]:
    """Dotted names of the keys of a section, down to what is no section itself."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Strict):
            found |= keys(inner, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_every_key_of_a_sweep_file_is_documented_and_no_other() -> None:
    rows = [line.split("|")[1] for line in SWEEP_FILE.read_text().splitlines() if "|" in line]
    told = {name for row in rows for name in re.findall(r"`([a-z_.]+)`", row)}
    assert told == keys(Sweep)


def test_the_readmes_figures_are_those_of_its_run() -> None:
    """A figure copied by hand is a figure that nobody measured."""
    ledger = Path("results/h200_placement/20261130-022458/trials.jsonl")
    measured = set()
    for line in ledger.read_text().splitlines():
        record = json.loads(line)
        if record["role"] != "confirm":
            metrics = record["metrics"]
            measured.add((*told(metrics["1"], ".1f"), *told(metrics["8"], ".0f")))
    columns = r" \| ([\d.]+) \| ([^|]*)" * 2
    table = re.findall(rf"^\| [^|]*{columns} \|$", readme_plain(), re.M)
    assert set(table) == measured
    assert len(table) == len(measured) == 9


def told(level: dict[str, float | None], form: str) -> tuple[str, str]:
    """Speed and speed-up as the README's table has them."""
    ratio, low, high = (level.get(f"speedup{end}") for end in ("", "_low", "_high"))
    speed = format(level["output_tok_s"], form)
    return speed, "1" if ratio is None else f"{ratio:.2f} ({low:.2f} to {high:.2f})"


def readme_plain() -> str:
    """The README without bold marks."""
    return Path("README.md").read_text().replace("**", "")


@pytest.mark.parametrize("page", [*Path().glob("*.md"), *Path("docs").glob("*.md")], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page} links to {target}"
