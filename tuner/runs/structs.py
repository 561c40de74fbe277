"""Pydantic models as structs of msgspec, which reads JSON into them several times as fast.

They take nothing that the model does not take; what one refuses is for the model to judge, and to
say what is wrong with it.
"""

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel

_PLAIN = (bool, int, float, str, NoneType, Any)


def struct_of(model: type[BaseModel], **instead: Any) -> type[msgspec.Struct]:
    """The struct of a strict model, with other types `instead` of some fields'.

    No field of it is checked by code: raises TypeError where a type is none of JSON's, a list,
    object, choice or model of such ones, or has limits other than a least number.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name, field in model.model_fields.items():
        kind = instead[name] if name in instead else _kind(field.annotation, field.metadata)
        if field.is_required():
            fields.append((name, kind, msgspec.field()))
        elif field.default_factory is not None:
            made: Any = field.default_factory
            fields.append((name, kind, msgspec.field(default_factory=made)))
        else:
            fields.append((name, kind, msgspec.field(default=field.default)))
    return msgspec.defstruct(
        model.__name__, fields, forbid_unknown_fields=True, kw_only=True, gc=False
    )


def _kind(kind: Any, limits: Sequence[Any] = ()) -> Any:
    """A type with its limits, which are those of each number in it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return Union[tuple(_kind(each, limits) for each in args)]  # noqa: UP007 - made of values
    if kind in (int, float) and limits:
        least = [limit.ge for limit in limits if hasattr(limit, "ge")]
        if len(least) == len(limits) == 1:
            return Annotated[kind, msgspec.Meta(ge=least[0])]
    elif origin is Literal or kind in _PLAIN:
        return kind
    elif origin in (list, dict) and not limits:
        return origin[tuple(map(_kind, args))]
    elif isinstance(kind, type) and issubclass(kind, BaseModel) and not limits:
        return struct_of(kind)
    raise TypeError(f"{kind} with {limits} is not known here")
