"""`space.exclude`: combinations of the space that the sweep file takes out again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, conlist, model_validator

from tuner.config.dimensions import DIMENSIONS, Dimension, with_dimensions
from tuner.config.field_types import UNSET, EnvValue, FlagChoice, FlagName, VariableName
from tuner.config.point import Point
from tuner.config.yaml_document import Document
from tuner.config.yaml_document import Path as Place

REASON = "space.exclude names it"


def _value_or_list(dimension: Dimension) -> tuple[Any, Any]:
    kind = dimension.value_type
    return kind | conlist(kind, min_length=1) | None, None


_Dimensions = with_dimensions(_value_or_list)


class ExcludeSpec(_Dimensions):  # type: ignore[misc,valid-type]  # made from the table
    """Combinations that fit all of this are not tried; a list means any of its values."""

    env: dict[VariableName, EnvValue | Annotated[list[EnvValue], Field(min_length=1)]] = {}
    flags: dict[FlagName, FlagChoice | Annotated[list[FlagChoice], Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if not any(True for _ in self.named()):
            raise ValueError("an empty entry would leave out everything, name what does not go")
        return self

    def named(self) -> Iterator[tuple[Place, list[Any]]]:
        """Where each dimension's values stand in the entry, and these."""
        for dimension in DIMENSIONS:
            if (value := getattr(self, dimension.name)) is not None:
                yield (dimension.name,), _as_list(value)
        for kind in ("env", "flags"):
            for name, value in getattr(self, kind).items():
                yield (kind, name), _as_list(value)


@dataclass(frozen=True)
class Exclusion:
    """One entry: values by dimension, named as in `Space.dimensions`."""

    wanted: Mapping[str, Sequence[Any]]

    def fits(self, point: Point) -> bool:
        """Whether the point has one of the values of each dimension."""
        return all(_is_in(_value(point, name), values) for name, values in self.wanted.items())


def exclusions(
    specs: Sequence[ExcludeSpec], dimensions: Mapping[str, Sequence[Any]], tp: int, door: Document
) -> list[Exclusion]:
    """The entries of a sweep file.

    Raises UserError at the line of a dimension or value that the space does not have: nothing would
    be left out for it.
    """
    found = []
    for index, spec in enumerate(specs):
        wanted = {}
        for place, values in spec.named():
            name = ".".join(map(str, place))
            whole: Place = ("space", "exclude", index, *place)
            if name not in dimensions:
                known = ", ".join(dimensions)
                raise door.error(whole, f"the space does not vary it, there are {known}")
            for value in values:
                if not _is_in(value, dimensions[name]):
                    has = ", ".join(map(_spelt, dimensions[name]))
                    message = f"{_spelt(value)} is no value of space.{name}, there are {has}"
                    raise door.error(whole, message)
            wanted[name] = [_canonical(name, value, tp) for value in values]
        found.append(Exclusion(wanted))
    return found


def _canonical(name: str, value: Any, tp: int) -> Any:
    known = next((dimension for dimension in DIMENSIONS if dimension.name == name), None)
    return value if known is None else known.canonical(value, tp)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_in(value: Any, values: Sequence[Any]) -> bool:
    """True is not 1 here, as a flag that is bare is not one with a value."""
    return any(type(value) is type(each) and value == each for each in values)


def _spelt(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(point: Point, name: str) -> Any:
    kind, _, key = name.partition(".")
    if not key:
        return getattr(point, name)
    return dict(point.env).get(key, UNSET) if kind == "env" else dict(point.flags).get(key, False)
