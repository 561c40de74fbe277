"""The shape of the house: what a newcomer relies on when looking for the place of a change."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path("tuner")

FLOORS = (
    "secret_names",
    "secrets",
    "errors",
    "whole",
    "sweep",
    "measure",
    "plugin",  # runs inside SGLang; imports nothing of this package
    "engine",
    "comm",
    "memory",
    "search",
    "ledger",
    "trial",
    "cluster",
    "estimate",
    "plan",
    "answer",
    "foreign",
    "campaign",
    "doctor",
    "report",
    "cli",
)
"""Lowest first; a room imports those before it."""

OWNERS = {
    "aiohttp": {"engine"},  # the simulated engine's server
    "click": {"cli"},
    "httptools": {"measure"},  # the load client
    "jinja2": {"report"},
    "markdown_it": {"report"},
    "matplotlib": {"report"},
    "msgspec": {"ledger"},  # trials.jsonl
    "numpy": {"measure", "engine", "search", "report"},  # arrays; search: the cycle model
    "optuna": {"search"},
    "optuna_dashboard": {"search"},
    "orjson": {"measure"},  # the load client
    "pandas": {"report"},
    "psutil": {"engine"},
    "pydantic": {"sweep", "ledger"},  # ledger: the error of sweep's own base class
    "pydantic_core": {"sweep", "ledger"},  # ledger: what is wrong with a line's JSON
    "pynvml": {"ledger", "engine"},  # machine facts; GPU memory, clocks and energy
    "ray": {"cluster"},
    "rich": {"cli"},
    "scipy": {"measure", "search"},  # statistics; non-negative least squares
    "sqlalchemy": {"search"},
    "threadpoolctl": {"search"},
    "yaml": {"sweep", "engine"},  # the door; the simulated engine's presets
}
"""Who uses which library."""


def modules() -> list[Path]:
    """The package's modules; what runs inside SGLang (plugin/) is a house of its own."""
    return [p for p in sorted(PACKAGE.rglob("*.py")) if "plugin" not in p.parts]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", modules(), ids=str)
def test_a_room_imports_only_rooms_below(path: Path) -> None:
    """Otherwise a change below breaks what it cannot see above."""
    room = room_of(path)
    for name in imports(path):
        if name.startswith("tuner.") and room in FLOORS:
            imported = name.split(".")[1]
            assert imported in FLOORS, f"{path} imports {name}, which has no floor"
            assert FLOORS.index(imported) <= FLOORS.index(room), f"{path} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=str)
def test_each_library_belongs_to_its_room(path: Path) -> None:
    """One library, one room: replacing it must not be a search through the house."""
    for name in imports(path):
        top = name.split(".")[0]
        if top in ("tuner", "__future__") or top in sys.stdlib_module_names:
            continue
        # These run under the server's interpreter.
        alone = path.name in ("tokenise_child.py", "group_child.py")
        assert alone or room_of(path) in OWNERS.get(top, set()), f"{path} imports {name}"


def test_modules_stay_readable() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(path): n for path, n in lengths.items() if n > 300} == {}


WALL_CLOCK = {
    "engine/simulated/answers.py",  # an epoch that SGLang sends
    "engine/simulated/openai.py",
    "campaign/budget.py",  # a deadline is on the wall
    "campaign/telling.py",  # dates
    "ledger/at_work.py",
    "ledger/run.py",  # names and dates, which a step of the clock makes odd and nothing worse
    "plan.py",  # how far off a deadline is
    "search/shown.py",
    "trial/bench.py",
}


@pytest.mark.parametrize("path", modules(), ids=str)
def test_the_wall_clock_measures_nothing(path: Path) -> None:
    """It steps (NTP, a suspended machine): a speed or a time limit taken from it would be wrong."""
    asked = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    wall = asked & {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow"}
    assert not wall or path.relative_to(PACKAGE).as_posix() in WALL_CLOCK, f"{path}: {wall}"
