"""How large the all-reduces of a model are: tokens x hidden size x bytes, in verify and draft.

Every layer of a tensor-parallel model reduces one hidden state for each token of the pass: the
verify pass has num_draft_tokens a request, a draft step has eagle_topk a request, a plain decode
step one. A draft on a TP size d of its own reduces in each block of d GPUs (plugin/.../groups.py).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.config.point import Point
from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.core.formatting import short
from tuner.sglang.models import Config
from tuner.sglang.server_settings import Launches

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Of one element, by torch's name of the type."""
_SPELLINGS = {"half": "float16", "float": "float32"}
"""SGLang's --dtype."""
DRAFT_TP = "draft TP "
MOST_SIZES = 8
"""Of one group. More are thinned out: neighbours tell nothing new, and each must be told apart from
noise."""


@dataclass(frozen=True)
class MessageShape:
    """What a token's hidden state is, in elements; the draft's may have another width."""

    hidden: int
    dtype: str
    """torch's name."""
    draft_hidden: int | None = None
    """None: the target's."""


@dataclass(frozen=True, order=True)
class Message:
    """One all-reduce."""

    elements: int
    bytes: int
    """0 where a preset plays it, which knows tokens alone."""
    tokens: int
    parts: tuple[str, ...]
    """Passes that send it: verify, draft; both where they are equal; `draft TP 2` of a smaller
    group."""
    ranks: int = 0
    """GPUs of each group that reduces it, all groups at the same time; 0: one group of all."""

    def label(self) -> str:
        """`verify, 4 tokens (32 KiB)`."""
        noun = "token" if self.tokens == 1 else "tokens"
        words = f"{' and '.join(self.parts)}, {self.tokens} {noun}"
        if not self.bytes:
            return words
        size = f"{self.bytes} B" if self.bytes < 1024 else f"{short(self.bytes / 1024, 3)} KiB"
        if self.bytes >= 2**20:
            size = f"{short(self.bytes / 2**20, 3)} MiB"
        return f"{words} ({size})"

    def to_json(self) -> dict[str, Any]:
        """The shape that files keep."""
        return {
            "parts": list(self.parts),
            "tokens": self.tokens,
            "elements": self.elements,
            "bytes": self.bytes,
            **({"ranks": self.ranks} if self.ranks else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Message":
        """What `to_json` wrote."""
        parts, ranks = tuple(data["parts"]), data.get("ranks", 0)
        return cls(data["elements"], data["bytes"], data["tokens"], parts, ranks)


def token_counts(
    points: Iterable[Point], levels: Iterable[int], tp: int
) -> Mapping[str, frozenset[int]]:
    """Tokens of one pass, by part, over all points and concurrency levels.

    `draft TP d` is a draft on d of the GPUs; one that runs on one GPU reduces nothing.
    """
    found: dict[str, set[int]] = {"verify": set(), "draft": set()}
    for point in points:
        found["verify"].add(point.num_draft_tokens or 1)
        size = point.draft_tp
        if point.num_steps is not None and size != 1:
            part = "draft" if size in (None, "target", tp) else f"{DRAFT_TP}{size}"
            found.setdefault(part, set()).add(point.eagle_topk or 1)
    batches = sorted(set(levels))
    return {
        part: frozenset(tokens * batch for tokens in counts for batch in batches)
        for part, counts in found.items()
    }


def group_ranks(part: str) -> int:
    """GPUs of the groups that reduce a part of `token_counts`; 0: all."""
    return int(part.removeprefix(DRAFT_TP)) if part.startswith(DRAFT_TP) else 0


def count_sizes(tokens: Mapping[str, frozenset[int]]) -> int:
    """About how many messages `messages` makes of them."""
    counts: dict[int, set[int]] = {}
    for part, some in tokens.items():
        counts.setdefault(group_ranks(part), set()).update(some)
    return sum(min(MOST_SIZES, len(each)) for each in counts.values())


def messages(shape: MessageShape, tokens: Mapping[str, frozenset[int]]) -> tuple[Message, ...]:
    """The sizes to measure: of all GPUs together, then of each smaller group, ascending.

    MOST_SIZES of each at most, the smallest and largest among them.
    """
    found: dict[int, dict[int, Message]] = {}
    for part, counts in tokens.items():
        ranks = group_ranks(part)
        same = found.setdefault(ranks, {})
        width = (shape.draft_hidden if part.startswith("draft") else None) or shape.hidden
        for count in counts:
            elements = count * width
            parts = (*same[elements].parts, part) if elements in same else (part,)
            same[elements] = Message(elements, elements * BYTES[shape.dtype], count, parts, ranks)
    return tuple(
        each
        for ranks in sorted(found)
        for each in thinned(tuple(found[ranks][elements] for elements in sorted(found[ranks])))
    )


def thinned(sizes: tuple[Message, ...]) -> tuple[Message, ...]:
    """Of many sizes, ascending, those that lie nearest to even steps of their logarithm."""
    if len(sizes) <= MOST_SIZES:
        return sizes
    low, high = math.log(sizes[0].elements), math.log(sizes[-1].elements)
    steps = [low + (high - low) * index / (MOST_SIZES - 1) for index in range(MOST_SIZES)]
    nearest = {min(sizes, key=lambda m: abs(math.log(m.elements) - step)) for step in steps}
    return tuple(sorted(nearest))


def message_shape(
    sweep: Sweep, environment: Mapping[str, str], hidden: int | None, dtype: str | None
) -> MessageShape:
    """The model's shape: as given, else as its config.json says.

    Raises UserError where neither says it.
    """
    launches = Launches(sweep, environment)
    target = launches.target
    config = target.config
    width = hidden or (config.hidden_size if config is not None else None)
    if width is None:
        absent = target.source in ("not cached", "absent")
        why = target.trouble or ("is not here" if absent else "has no config.json that says it")
        raise UserError(
            f"the hidden size of {sweep.model.target} is not known (it {why}), give --hidden N"
        )
    found = launches.draft if hidden is None else None
    drafted = found.config if found is not None else None
    narrow = drafted.hidden_size if drafted is not None else None
    return MessageShape(width, _dtype(sweep, config, dtype), narrow)


def _dtype(sweep: Sweep, config: Config | None, given: str | None) -> str:
    asked = given or sweep.server.flags.get("dtype")
    if asked in (None, "auto"):
        if config is None:
            raise UserError(
                f"the type of {sweep.model.target}'s hidden states is not known, give --dtype "
                f"{' or '.join(BYTES)}"
            )
        # What SGLang does with a float32 checkpoint, and takes one for that says nothing.
        name = "float16" if config.dtype in (None, "float32") else config.dtype
    else:
        name = _SPELLINGS.get(str(asked), str(asked))
    if name not in BYTES:
        raise UserError(
            f"hidden states of {name} are not known here, give --dtype {' or '.join(BYTES)}"
        )
    return str(name)
