"""A point of the search space: one configuration that a server can be started with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tuner.config.dimensions import DIMENSIONS, DRAFT_TP, SETTINGS_WEIGHT
from tuner.config.field_types import FlagValue
from tuner.core.errors import printable

DraftTp = int | Literal["target"]


@dataclass(frozen=True, slots=True)
class Point:
    """One element of the space, in canonical form: equal configurations are equal points.

    A dimension that does not exist for the algorithm (NGRAM has no steps) is None. `env` and
    `flags` are sorted pairs that hold only what is set: `unset` variables and flags that are
    false are left out, so that every way of not setting something is the same point.
    """

    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    draft_tp: DraftTp | None = None
    env: tuple[tuple[str, str], ...] = ()
    flags: tuple[tuple[str, FlagValue], ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Point":
        """The point that `to_json` wrote."""
        return cls(
            **{dimension.name: data.get(dimension.name) for dimension in DIMENSIONS},
            env=tuple(sorted(data["env"].items())),
            flags=tuple(sorted(data["flags"].items())),
        )

    def to_json(self) -> dict[str, Any]:
        """The shape that ledgers, plans and `--json` show."""
        return {
            **{dimension.name: getattr(self, dimension.name) for dimension in DIMENSIONS},
            "env": dict(self.env),
            "flags": dict(self.flags),
        }

    @property
    def family(self) -> "Point":
        """The point without steps and tokens: equal for points that differ in these alone."""
        return replace(self, num_steps=None, num_draft_tokens=None)

    @property
    def settings(self) -> "Point | None":
        """Its variables and flags, less those for speculation alone; None without any."""
        flags = tuple(pair for pair in self.flags if not pair[0].startswith("speculative-"))
        return Point(env=self.env, flags=flags) if self.env or flags else None

    @property
    def other_settings(self) -> tuple[tuple[str, str], ...]:
        """Name and value of dimensions that neither shape the draft nor place it."""
        values = (
            (dimension.name, getattr(self, dimension.name))
            for dimension in DIMENSIONS
            if not dimension.is_draft_shape and dimension is not DRAFT_TP
        )
        return tuple((name, str(value)) for name, value in values if value is not None)

    @property
    def complexity(self) -> tuple[int, ...]:
        """What the point asks of the people who run the server, the heaviest first.

        A plug-in in SGLang, variables and flags, a tree, draft tokens, draft steps.
        """
        weighed = [
            (dimension.weight, int(dimension.complexity(getattr(self, dimension.name))))
            for dimension in DIMENSIONS
        ]
        weighed.append((SETTINGS_WEIGHT, len(self.env) + len(self.flags)))
        weighed.sort(key=lambda pair: pair[0], reverse=True)
        return tuple(value for _, value in weighed)

    @property
    def key(self) -> str:
        """A text that is equal for equal points, also across runs and Python versions."""
        return json.dumps(self.to_json(), sort_keys=True)

    def label(self) -> str:
        """What a table shows: `2 steps, topk 1, 3 tokens, draft TP 1, NCCL_PROTO=LL`.

        One line that can be printed, whatever a value holds.
        """
        values = ((dimension, getattr(self, dimension.name)) for dimension in DIMENSIONS)
        labels = (dimension.label(value) for dimension, value in values if value is not None)
        parts = [label for label in labels if label]
        parts += [f"{name}={value}" for name, value in self.env]
        parts += [f"--{n}" if v is True else f"--{n} {v}" for n, v in self.flags]
        return printable(", ".join(parts))
