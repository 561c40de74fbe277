"""Read from SGLang's wheels what the plug-in expects of them.

    python scripts/draft_tp_facts.py [--cache build/sglang-wheels]

Write tests/sglang/plugin/facts.json: for each release and each name that the plug-in touches in any
release, its parameters, [] where it is no function and null where it is missing. Only the source
text is read. tests/sglang/plugin/test_contract.py holds the plug-in against it.
"""

import argparse
import ast
import json
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from releases import download, published  # noqa: E402

from tuner.sglang.plugin.specbench_sglang import contract, versions  # noqa: E402

SNAPSHOT = ROOT / "tests/sglang/plugin/facts.json"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters_in(sources: dict[str, ast.Module], module: str, dotted: str) -> list[str] | None:
    """The parameters of a function or method, also where the module only imports it."""
    tree = sources.get(module)
    if tree is None:
        return None
    first, _, rest = dotted.partition(".")
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    found = parameters_in(sources, str(node.module), dotted)
                    return found if found is not None else []
        elif isinstance(node, Function | ast.ClassDef) and node.name == first:
            if not rest:
                return _parameters(node)
            inner = getattr(node, "body", [])
            methods = [n for n in inner if isinstance(n, Function) and n.name == rest]
            return _parameters(methods[0]) if methods else None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == first for target in targets):
                return []
    return None


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Also what stands in an `if` or `try` at the top of a module."""
    found = []
    for node in body:
        found.append(node)
        for field in ("body", "orelse", "handlers"):
            if isinstance(node, ast.If | ast.Try) and hasattr(node, field):
                inner = [n for n in getattr(node, field) if isinstance(n, ast.stmt)]
                found += _statements(inner)
    return found


def _parameters(node: Function | ast.ClassDef) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return []
    of = node.args
    names = [each.arg for each in (*of.posonlyargs, *of.args)]
    return [*names, *([of.vararg.arg] if of.vararg else []), *(each.arg for each in of.kwonlyargs)]


def touched() -> set[tuple[str, str]]:
    """Every module and name that the plug-in expects in some release."""
    known = [versions.Version((0, 5, patch)) for patch in range(8, versions.NEWEST[2] + 1)]
    return {(e.module, e.name) for version in known for e in contract.all_expectations(version)}


def read(wheel: Path, names: set[tuple[str, str]]) -> dict[str, list[str] | None]:
    """The facts of one release."""
    with zipfile.ZipFile(wheel) as archive:
        sources = {
            name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): ast.parse(
                archive.read(name)
            )
            for name in archive.namelist()
            if name.startswith("sglang/srt/") and name.endswith(".py") and _is_needed(name)
        }
    return {
        f"{module}.{name}": parameters_in(sources, module, name) for module, name in sorted(names)
    }


def _is_needed(name: str) -> bool:
    folders = ("speculative/", "managers/", "distributed/", "layers/dp_attention", "configs/draft")
    others = ("model_executor/pool", "model_executor/model_runner.py", "runtime_context")
    path = name.removeprefix("sglang/srt/")
    return path.startswith((*folders, *others, "kernels/ops/speculative"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / "build/sglang-wheels")
    cache = parser.parse_args().cache
    names = touched()
    facts = {version: read(download(version, cache), names) for version in published()}
    lines = (f"{json.dumps(version)}: {json.dumps(of)}" for version, of in facts.items())
    SNAPSHOT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
