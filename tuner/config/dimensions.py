"""The dimensions of a sweep's space, checked at the door."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tuner.config.schema import RangeSpec, SpaceSpec, Sweep
from tuner.config.yaml_document import Document
from tuner.config.yaml_document import Path as Place

MAX_STEPS = 128
MAX_NGRAM_TOKENS = 4096

_NO_DRAFT_DIMENSIONS = ("num_steps", "eagle_topk", "draft_tp")


@dataclass(frozen=True)
class Dimensions:
    """A sweep's dimensions, checked value by value; messages name the value's own line."""

    sweep: Sweep
    document: Document

    def checked(self) -> dict[str, tuple[Any, ...]]:
        spec, model = self.sweep.space, self.sweep.model
        found: dict[str, tuple[Any, ...]] = {}
        if model.algorithm == "NGRAM":
            found |= self._ngram(spec)
        elif self.sweep.engine.launches_servers or spec.num_steps is not None:
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


# Draft trees: how many tokens one may have.
#
# Facts about SGLang (0.5.8 to 0.5.23): with eagle_topk 1 the server sets num_draft_tokens to
# num_steps + 1. With topk > 1 the tree has at most 1 + topk + (num_steps - 1) * topk^2 nodes.
# No release checks that: a server with more tokens loads all its weights and then dies at graph
# capture.


MAX_AUTO_TOKENS = 64
"""`num_draft_tokens: auto` proposes powers of two up to this."""


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
