"""The documents against the code: no reader is told of a key that is not there, or misses one."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import sweep_reference
from tuner.config.field_types import Strict
from tuner.config.schema import Sweep
from tuner.metrics.catalogue import CATALOGUE

SWEEP_FILE = Path("docs/sweep_file.md")
METRICS = Path("docs/metrics.md")


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


def rows() -> dict[str, list[str]]:
    """Key -> cells of the table of keys."""
    table = sweep_reference.table().splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table]
    return {name.strip(" `"): [cell.strip() for cell in rest] for name, *rest in cells}


def test_every_key_of_a_sweep_file_is_in_the_table_and_no_other() -> None:
    assert set(rows()) == keys(Sweep)


def test_the_table_on_the_page_is_that_of_the_schema() -> None:
    """A default that was changed in the code alone misleads whoever reads the page."""
    page = SWEEP_FILE.read_text()
    assert sweep_reference.with_table(page) == page, "run: make sweep-reference"


def test_the_keys_that_everybody_needs_come_first_and_are_there() -> None:
    """Sixty rows are looked something up in, not begun with; a key that is gone misleads."""
    text = SWEEP_FILE.read_text()
    first = text[text.index("\n1. ") : text.index(sweep_reference.BEGIN)]
    named = re.findall(r"`((?:[a-z]+\.)[a-z_.]+)`", first)
    assert len(re.findall(r"^\d+\. ", first, re.M)) == 10
    assert len(named) >= 15
    assert set(named) <= keys(Sweep)
    required = {name for name, cells in rows().items() if cells[-1] == "required"} - {"name"}
    assert required <= set(named)


def test_every_key_says_what_it_is() -> None:
    """In editors too: the table's words are the schema's descriptions."""
    assert [name for name, cells in rows().items() if len(cells[0]) < 10] == []


def test_the_table_shows_limits_and_defaults() -> None:
    assert rows()["workload.concurrency"][1:] == ["list of integer, 1 to 512", "`[1]`"]
    assert rows()["timeouts.launch"][1:] == ["duration", "`30m`"]
    assert rows()["measure.target_width"][1] == "number, above 0, below 1"
    assert rows()["engine.kind"][1:] == ["`sglang`, `simulated`, `endpoint`", "required"]
    assert "[outputs](outputs.md#a-task)" in rows()["workload.task"][0]


def test_every_metric_has_its_formula_and_its_unit() -> None:
    """A number that nobody defined is read as whatever the reader hopes for."""
    documented = {}
    for line in METRICS.read_text().splitlines():
        if line.startswith("| `"):
            _, names, formula, unit, *_ = line.split("|")
            assert formula.strip(), line
            documented |= dict.fromkeys(re.findall(r"`([a-z0-9_]+)`", names), unit.strip())
    assert documented == {entry.name: entry.unit for entry in CATALOGUE}


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


def anchors(page: Path) -> set[str]:
    """The places in a page that GitHub lets links lead to; the site has its own check."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    words = [re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings]
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", [*Path().glob("*.md"), *Path("docs").glob("*.md")], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            there = page.parent / target if target else page
            assert there.exists(), f"{page} links to {target}"
            assert not anchor or anchor in anchors(there), f"{page} links to {target}#{anchor}"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_result_that_is_linked_to_is_committed() -> None:
    """git ignores what runs leave in results/: a kept one is there for whoever measured it, and
    for nobody else until it is added by force."""
    listed = subprocess.run(["git", "ls-files", "results"], capture_output=True, text=True)
    if listed.returncode:  # no checkout, or another user's
        pytest.skip(listed.stderr.strip())
    files = [Path(line) for line in listed.stdout.splitlines()]
    kept = {*files, *(folder for file in files for folder in file.parents)}
    pages = [*Path().glob("*.md"), *Path("docs").glob("*.md"), Path("results/README.md")]
    linked = {
        Path(os.path.normpath(page.parent / target)): page
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text())
    }
    results = {path: page for path, page in linked.items() if path.parts[0] == "results"}
    assert len(results) > 20
    assert {path: page for path, page in results.items() if path not in kept} == {}
