"""Read from SGLang's source text what changes between releases, its arguments aside.

Nothing of SGLang is imported. The arguments are read by sglang_arguments.py.
"""

import ast
from collections.abc import Iterator
from typing import Any

from sglang_arguments import Sources


def read_facts(sources: Sources) -> dict[str, list[str]]:
    """What else changed between releases, as sorted lists of names."""
    speculative = "srt/speculative/"
    workers = [
        path.removeprefix(speculative).removesuffix(".py")
        for path in sources
        if path.startswith(speculative) and path.endswith(("_worker.py", "_worker_v2.py"))
    ]
    return {
        "meta_info": _keys_set(sources["srt/managers/tokenizer_manager.py"], "meta_info", "spec_"),
        "workers": sorted(worker for worker in workers if "/" not in worker),
        "plugins": ["entry points"] if "srt/plugins/__init__.py" in sources else [],
        "environment": sorted(
            {
                name
                for path in ("srt/entrypoints/engine.py", "srt/arg_groups/parallel_hook.py")
                for name in _environment_written(sources.get(path, ""))
            }
        ),
        "spec_variables": sorted(_spec_variables(sources["srt/environ.py"])),
        "draft_decode_backends": _draft_backends(sources, "create_decode_backend"),
        "draft_extend_backends": _draft_backends(sources, "create_draft_extend_backend"),
        "draft_layout": [
            name
            for name in ("empty_context", "owns_attention", "resolve_draft_parallel_layout")
            if any(name in text for p, text in sources.items() if p.startswith(speculative))
        ],
    }


def _keys_set(text: str, mapping: str, prefix: str) -> list[str]:
    """Keys that `mapping["key"] = ...`, `mapping.update({...})` or a dict literal sets."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)]):
                keys = [key] if name == mapping else []
            case ast.Dict(keys=items):
                keys = [key for key in items if key is not None]
            case _:
                continue
        found |= {k.value for k in keys if isinstance(k, ast.Constant) and _is(k.value, prefix)}
    return sorted(found)


def _is(value: Any, prefix: str) -> bool:
    return isinstance(value, str) and value.startswith(prefix)


def _environment_written(text: str) -> Iterator[str]:
    """Names that `os.environ["NAME"] = ...` and `os.environ.setdefault("NAME", ...)` write."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=mapping, slice=ast.Constant(value=name))]):
                pass
            case ast.Call(
                func=ast.Attribute(value=mapping, attr="setdefault"),
                args=[ast.Constant(value=name), *_],
            ):
                pass
            case _:
                continue
        if ast.unparse(mapping) == "os.environ":
            yield str(name)


def _spec_variables(text: str) -> Iterator[str]:
    """`SGLANG_...SPEC...` and `SGLANG_SIMULATE_...` that environ.py declares, with defaults."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[default, *_])):
                if "_SPEC_" in name or "SIMULATE_ACC" in name:
                    yield f"{name}={ast.unparse(default)}"


def _draft_backends(sources: Sources, method: str) -> list[str]:
    """Attention back-ends for which the draft has one of its own: the keys of `backend_map`."""
    for node in ast.walk(ast.parse(sources["srt/speculative/draft_utils.py"])):
        if isinstance(node, ast.FunctionDef) and node.name == method:
            maps = [each for each in ast.walk(node) if isinstance(each, ast.Dict)]
            return sorted(key.value for key in maps[0].keys if isinstance(key, ast.Constant))
    raise ValueError(f"no {method} in draft_utils.py: SGLang chooses draft back-ends otherwise now")
