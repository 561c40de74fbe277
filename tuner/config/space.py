"""The search space: dimensions, which combinations are legal, and each legal one as one Point.

With eagle_topk 1, num_draft_tokens follows from num_steps (`trees`), so such points are one.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any

from tuner.config.dimensions import (
    DIMENSIONS,
    MAX_AUTO_TOKENS,
    MAX_NGRAM_TOKENS,
    Dimension,
    auto_tokens,
    tree_bound,
)
from tuner.config.exclusions import REASON, Exclusion, exclusions
from tuner.config.field_types import UNSET, RangeSpec
from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.config.yaml_document import Document
from tuner.config.yaml_document import Path as Place

MAX_COMBINATIONS = 1_000_000


@dataclass(frozen=True)
class Space:
    """All of a sweep's points, in a fixed order."""

    dimensions: Mapping[str, tuple[Any, ...]]
    """Values by dimension: num_steps, eagle_topk, num_draft_tokens, draft_tp, env.NAME,
    flags.NAME. Variables may hold "unset", flags False. num_draft_tokens is there only where
    some eagle_topk is above 1: elsewhere it follows from num_steps."""
    points: tuple[Point, ...]
    dropped: Mapping[str, int]
    """Reason -> combinations that are illegal for it."""
    collapsed: Mapping[str, int]
    """Reason -> combinations that are another one's point."""
    auto: bool
    """num_draft_tokens is `auto`: only sizes between steps + 1 and steps * topk + 1."""
    tp: int
    excluded: Mapping[Point, str] = field(default_factory=dict)
    """Points that are not tried, with the reason: the sweep file's, or the engine's at hand."""
    same: Mapping[Point, Point] = field(default_factory=dict)
    """Points that another one stands for, which is launched in their place."""

    @classmethod
    def from_sweep(cls, sweep: Sweep, document: Document) -> "Space":
        """The space of a sweep. Raises UserError at the line of a value that is never legal."""
        dimensions = _Values(sweep, document).checked()
        spec = sweep.space
        space = cls(
            dimensions=dimensions,
            points=(),
            dropped={},
            collapsed={},
            auto=spec.num_draft_tokens in (None, "auto"),
            tp=sweep.model.tp,
        )
        if not sweep.engine.launches_servers:
            return space
        rules = exclusions(spec.exclude, dimensions, sweep.model.tp, document)
        return space._enumerated(document, rules)

    def without(self, excluded: Mapping[Point, str]) -> "Space":
        """The same space less some points, each counted as dropped for its reason."""
        return replace(
            self,
            points=tuple(point for point in self.points if point not in excluded),
            dropped=Counter(self.dropped) + Counter(excluded.values()),
            excluded={**self.excluded, **excluded},
        )

    def merged(self, same: Mapping[Point, Point], reasons: Mapping[Point, str]) -> "Space":
        """The same space with other points, of it, in the place of some, each for its reason."""
        return replace(
            self,
            points=tuple(point for point in self.points if point not in same),
            collapsed=Counter(self.collapsed) + Counter(reasons[point] for point in same),
            same={**self.same, **same},
        )

    def _enumerated(self, document: Document, rules: Sequence[Exclusion]) -> "Space":
        combinations = math.prod(map(len, self.dimensions.values()))
        if combinations > MAX_COMBINATIONS:
            raise document.error(
                ("space",),
                f"{combinations:,} combinations are more than {MAX_COMBINATIONS:,}, "
                "take values or dimensions away",
            )
        points: dict[Point, None] = {}
        unused = {n: set(map(repr, values)) for n, values in self.dimensions.items()}
        dropped: Counter[str] = Counter()
        collapsed: Counter[str] = Counter()
        excluded: dict[Point, str] = {}
        idle = set(range(len(rules)))
        for values in self._combinations():
            found = self.at(values)
            if isinstance(found, str):
                dropped[found] += 1
                continue
            if fitting := {index for index, rule in enumerate(rules) if rule.fits(found)}:
                idle -= fitting
                excluded[found] = REASON
                dropped[REASON] += 1
                continue
            for name in [name for name, left in unused.items() if left]:
                unused[name].discard(repr(values[name]))
            if found in points:
                collapsed[self._why_equal(values)] += 1
            points[found] = None
        for index in sorted(idle):
            message = "no legal combination fits all of this, remove or mend it"
            raise document.error(("space", "exclude", index), message)
        if not points:
            reasons = "; ".join(dropped)
            raise document.error(("space",), f"no combination is left ({reasons}), widen it")
        self._refuse_dead_values(unused, document)
        return replace(
            self,
            points=tuple(points),
            dropped=dropped,
            collapsed=collapsed,
            excluded=excluded,
        )

    def _refuse_dead_values(self, unused: Mapping[str, Set[str]], document: Document) -> None:
        """A value that no legal combination has is a mistake, not a point to leave out."""
        for name, values in self.dimensions.items():
            for index, value in enumerate(values):
                if repr(value) in unused[name]:
                    place: Place = ("space", *name.split(".", 1))
                    raise document.error(
                        (*place, index),
                        f"{value} is illegal or excluded with every combination of the other "
                        "dimensions, remove it or widen them",
                    )

    def _combinations(self) -> Iterator[dict[str, Any]]:
        """Every combination; under `auto` each tree with its own sizes only.

        Sizes that `auto` does not propose for a tree are not the user's, so they are neither
        dropped nor collapsed.
        """
        rest = {k: v for k, v in self.dimensions.items() if k != "num_draft_tokens"}
        sizes = self.dimensions.get("num_draft_tokens")
        for values in product(*rest.values()):
            named = dict(zip(rest, values, strict=True))
            if sizes is None:
                yield named
                continue
            if self.auto:
                sizes = auto_tokens(named["num_steps"], named["eagle_topk"]) or (0,)
            for size in sizes:
                yield {**named, "num_draft_tokens": size}

    def at(self, values: Mapping[str, Any]) -> Point | str:
        """The canonical point of one value for each dimension, or why there is none."""
        steps, topk = values.get("num_steps"), values.get("eagle_topk")
        tokens = values.get("num_draft_tokens")
        if steps is not None and topk is not None:
            if topk == 1:
                tokens = steps + 1
            elif reason := self._illegal_tree(steps, topk, tokens):
                return reason
        named = {**values, "num_draft_tokens": tokens}
        point = Point(
            **{
                dimension.name: dimension.canonical(named.get(dimension.name), self.tp)
                for dimension in DIMENSIONS
            },
            env=_set_values(values, "env.", UNSET),
            flags=_set_values(values, "flags.", False),
        )
        point = self.same.get(point, point)
        return self.excluded.get(point, point)

    def _illegal_tree(self, steps: int, topk: int, tokens: int | None) -> str | None:
        if self.auto and tokens not in auto_tokens(steps, topk):
            if not auto_tokens(steps, topk):
                return f"auto has no power of two up to {MAX_AUTO_TOKENS} for {steps} steps"
            return "auto does not try this num_draft_tokens with these num_steps and eagle_topk"
        if tokens is None or tokens > tree_bound(steps, topk):
            return "num_draft_tokens is above 1 + topk + (num_steps - 1) * topk^2"
        return None

    def _why_equal(self, values: Mapping[str, Any]) -> str:
        if values.get("eagle_topk") == 1 and "num_draft_tokens" in values:
            return "with eagle_topk 1, num_draft_tokens is num_steps + 1"
        if values.get("draft_tp") == self.tp:
            return f"draft_tp {self.tp} is the target's own"
        return "a flag that is false is the same as an unset one"


