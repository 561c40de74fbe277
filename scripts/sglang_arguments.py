"""Read SGLang's command-line arguments from its source text.

Nothing of SGLang is imported: the text is parsed, and only literals are evaluated. Three families:

0.5.8  to 0.5.13.post1  `parser.add_argument(...)` calls in server_args.py
0.5.14 to 0.5.19        annotated fields of ServerArgs in server_args.py, `x: A[int, Arg(...)] = 1`,
                        plus calls for deprecated spellings
0.5.20 and later        the same fields in the classes of arg_groups/fields/*.py, plus the calls

So two readers do for all: `_from_call` and `_from_field`. A field's command-line name, kind and
type follow from its annotation as in arg_groups/arg_utils.py, add_cli_args_from_dataclass.
"""

import ast
import operator
from collections.abc import Iterator, Mapping
from typing import Any

Sources = Mapping[str, str]
"""Text by path below the folder `sglang/`."""
Argument = dict[str, Any]
"""kind: switch, value, list or optional; type; choices, default, aliases, replaced_by where known;
`deprecated` where the spelling is. `choices` "open": computed at start, so not known here."""

_SERVER_ARGS = "srt/server_args.py"
_FIELDS = "srt/arg_groups/fields/"
_CHOICES = "srt/arg_groups/choices.py"
_BACKENDS = "srt/model_executor/cuda_graph_config.py"
_KINDS = {None: "value", "?": "optional", "+": "list", "*": "list", 0: "switch"}
_SWITCH_ACTIONS = ("store_true", "store_false", "store_const")
_OPERATORS = {ast.Add: operator.add, ast.Mult: operator.mul, ast.USub: operator.neg}


class NotLiteral(Exception):
    """The expression's value is known only at run time."""


class _Values:
    """Module-level literals, and the defaults of the fields of ServerArgs."""

    def __init__(self, modules: list[ast.Module]) -> None:
        self._names: dict[str, ast.expr] = {}
        self._fields: dict[str, ast.expr] = {}
        for module in modules:
            for node in module.body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self._names.setdefault(node.targets[0].id, node.value)
                if isinstance(node, ast.ClassDef):
                    # The constants of `class Backend`, which choices name, by their bare names.
                    for each in node.body if node.name == "Backend" else ():
                        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                            self._names.setdefault(each.targets[0].id, each.value)
                    self._fields |= {
                        each.target.id: each.value
                        for each in node.body
                        if isinstance(each, ast.AnnAssign)
                        and isinstance(each.target, ast.Name)
                        and each.value is not None
                    }

    def of(self, node: ast.expr) -> Any:
        """The value of a literal expression. Raises NotLiteral."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [value for item in items for value in self._spread(item)]
            case ast.Set(elts=items):
                return sorted(self.of(item) for item in items)
            case ast.Name(id=name) if name in self._names:
                return self.of(self._names[name])
            case ast.Attribute(value=ast.Name(id="ServerArgs"), attr=name) if name in self._fields:
                return self.of(self._fields[name])
            case ast.Attribute(value=ast.Name(id="Backend"), attr=name) if name in self._names:
                return self.of(self._names[name])
            case ast.Call(func=ast.Name(id="_declared_default"), args=[ast.Constant(value=name)]):
                return self.of(self._fields[name]) if name in self._fields else None
            case ast.Call(func=ast.Name(id="set" | "list" | "sorted" | "frozenset"), args=[items]):
                return sorted(self.of(items))
            case ast.Call(func=ast.Name(id="frozenset" | "list" | "dict"), args=[], keywords=[]):
                return []
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.of(left), self.of(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.of(operand)
            case ast.Subscript(value=items, slice=ast.Constant(value=int(index))):
                return self.of(items)[index]
        raise NotLiteral

    def _spread(self, item: ast.expr) -> list[Any]:
        if isinstance(item, ast.Starred):
            return list(self.of(item.value))
        return [self.of(item)]

    def default(self, node: ast.expr | None) -> Any:
        """A default worth recording: None where there is none, or where it is computed."""
        try:
            return None if node is None else self.of(node)
        except NotLiteral:
            return None

    def choices(self, node: ast.expr | None) -> Any:
        try:
            return None if node is None else self.of(node)
        except NotLiteral:
            return "open"


def read_arguments(sources: Sources) -> dict[str, Argument]:
    """Every argument of `launch_server` by its first long name, without dashes."""
    paths = [
        _SERVER_ARGS,
        _CHOICES,
        _BACKENDS,
        *sorted(p for p in sources if p.startswith(_FIELDS)),
    ]
    modules = [ast.parse(sources[path]) for path in paths if path in sources]
    values = _Values(modules)
    found: dict[str, Argument] = {}
    for module in modules:
        for name, argument in _fields(module, values):
            found[name] = argument
        for call in _calls(module):
            name, argument = _from_call(call, values)
            found[name] = argument
    if len(found) < 100:
        raise ValueError(f"only {len(found)} arguments: SGLang declares them another way now")
    return found


def _fields(module: ast.Module, values: _Values) -> Iterator[tuple[str, Argument]]:
    for owner in module.body:
        for node in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                read = _from_field(node.target.id, node.annotation, node.value, values)
                if read is not None:
                    yield read


def _from_field(
    field: str, annotation: ast.expr, default: ast.expr | None, values: _Values
) -> tuple[str, Argument] | None:
    """`x: A[TYPE, "help"] = default` or `x: A[TYPE, Arg(...)] = default`; None: no argument."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="A" | "Annotated"), slice=ast.Tuple(elts=parts)):
            inner = _inner_type(parts[0])
        case _:
            return None
    calls = [p for p in parts[1:] if isinstance(p, ast.Call) and _called(p) == "Arg"]
    texts = [p for p in parts[1:] if isinstance(p, ast.Constant | ast.JoinedStr | ast.BinOp)]
    if not calls and not texts:
        return None
    meta = {k.arg: k.value for k in calls[0].keywords} if calls else {}
    if "no_cli" in meta and values.of(meta["no_cli"]):
        return None
    name = values.of(meta["cli_name"]) if "cli_name" in meta else field.replace("_", "-")
    aliases = values.of(meta["aliases"]) if "aliases" in meta else []
    argument: Argument = {"kind": "value", "type": "str"}
    if "action" in meta:
        argument = _action(meta["action"], values)
    elif isinstance(inner, ast.Subscript) and _named(inner.value) == "Literal":
        literals = values.of(inner.slice)
        literals = literals if isinstance(literals, list) else [literals]
        argument["choices"] = values.choices(meta.get("choices")) or literals
        argument["type"] = "int" if isinstance(literals[0], int) else "str"
    elif isinstance(inner, ast.Subscript) and _named(inner.value) in ("List", "list"):
        element = _named(inner.slice) or "str"
        if "type_parser" not in meta:
            nargs = values.of(meta["nargs"]) if "nargs" in meta else "+"
            argument = {"kind": _KINDS.get(nargs, "list"), "type": element}
    elif _named(inner) == "bool" and "type_parser" not in meta:
        argument = {"kind": "switch"}
    else:
        argument["type"] = _named(inner) if _named(inner) in ("int", "float") else "str"
        if "nargs" in meta:
            argument["kind"] = _KINDS.get(values.of(meta["nargs"]), "list")
    if "type_parser" in meta:
        argument["type"] = _named(meta["type_parser"]) or "other"
    if "choices" in meta and "choices" not in argument:
        argument["choices"] = values.choices(meta["choices"])
    names = [f"--{name.removeprefix('--')}", *aliases]
    return _named_argument(names, argument, values.default(default))


