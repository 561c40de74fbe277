"""The search space: dimensions, which combinations are legal, and each legal one as one Point.

With eagle_topk 1, num_draft_tokens follows from num_steps (`trees`), so such points are one.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any

from tuner.config.dimensions import MAX_AUTO_TOKENS, Dimensions, auto_tokens, tree_bound
from tuner.config.exclusions import REASON, Exclusion, exclusions
from tuner.config.field_types import UNSET
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
        dimensions = Dimensions(sweep, document).checked()
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
        placement = values.get("draft_tp")
        point = Point(
            num_steps=steps,
            eagle_topk=topk,
            num_draft_tokens=tokens,
            draft_tp="target" if placement == self.tp else placement,
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