def _set_values(
    values: Mapping[str, Any], prefix: str, nothing: str | bool
) -> tuple[tuple[str, Any], ...]:
    names, short = _names_with(prefix, tuple(values))
    return _pairs(short, nothing, *[values[name] for name in names]) if names else ()


@lru_cache(maxsize=65_536, typed=True)  # 1 and True are two values
def _pairs(
    names: tuple[str, ...], nothing: str | bool, *values: Any
) -> tuple[tuple[str, Any], ...]:
    """Those that are set; one object for all points that have them alike."""
    pairs = zip(names, values, strict=True)
    return tuple((n, each) for n, each in pairs if each is not nothing and each != UNSET)


@lru_cache(maxsize=64)
def _names_with(prefix: str, names: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Names that begin with `prefix`, in order, with and without it."""
    found = sorted(name for name in names if name.startswith(prefix))
    return found, tuple(name.removeprefix(prefix) for name in found)


@dataclass(frozen=True)
class _Values:
    """The values of a sweep's dimensions. Refusals name the line of the value."""

    sweep: Sweep
    document: Document

    def checked(self) -> dict[str, tuple[Any, ...]]:
        """Return the values by dimension. Raises UserError at the line of an illegal value."""
        spec = self.sweep.space
        found: dict[str, tuple[Any, ...]] = {}
        if self.sweep.engine.launches_servers or spec.num_steps is not None:
            for dimension in DIMENSIONS:
                of_draft = self._of(dimension, getattr(spec, dimension.name), found)
                if of_draft is not None:
                    found[dimension.name] = of_draft
        for kind, named in (("env", spec.env), ("flags", spec.flags)):
            for name, values in named.items():
                self._no_twins(("space", kind, name), values)
                found[f"{kind}.{name}"] = tuple(values)
        return found

    def _of(
        self, dimension: Dimension, spec: Any, before: Mapping[str, tuple[Any, ...]]
    ) -> tuple[Any, ...] | None:
        """Return the values of one dimension, or None if the space does not have it."""
        place, algorithm = ("space", dimension.name), self.sweep.model.algorithm or ""
        if not dimension.applies_to(algorithm):
            if spec is not None:
                message = f"{algorithm} has no {dimension.name}, remove it"
                raise self.document.error(place, message)
            return None
        if dimension.name == "num_draft_tokens":
            return self._draft_tokens(spec, before)
        if spec is None and dimension.is_required:
            message = f"this is required, add {dimension.name}: {{low: 1, high: 8}}"
            raise self.document.error(place, message)
        if spec is None:
            return None if dimension.default is None else (dimension.default,)
        if isinstance(spec, RangeSpec) or dimension.bounds is not None:
            return self._integers(dimension.name, spec, *(dimension.bounds or (1, None)))
        self._no_twins(place, spec)
        for index, value in enumerate(spec):
            if (why := dimension.refusal(value, self.sweep.model.tp)) is not None:
                raise self.document.error((*place, index), why)
        return tuple(spec)

    def _draft_tokens(
        self, spec: Any, before: Mapping[str, tuple[Any, ...]]
    ) -> tuple[int, ...] | None:
        """Return draft token counts, or None if they follow from the other dimensions."""
        name, given = "num_draft_tokens", isinstance(spec, list)
        if "num_steps" not in before:
            return self._integers(name, spec, 2, MAX_NGRAM_TOKENS) if given else None
        steps, topk = before["num_steps"], before["eagle_topk"]
        if given:
            tokens = self._integers(name, spec, 2)
            self._within_bounds(tokens, steps, topk)
            return tokens
        if max(topk) == 1:
            return None
        trees = (auto_tokens(depth, width) for depth in steps for width in topk if width > 1)
        return tuple(sorted({size for tree in trees for size in tree}))

    def _within_bounds(
        self, tokens: tuple[int, ...], steps: tuple[int, ...], topk: tuple[int, ...]
    ) -> None:
        bound = tree_bound(max(steps), max(topk))
        for index, value in enumerate(tokens):
            if value > bound:
                raise self.document.error(
                    ("space", "num_draft_tokens", index),
                    f"{value} is above every tree's bound here: {max(steps)} steps with topk "
                    f"{max(topk)} hold {bound} at most",
                )

    def _integers(
        self, name: str, spec: RangeSpec | list[int] | Any, low: int, high: int | None = None
    ) -> tuple[int, ...]:
        place: Place = ("space", name)
        if isinstance(spec, RangeSpec):
            self._in_range((*place, "low"), spec.low, low, high)
            self._in_range((*place, "high"), spec.high, low, high)
            return tuple(range(spec.low, spec.high + 1))
        self._no_twins(place, spec)
        for index, value in enumerate(spec):
            self._in_range((*place, index), value, low, high)
        return tuple(spec)

    def _in_range(self, place: Place, value: int, low: int, high: int | None) -> None:
        if value < low:
            raise self.document.error(place, f"{value} is too small, write {low} or more")
        if high is not None and value > high:
            raise self.document.error(place, f"{value} is too large, write {high} or less")

    def _no_twins(self, place: Place, values: Iterable[Any]) -> None:
        seen: set[tuple[type, Any]] = set()
        for index, value in enumerate(values):
            if (type(value), value) in seen:
                raise self.document.error((*place, index), f"{value} is there twice, keep one")
            seen.add((type(value), value))
