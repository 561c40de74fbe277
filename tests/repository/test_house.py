"""The structure of the package: the order of rooms, owners of libraries, the wall clock."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path("tuner")
TESTS = Path("tests")

ROOMS = (
    "core",
    "config",
    "metrics",
    "loadgen",
    "server",
    "sglang",
    "simulator",
    "endpoint",
    "engines",
    "runs",
    "search",
    "execution",
    "analysis",
    "workers",
    "dashboard",
    "runner",
    "report",
    "compare",
    "preflight",
    "cli",
)
"""Lowest first. A room imports only itself and the rooms before it."""

OWNERS = {
    "aiohttp": {"simulator"},  # the HTTP server
    "click": {"cli"},
    "httptools": {"loadgen"},
    "jinja2": {"report"},
    "markdown_it": {"report"},
    "matplotlib": {"report", "compare"},
    "numpy": {"metrics", "search"},
    "optuna": {"search", "workers", "dashboard"},
    "optuna_dashboard": {"dashboard"},
    "orjson": {"loadgen"},
    "pandas": {"report"},
    "psutil": {"server"},
    "pydantic": {"config", "runs", "compare"},
    "pydantic_core": {"config", "runs", "compare"},
    "pynvml": {"runs", "server"},  # machine facts; GPU memory, clocks and energy
    "ray": {"execution"},
    "requests": {"server"},  # control requests
    "rich": {"cli"},
    "scipy": {"metrics", "search"},
    "sqlalchemy": {"search"},
    "threadpoolctl": {"search"},
    "yaml": {"config", "simulator"},  # the sweep file; presets
}
"""Rooms that may import a third-party library."""

CHILDREN = ("tuner/sglang/tokenizer_child.py", "tuner/sglang/nccl/child.py")
"""Scripts that run under the server's interpreter, with torch and transformers."""

WALL_CLOCK = {
    "execution/trial.py",
    "preflight/plan.py",  # how far off a deadline is
    "runner/budget.py",  # a deadline is a wall-clock time
    "runner/status_writer.py",  # dates
    "runs/run.py",  # names and dates
    "runs/status.py",
    "simulator/openai_routes.py",  # an epoch that SGLang sends
    "simulator/protocol.py",
}
"""Modules that may read the wall clock. Only a name, a date or a deadline needs it."""


CONTRACT_SUITES = {"real_sglang", "gpu"}
"""Folders of tests that run the tests of other modules on another engine or release."""


def modules() -> list[Path]:
    """Return the package's modules without the plug-in, which runs inside SGLang."""
    return [p for p in sorted(PACKAGE.rglob("*.py")) if "plugin" not in p.parts]


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports, `tuner.core` for `from tuner import core`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from _imported_names(node)


def _imported_names(node: ast.ImportFrom) -> Iterator[str]:
    """Yield the module, or each name that is imported from a package of this repository."""
    module = node.module or ""
    if module == "tuner" or module.startswith("tests"):
        yield from (f"{module}.{alias.name}" for alias in node.names)
    else:
        yield module


def test_rooms_import_only_downwards() -> None:
    """A change in a low room must not break a room that its author cannot see."""
    offenders = [
        f"{path} imports {name}"
        for path in modules()
        if room_of(path) in ROOMS
        for name in imports(path)
        if name.startswith("tuner.") and not _is_below(name.split(".")[1], room_of(path))
    ]
    assert offenders == []


def _is_below(imported: str, room: str) -> bool:
    if imported.startswith("__"):
        return True  # the package's own names
    return imported in ROOMS and ROOMS.index(imported) <= ROOMS.index(room)


def test_every_room_has_a_place_in_the_order() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    files = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    assert folders | files == set(ROOMS)


def test_libraries_are_imported_only_by_their_owners() -> None:
    """Replacing a library must not be a search through all rooms."""
    known = {"tuner", "__future__", *sys.stdlib_module_names}
    offenders = [
        f"{path} imports {name}"
        for path in modules()
        if path.as_posix() not in CHILDREN
        for name in imports(path)
        if (top := name.split(".")[0]) not in known and room_of(path) not in OWNERS.get(top, set())
    ]
    assert offenders == []


def test_engine_kinds_are_asked_for_only_by_cli_and_factory() -> None:
    """A new engine must not need an edit in every room."""
    offenders = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path in modules()
        if room_of(path) not in ("cli", "engines")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _asks_for_kind(node)
    ]
    assert offenders == []


def _asks_for_kind(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
        return any(side.endswith(("engine.kind", "engine.name")) for side in sides)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        return ast.unparse(node.args[1]).endswith("Engine")
    return False


def test_tests_import_no_other_test_module() -> None:
    """What several test modules need is in a module that has no tests."""
    offenders = [
        f"{path} imports {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] not in CONTRACT_SUITES
        for name in imports(path)
        if _names_test_module(name)
    ]
    assert offenders == []


def _names_test_module(name: str) -> bool:
    parts = name.split(".")
    return any(
        part.startswith("test_") and Path(*parts[:depth], f"{part}.py").exists()
        for depth, part in enumerate(parts)
    )


def test_wall_clock_is_read_only_for_dates() -> None:
    """The wall clock steps (NTP, a suspended machine): durations must not be taken from it."""
    clocks = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow"}
    offenders = [
        str(path)
        for path in modules()
        if path.relative_to(PACKAGE).as_posix() not in WALL_CLOCK
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in clocks
    ]
    assert offenders == []
