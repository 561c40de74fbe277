"""Fields of other benchmarks' results: their types, and the refusal of a wrong one."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from tuner.core.json_items import Item

SMALLEST, LARGEST = 1e-15, 1e15
"""Bounds of a measured figure that is not 0. Sums and ratios of other figures may overflow."""
_EXPECTED = {
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


def _figure(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("wrong", "it must be a number")
    if value != 0 and not SMALLEST <= value <= LARGEST:  # NaN too
        raise PydanticCustomError("wrong", f"it must be 0 or from {SMALLEST:g} to {LARGEST:g}")
    return float(value)


def _whole(value: Any) -> int:
    figure = _figure(value)
    if figure != int(figure):
        raise PydanticCustomError("wrong", "it must be a whole number")
    return int(figure)


def _share(value: Any) -> float:
    figure = _figure(value)
    if figure > 1:
        raise PydanticCustomError("wrong", "it must be a share from 0 to 1")
    return figure


Figure = Annotated[float, BeforeValidator(_figure)]
"""0, or a number from SMALLEST to LARGEST."""
Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number that is not negative. `4.0` is one."""
Share = Annotated[float, BeforeValidator(_share)]


class Fields(BaseModel):
    """What specbench reads of an object in a result file. Other keys are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=())


T = TypeVar("T", bound=Fields)


def read_fields(kind: type[T], item: Item) -> T:
    """Return the fields of an item. Raises UserError at FILE:LINE for the first wrong one."""
    try:
        return kind.model_validate(item.value)
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
        name = ".".join(map(str, error["loc"]))
        value = error["input"]
        if error["type"] == "missing" or value is None:
            raise item.wrong(
                f"{name} is missing. The file is cut off or of another format: restore it."
            ) from errors
        expected = _EXPECTED.get(error["type"])
        message = f"it must be {expected}" if expected else error["msg"]
        shown = repr(value[:40]) if isinstance(value, str) else str(value)[:40]
        raise item.wrong(f"{name} is {shown}, {message}") from errors


def has(item: Item, *names: str) -> bool:
    """Return True if the object has all of these keys."""
    return all(name in item.value for name in names)