def _inner_type(node: ast.expr) -> ast.expr:
    """TYPE of Optional[TYPE] and of TYPE | None."""
    match node:
        case ast.Subscript(value=value, slice=inner) if _named(value) == "Optional":
            return inner
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return left
    return node


def _calls(module: ast.Module) -> Iterator[ast.Call]:
    """The add_argument calls of add_cli_args, in order."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
            calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
            found = [call for call in calls if _called(call) == "add_argument"]
            yield from sorted(found, key=lambda call: call.lineno)


def _from_call(call: ast.Call, values: _Values) -> tuple[str, Argument]:
    names = [values.of(name) for name in call.args]
    meta = {k.arg: k.value for k in call.keywords}
    argument: Argument = {"kind": "value", "type": _named(meta.get("type")) or "str"}
    if "nargs" in meta:
        argument["kind"] = _KINDS.get(values.of(meta["nargs"]), "list")
    if "action" in meta:
        argument = _action(meta["action"], values) | (
            {"type": argument["type"]} if "type" in meta else {}
        )
        if "nargs" in meta:
            argument["kind"] = _KINDS.get(values.of(meta["nargs"]), "list")
    if "choices" in meta:
        argument["choices"] = values.choices(meta["choices"])
    if "new_flag" in meta:
        argument["replaced_by"] = values.of(meta["new_flag"])
    return _named_argument(names, argument, values.default(meta.get("default")))


def _action(node: ast.expr, values: _Values) -> Argument:
    if isinstance(node, ast.Constant):
        word = values.of(node)
        return {"kind": "switch"} if word in _SWITCH_ACTIONS else {"kind": "value", "type": "str"}
    name = _named(node)
    if name == "BooleanOptionalAction":
        return {"kind": "switch", "negatable": True}
    if name in ("DeprecatedAction", "DeprecatedStoreTrueAction", "DeprecatedStoreConstAction"):
        return {"kind": "switch", "deprecated": True}
    if name.startswith("Deprecated"):
        return {"kind": "value", "type": "str", "deprecated": True}
    return {"kind": "list", "type": "str"}  # LoRAPathAction and its like take words


def _named_argument(names: list[str], argument: Argument, default: Any) -> tuple[str, Argument]:
    spelled = [name.removeprefix("--") for name in names if name.startswith("--")]
    spelled = spelled or [name.lstrip("-") for name in names]
    if argument.pop("negatable", False):
        spelled += [f"no-{name}" for name in spelled]
    if len(spelled) > 1:
        argument["aliases"] = spelled[1:]
    if default is not None and argument["kind"] != "switch" and default != []:
        argument["default"] = default
    if argument.get("choices") is None:
        argument.pop("choices", None)
    return spelled[0], argument


def _named(node: ast.expr | None) -> str:
    """The last name of `x`, `a.x` or the string annotation "x"; "" for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=str(name)):
            return name
    return ""


def _called(call: ast.Call) -> str:
    return _named(call.func)
