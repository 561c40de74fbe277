"""The dimensions of a search space: one table, from which every view of a point is made.

An entry knows how its values are written in a sweep file, which drafters have the dimension, how a
value changes the server's launch, and how a value is shown. To add a dimension, add an entry here
and a field of the same name to `tuner.config.point.Point`. Environment variables and server flags
are dimensions without an entry (`space.env`, `space.flags`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from tuner.config.field_types import RangeSpec, Strict, Values

MAX_STEPS = 128
MAX_NGRAM_TOKENS = 4096
MAX_AUTO_TOKENS = 64
"""`num_draft_tokens: auto` proposes powers of two up to this."""
TARGET = "target"
"""The value of draft_tp that leaves the draft on the target's GPUs."""


def _is_always_had(algorithm: str) -> bool:  # noqa: ARG001 - the signature of `applies_to`
    return True


def _has_draft_model(algorithm: str) -> bool:
    return algorithm != "NGRAM"


def _is_legal(value: Any, tp: int) -> str | None:  # noqa: ARG001 - the signature of `refusal`
    return None


def _is_its_own(value: Any, tp: int) -> Any:  # noqa: ARG001 - the signature of `canonical`
    return value


@dataclass(frozen=True)
class Dimension:
    """One dimension of the space."""

    name: str
    """As in the sweep file, in `Point`, in ledgers and in data frames."""
    description: str
    """For the reference of the sweep file."""
    file_type: Any
    """Type of the key in a sweep file. pydantic validates the key with this type."""
    label: Callable[[Any], str]
    """A value in a table's row. Returns "" for a value that needs no mention."""
    value_type: Any = int
    """Type of one value in a ledger line."""
    argument: str | None = None
    """The server flag that sets the value, without dashes."""
    variable: str | None = None
    """The environment variable that sets the value. It is absent for `default`."""
    default: Any = None
    """The only value if the sweep file names none. None: the dimension is left out."""
    is_required: bool = False
    """True if the sweep file must name values for every drafter that has the dimension."""
    bounds: tuple[int, int] | None = None
    """Smallest and largest integer allowed."""
    applies_to: Callable[[str], bool] = _is_always_had
    """Whether drafters of an algorithm have the dimension."""
    refusal: Callable[[Any, int], str | None] = _is_legal
    """Why a value is illegal for a target of that TP size. Returns None if the value is legal."""
    canonical: Callable[[Any, int], Any] = _is_its_own
    """The value that stands for all values with the same effect, for that TP size."""
    complexity: Callable[[Any], int] = lambda value: value or 0
    """How much a value asks of the people who run the server. The smaller number wins a tie."""
    weight: int = 0
    """The complexity of a dimension with more weight is compared first (`complexity`)."""
    is_draft_shape: bool = False
    """True if the value shapes the draft (chain, tree, block), so that acceptance depends on it."""


def _divisor_refusal(value: Any, tp: int) -> str | None:
    if value == TARGET or (value >= 1 and tp % value == 0):
        return None
    divisors = ", ".join(str(size) for size in range(1, tp + 1) if tp % size == 0)
    return f"{value} does not divide model.tp {tp}, write target or one of {divisors}"


DIMENSIONS = (
    Dimension(
        "num_steps",
        "Draft steps: `{low: 1, high: 8}` or a list.",
        RangeSpec | Values,
        lambda value: f"{value} step" + "s" * (value != 1),
        argument="speculative-num-steps",
        is_required=True,
        bounds=(1, MAX_STEPS),
        applies_to=_has_draft_model,
        is_draft_shape=True,
    ),
    Dimension(
        "eagle_topk",
        "EAGLE's top-k: 1 is a chain, more a tree. Default: `[1]`.",
        RangeSpec | Values,
        lambda value: f"topk {value}" if value > 1 else "",
        argument="speculative-eagle-topk",
        default=1,
        bounds=(1, 64),
        applies_to=_has_draft_model,
        complexity=lambda value: (value or 1) > 1,
        weight=2,
        is_draft_shape=True,
    ),
    Dimension(
        "num_draft_tokens",
        "`auto` (the default): steps + 1 for chains, powers of two up to 64 between steps + 1 and "
        "steps * topk + 1 for trees; or a list.",
        Literal["auto"] | Values,
        lambda value: f"{value} tokens",
        argument="speculative-num-draft-tokens",
        weight=1,
        is_draft_shape=True,
    ),
    Dimension(
        "draft_tp",
        "Tensor-parallel size of the draft (docs/draft_tp.md); `target` leaves it with the "
        "target's. Default: `[target]`.",
        Annotated[list[Literal["target"] | int], Field(min_length=1)],
        lambda value: "" if value == TARGET else f"draft TP {value}",
        value_type=int | Literal["target"],
        variable="SPECBENCH_DRAFT_TP",  # SGLang has no flag for it; the plug-in reads this
        default=TARGET,
        applies_to=_has_draft_model,
        refusal=_divisor_refusal,
        canonical=lambda value, tp: TARGET if value == tp else value,
        complexity=lambda value: value not in (None, TARGET),
        weight=4,
    ),
)
"""In the order of labels and of the points of a space."""

DRAFT_TP = next(entry for entry in DIMENSIONS if entry.name == "draft_tp")
SETTINGS_WEIGHT = 3
"""Weight of the number of variables and flags that a point sets."""


def with_dimensions(field: Callable[[Dimension], tuple[Any, Any]]) -> Any:
    """Return a strict pydantic model with a field for each dimension.

    `field` returns the type and the default of a dimension's field.
    """
    fields: dict[str, Any] = {dimension.name: field(dimension) for dimension in DIMENSIONS}
    return create_model("Dimensions", __base__=Strict, **fields)


# Draft trees: how many tokens one may have.
#
# Facts about SGLang (0.5.8 to 0.5.23): with eagle_topk 1 the server sets num_draft_tokens to
# num_steps + 1. With topk > 1 the tree has at most 1 + topk + (num_steps - 1) * topk^2 nodes.
# No release checks that: a server with more tokens loads all its weights and then dies at graph
# capture.


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
