"""The search space: dimensions, which combinations are legal, and each legal one as one Point.

Facts about SGLang's draft trees (0.5.8 to 0.5.23): with eagle_topk 1 the server sets
num_draft_tokens to num_steps + 1 whatever it is told, so such points are one. With topk > 1 the
tree has at most 1 + topk + (num_steps - 1) * topk^2 nodes; no release checks that, a server asked
for more loads all its weights and then dies at graph capture.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from tuner.sweep.document import Document
from tuner.sweep.document import Path as Place
from tuner.sweep.model import UNSET, RangeSpec, SpaceSpec, Sweep
from tuner.sweep.point import Point

MAX_COMBINATIONS = 1_000_000
MAX_STEPS = 128
MAX_AUTO_TOKENS = 64
"""`num_draft_tokens: auto` proposes powers of two up to this."""
MAX_NGRAM_TOKENS = 4096

_NO_DRAFT_DIMENSIONS = ("num_steps", "eagle_topk", "draft_tp")


def tree_bound(num_steps: int, eagle_topk: int) -> int:
    """The most draft tokens that a tree of that depth and width holds, the root included."""
    if eagle_topk == 1:
        return num_steps + 1
    return 1 + eagle_topk + (num_steps - 1) * eagle_topk**2


def auto_tokens(num_steps: int, eagle_topk: int) -> tuple[int, ...]:
    """What `auto` tries for one tree: powers of two from steps + 1 to steps * topk + 1."""
    if eagle_topk == 1:
        return (num_steps + 1,)
    powers = (2**exponent for exponent in range(1, MAX_AUTO_TOKENS.bit_length()))
    return tuple(d for d in powers if num_steps + 1 <= d <= num_steps * eagle_topk + 1)


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
    """Points that the engine at hand cannot run, with the reason."""
    same: Mapping[Point, Point] = field(default_factory=dict)
    """Points that another one stands for, which is launched in their place."""

    @classmethod
    def from_sweep(cls, sweep: Sweep, document: Document) -> "Space":
        """The space of a sweep. Raises UserError at the line of a value that is never legal."""
        dimensions = _Dimensions(sweep, document).checked()
        spec = sweep.space
        space = cls(
            dimensions=dimensions,
            points=(),
            dropped={},
            collapsed={},
            auto=spec.num_draft_tokens in (None, "auto"),
            tp=sweep.model.tp,
        )
        if sweep.engine.kind == "endpoint":
            return space
        return space._enumerated(document)

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

    def _enumerated(self, document: Document) -> "Space":
        combinations = math.prod(map(len, self.dimensions.values()))
        if combinations > MAX_COMBINATIONS:
            raise document.error(
                ("space",),
                f"{combinations:,} combinations are more than {MAX_COMBINATIONS:,}, "
                "take values or dimensions away",
            )
        points: dict[Point, None] = {}
        used: set[tuple[str, str]] = set()
        dropped: Counter[str] = Counter()
        collapsed: Counter[str] = Counter()
        for values in self._combinations():
            found = self.at(values)
            if isinstance(found, str):
                dropped[found] += 1
                continue
            used.update((name, repr(value)) for name, value in values.items())
            if found in points:
                collapsed[self._why_equal(values)] += 1
            points[found] = None
        if not points:
            reasons = "; ".join(dropped)
            raise document.error(("space",), f"no combination is legal ({reasons}), widen it")
        self._refuse_dead_values(used, document)
        return Space(self.dimensions, tuple(points), dropped, collapsed, self.auto, self.tp)

    def _refuse_dead_values(self, used: set[tuple[str, str]], document: Document) -> None:
        """A value that no legal combination has is a mistake, not a point to leave out."""
        for name, values in self.dimensions.items():
            for index, value in enumerate(values):
                if (name, repr(value)) not in used:
                    place: Place = ("space", *name.split(".", 1))
                    raise document.error(
                        (*place, index),
                        f"{value} is illegal with every combination of the other dimensions, "
                        "remove it or widen them",
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
    names = sorted(name for name in values if name.startswith(prefix))
    pairs = ((name.removeprefix(prefix), values[name]) for name in names)
    return tuple((name, value) for name, value in pairs if value is not nothing and value != UNSET)


@dataclass(frozen=True)
class _Dimensions:
    """A sweep's dimensions, checked value by value; messages name the value's own line."""

    sweep: Sweep
    document: Document

    def checked(self) -> dict[str, tuple[Any, ...]]:
        spec, model = self.sweep.space, self.sweep.model
        found: dict[str, tuple[Any, ...]] = {}
        if model.algorithm == "NGRAM":
            found |= self._ngram(spec)
        elif self.sweep.engine.kind != "endpoint" or spec.num_steps is not None:
            found |= self._tree(spec)
        for kind, named in (("env", spec.env), ("flags", spec.flags)):
            for name, values in named.items():
                self._no_twins(("space", kind, name), values)
                found[f"{kind}.{name}"] = tuple(values)
        return found

    def _ngram(self, spec: SpaceSpec) -> dict[str, tuple[Any, ...]]:
        for name in _NO_DRAFT_DIMENSIONS:
            if getattr(spec, name) is not None:
                raise self.document.error(("space", name), f"NGRAM has no {name}, remove it")
        if spec.num_draft_tokens in (None, "auto"):
            return {}
        sizes = self._integers("num_draft_tokens", spec.num_draft_tokens, 2, MAX_NGRAM_TOKENS)
        return {"num_draft_tokens": sizes}

    def _tree(self, spec: SpaceSpec) -> dict[str, tuple[Any, ...]]:
        if spec.num_steps is None:
            raise self.document.error(
                ("space", "num_steps"), "this is required, add num_steps: {low: 1, high: 8}"
            )
        steps = self._integers("num_steps", spec.num_steps, 1, MAX_STEPS)
        topk = self._integers("eagle_topk", spec.eagle_topk or [1], 1, 64)
        found: dict[str, tuple[Any, ...]] = {"num_steps": steps, "eagle_topk": topk}
        if isinstance(spec.num_draft_tokens, list):
            tokens = self._integers("num_draft_tokens", spec.num_draft_tokens, 2)
            self._within_bounds(tokens, steps, topk)
        else:
            trees = (auto_tokens(k, width) for k in steps for width in topk if width > 1)
            tokens = tuple(sorted({size for tree in trees for size in tree}))
        if max(topk) > 1 or isinstance(spec.num_draft_tokens, list):
            found["num_draft_tokens"] = tokens
        found["draft_tp"] = self._placements(spec.draft_tp or ["target"])
        return found

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

    def _placements(self, values: list[Any]) -> tuple[Any, ...]:
        tp = self.sweep.model.tp
        self._no_twins(("space", "draft_tp"), values)
        for index, value in enumerate(values):
            if value != "target" and (value < 1 or tp % value):
                divisors = ", ".join(str(d) for d in range(1, tp + 1) if tp % d == 0)
                raise self.document.error(
                    ("space", "draft_tp", index),
                    f"{value} does not divide model.tp {tp}, write target or one of {divisors}",
                )
        return tuple(values)

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
