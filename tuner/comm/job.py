"""From a sweep, or from the command line alone, to a benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.comm.benchmark import AT_ONCE, ROUNDS, Job
from tuner.comm.group import Order, usable_cores
from tuner.comm.messages import Message, Shape, messages, ranks_of, shape_of, token_counts
from tuner.comm.settings import Setting, not_measured, settings_of
from tuner.engine.sglang.all_reduce import nccl_defaults
from tuner.engine.sglang.tokenise import default_python
from tuner.errors import UserError
from tuner.sweep.door import LoadedSweep
from tuner.sweep.fields import UNSET
from tuner.sweep.model import ServerFlag


@dataclass(frozen=True)
class Wanted:
    """What the command line says; None leaves it to the sweep, or to what is usual."""

    hidden: int | None = None
    dtype: str | None = None
    tokens: tuple[int, ...] | None = None
    tp: int | None = None
    python: str | None = None
    device: str | None = None
    settings: tuple[Setting, ...] = ()
    rounds: int = ROUNDS
    limit_s: float = 60.0
    at_once: int | None = None


def job_of_sweep(loaded: LoadedSweep, wanted: Wanted, environment: Mapping[str, str]) -> Job:
    """The settings and message sizes of a sweep for SGLang, in `environment`. Raises UserError."""
    sweep = loaded.sweep
    if sweep.engine.kind == "endpoint":
        raise UserError(
            "an endpoint runs with the settings that it has, so there are none to compare: "
            "specbench comm needs a sweep of kind sglang",
            loaded.path,
        )
    flags = sweep.server.flags
    own = {name: value for name, value in sweep.server.env.items() if value != UNSET}
    removed = {name for name, value in sweep.server.env.items() if value == UNSET}
    unset = frozenset({*sweep.space.env, *removed})
    kept = {name: value for name, value in environment.items() if name not in unset} | own
    counts = token_counts(loaded.space.points, sweep.workload.concurrency, sweep.model.tp)
    if wanted.tokens is not None:
        counts = {"verify": frozenset(wanted.tokens)}
    shape = shape_of(sweep, kept, wanted.hidden, wanted.dtype)
    world = world_of(wanted.tp or sweep.model.tp)
    # With another --tp than the sweep's there may be no such groups.
    fitting = {part: each for part, each in counts.items() if world % (ranks_of(part) or 1) == 0}
    sizes = messages(shape, fitting)
    order = Order(
        program=(*sweep.engine.command, default_python(wanted.python or sweep.engine.python)),
        world=world,
        device=wanted.device or ("cpu" if flags.get("device") == "cpu" else "cuda"),
        sizes=tuple((each.elements, each.ranks) for each in sizes),
        dtype=shape.dtype,
        limit_s=wanted.limit_s,
        first_gpu=_number(flags.get("base-gpu-id"), 0),
        gpu_step=_number(flags.get("gpu-id-step"), 1),
        env={**own, **nccl_defaults(flags, kept)},
        unset=unset,
    )
    settings = wanted.settings or settings_of(loaded.space.points)
    return _job(order, settings, sizes, wanted, tuple(not_measured(sweep)))


def job_by_hand(wanted: Wanted, environment: Mapping[str, str]) -> Job:
    """A benchmark without a sweep. Raises UserError for what is missing."""
    if wanted.hidden is None or wanted.tokens is None or wanted.tp is None:
        raise UserError(
            "give a sweep file, or --tp, --hidden and --tokens, such as --tp 2 --hidden 4096 "
            "--tokens 1,4,8"
        )
    shape = Shape(wanted.hidden, wanted.dtype or "bfloat16")
    sizes = messages(shape, {"verify": frozenset(wanted.tokens)})
    varied = frozenset(name for setting in wanted.settings for name, _ in setting.env)
    kept = {name: value for name, value in environment.items() if name not in varied}
    order = Order(
        program=(default_python(wanted.python),),
        world=world_of(wanted.tp),
        device=wanted.device or "cuda",
        sizes=tuple((each.elements, each.ranks) for each in sizes),
        dtype=shape.dtype,
        limit_s=wanted.limit_s,
        env=nccl_defaults({}, kept),
        unset=varied,
    )
    return _job(order, wanted.settings or (Setting(),), sizes, wanted, ())


def _job(
    order: Order,
    settings: tuple[Setting, ...],
    sizes: tuple[Message, ...],
    wanted: Wanted,
    notes: tuple[str, ...],
) -> Job:
    if order.device == "cpu":
        notes = (*notes, "gloo on CPU: says nothing of NCCL")
    # Starting them costs a core for each rank.
    fitting = max(1, min(AT_ONCE, usable_cores() // order.world))
    return Job(order, settings, sizes, wanted.rounds, wanted.at_once or fitting, notes)


def world_of(tp: int) -> int:
    """The number of ranks. Raises UserError for one."""
    if tp < 2:
        raise UserError("on one GPU there are no all-reduces: model.tp, or --tp, must be 2 or more")
    return tp


def _number(value: ServerFlag | None, otherwise: int) -> int:
    return value if type(value) is int else otherwise
