"""A point of the search space: one configuration that a server can be started with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tuner.core.errors import printable

FlagValue = bool | int | float | str
DraftTp = int | Literal["target"]


class PointJson(dict[str, Any]):
    """What `Point.to_json` gives, and the point that it is of: not made anew for each question."""

    __slots__ = ("point",)

    def __init__(self, point: "Point", env: dict[str, str], flags: dict[str, FlagValue]) -> None:
        """`env` and `flags` are the point's own, and may be those of others that have the same."""
        super().__init__(
            num_steps=point.num_steps,
            eagle_topk=point.eagle_topk,
            num_draft_tokens=point.num_draft_tokens,
            draft_tp=point.draft_tp,
            env=env,
            flags=flags,
        )
        self.point = point


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
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Points are looked up far more often than they are made."""
        if self._hash is None:
            found = hash((*self._shape, self.env, self.flags))
            object.__setattr__(self, "_hash", found)
            return found
        return self._hash

    def __reduce__(self) -> tuple[type["Point"], tuple[Any, ...]]:
        """Without its hash, which is another one in another process."""
        return Point, (*self._shape, self.env, self.flags)

    @property
    def _shape(self) -> tuple[Any, ...]:
        return self.num_steps, self.eagle_topk, self.num_draft_tokens, self.draft_tp

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Point":
        """The point that `to_json` wrote."""
        if isinstance(data, PointJson):
            return data.point
        return cls(
            num_steps=data["num_steps"],
            eagle_topk=data["eagle_topk"],
            num_draft_tokens=data["num_draft_tokens"],
            draft_tp=data["draft_tp"],
            env=tuple(sorted(data["env"].items())),
            flags=tuple(sorted(data["flags"].items())),
        )

    def to_json(self) -> dict[str, Any]:
        """The shape that ledgers, plans and `--json` show."""
        return {
            "num_steps": self.num_steps,
            "eagle_topk": self.eagle_topk,
            "num_draft_tokens": self.num_draft_tokens,
            "draft_tp": self.draft_tp,
            "env": dict(self.env),
            "flags": dict(self.flags),
        }

    @property
    def family(self) -> "Point":
        """The point without steps and tokens: equal for points that differ in these alone."""
        return Point(None, self.eagle_topk, None, self.draft_tp, self.env, self.flags)

    @property
    def settings(self) -> "Point | None":
        """Its variables and flags, less those for speculation alone; None without any."""
        flags = tuple(pair for pair in self.flags if not pair[0].startswith("speculative-"))
        return Point(env=self.env, flags=flags) if self.env or flags else None

    @property
    def key(self) -> str:
        """A text that is equal for equal points, also across runs and Python versions."""
        return json.dumps(self.to_json(), sort_keys=True)

    def label(self) -> str:
        """What a table shows: `2 steps, topk 1, 3 tokens, draft TP 1, NCCL_PROTO=LL`.

        One line that can be printed, whatever a value holds.
        """
        parts = []
        if self.num_steps is not None:
            parts.append(f"{self.num_steps} step" + "s" * (self.num_steps != 1))
        if self.eagle_topk is not None and self.eagle_topk > 1:
            parts.append(f"topk {self.eagle_topk}")
        if self.num_draft_tokens is not None:
            parts.append(f"{self.num_draft_tokens} tokens")
        if self.draft_tp not in (None, "target"):
            parts.append(f"draft TP {self.draft_tp}")
        parts += [f"{name}={value}" for name, value in self.env]
        parts += [f"--{n}" if v is True else f"--{n} {v}" for n, v in self.flags]
        return printable(", ".join(parts))
