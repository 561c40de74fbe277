"""How large a model's all-reduces are: tokens x hidden size x bytes, in verify and draft."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.config.schema import Sweep
from tuner.core.errors import UserError
from tuner.server.all_reduce import Message, group_ranks, thinned
from tuner.sglang.models import Config
from tuner.sglang.server_settings import Launches

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Of one element, by torch's name of the type."""
_SPELLINGS = {"half": "float16", "float": "float32"}
"""SGLang's --dtype."""


@dataclass(frozen=True)
class MessageShape:
    """What a token's hidden state is, in elements; the draft's may have another width."""

    hidden: int
    dtype: str
    """torch's name."""
    draft_hidden: int | None = None
    """None: the target's."""


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
