"""The rounds: every setting's process group anew in each, so that drift and starts are shared.

NCCL reads its variables once, at its start. Groups are started side by side, a wave of a few, and
wait; they measure one after the other while the rest of the wave sleeps.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.field_types import UNSET
from tuner.config.loader import LoadedSweep
from tuner.config.schema import ServerFlag, Sweep
from tuner.core.errors import EngineFailure, UserError
from tuner.server.all_reduce import (
    ROUNDS,
    CommResults,
    Message,
    Setting,
    SettingResult,
    TimingOptions,
    group_ranks,
    is_communication,
    list_settings,
    token_counts,
)
from tuner.sglang.log_parser import nccl_defaults
from tuner.sglang.nccl.messages import MessageShape, message_shape, messages
from tuner.sglang.nccl.process_group import (
    BUDGET_S,
    PAUSE_S,
    Group,
    GroupOrder,
    Trouble,
    usable_cores,
)
from tuner.sglang.tokenizer import default_python

_CUSTOM_OFF = "disable-custom-all-reduce"
BACK_END_FLAGS = (
    _CUSTOM_OFF,
    "enable-flashinfer-allreduce-fusion",
    "enable-mscclpp",
    "enable-nccl-nvls",
    "enable-symm-mem",
    "enable-torch-symm-mem",
)
"""SGLang's flags that choose what carries an all-reduce; only NCCL is measured here."""
AT_ONCE = 4
START_S = 10.0
"""ASSUMED, of a wave of groups until all are up; two ranks on H200 took 5 s."""


@dataclass(frozen=True)
class BenchmarkJob:
    """A benchmark to run."""

    order: GroupOrder
    settings: tuple[Setting, ...]
    messages: tuple[Message, ...]
    rounds: int = ROUNDS
    at_once: int = AT_ONCE
    """Groups that are up at a time; each holds a CUDA context on every GPU."""
    notes: tuple[str, ...] = ()


def expected_s(settings: int, sizes: int) -> float:
    """Seconds that a benchmark of so many settings and message sizes takes, about."""
    starting = -(-settings // AT_ONCE) * START_S
    return ROUNDS * (starting + settings * sizes * BUDGET_S)


@dataclass
class _Tally:
    """What is known of one setting so far."""

    rounds: list[list[float]] = field(default_factory=list)
    """Medians by round, then by message."""
    trouble: Trouble | None = None
    no_graphs: str | None = None


def run_job(job: BenchmarkJob, say: Callable[[str], None]) -> CommResults:
    """Measure every setting; `say` gets a line as each round begins.

    A setting that hangs or crashes is not started again. Raises EngineFailure where none gave
    figures, UserError where the interpreter cannot measure at all. Whatever is raised, also
    KeyboardInterrupt, no process is left.
    """
    tallies = {setting: _Tally() for setting in job.settings}
    facts: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="specbench-comm-") as folder:
        for number in range(job.rounds):
            alive = [each for each in job.settings if tallies[each].trouble is None]
            noun = "setting" if len(alive) == 1 else "settings"
            say(f"round {number + 1} of {job.rounds}: {len(alive)} {noun}")
            for index, wave in enumerate(_waves(alive, number, job.at_once)):
                place = Path(folder) / f"{number}-{index}"
                facts |= _run_wave(job, wave, place, tallies, say)
    measured = tuple(_measured(setting, tally) for setting, tally in tallies.items())
    troubles = [tally.trouble for tally in tallies.values() if tally.trouble is not None]
    if len(troubles) == len(tallies):
        first = troubles[0]
        raise EngineFailure(first.failure, f"no setting could be measured: {first.message}")
    return CommResults(
        messages=job.messages,
        measured=measured,
        backend=facts.get("backend", "unknown"),
        device=facts.get("device", "unknown"),
        tp=job.order.world,
        notes=(*job.notes, *_graph_notes(measured)),
    )


def _waves(alive: Sequence[Setting], number: int, size: int) -> Iterator[list[Setting]]:
    """The settings of a round in groups, begun elsewhere each time and backwards every other."""
    if not alive:
        return
    turn = number % len(alive)
    order = [*alive[turn:], *alive[:turn]]
    if number % 2:
        order.reverse()
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def _run_wave(
    job: BenchmarkJob,
    wave: Sequence[Setting],
    folder: Path,
    tallies: dict[Setting, _Tally],
    say: Callable[[str], None],
) -> dict[str, str]:
    """One round of these settings; returns what a group said it is made of."""
    groups = [Group(setting, job.order, folder / str(index)) for index, setting in enumerate(wave)]
    with ExitStack() as stack:
        for group in groups:
            stack.callback(group.stop)
            group.start()
        # Nobody measures while another one starts.
        while not all(group.is_settled for group in groups):
            _look(groups)
        for group in groups:
            if group.trouble is None:
                group.begin_turn()
            while not group.is_done:
                _look([group])
        for group in groups:
            _add(tallies[group.setting], group, job)
            group.dismiss()
    for group in groups:
        if group.trouble is not None:
            say(f"{group.setting.label()}: {group.trouble.failure}, {group.trouble.message}")
    facts = next((found for group in groups if (found := group.ready_facts())), {})
    return {name: str(value) for name, value in facts.items()}


def _look(groups: Sequence[Group]) -> None:
    for group in groups:
        group.look()
    time.sleep(PAUSE_S)


def _add(tally: _Tally, group: Group, job: BenchmarkJob) -> None:
    tally.trouble = group.trouble
    if group.trouble is not None:
        return
    found = group.sizes()
    tally.rounds.append([statistics.median(found[m.elements, m.ranks]["us"]) for m in job.messages])
    whys = (line["why"] for line in found.values() if line["why"] is not None)
    tally.no_graphs = next(whys, tally.no_graphs)


def _measured(setting: Setting, tally: _Tally) -> SettingResult:
    if tally.trouble is not None:
        return SettingResult(setting, failure=tally.trouble.failure, message=tally.trouble.message)
    by_message = tuple(tuple(each) for each in zip(*tally.rounds, strict=True))
    return SettingResult(setting, by_message, no_graphs=tally.no_graphs)


def _graph_notes(measured: Sequence[SettingResult]) -> list[str]:
    without = [each for each in measured if each.no_graphs is not None]
    if not without:
        return []
    names = "; ".join(each.setting.label() for each in without)
    return [
        f"measured without CUDA graphs, so that launching hides differences ({names}): "
        f"{without[0].no_graphs}"
    ]


def job_of_sweep(
    loaded: LoadedSweep, wanted: TimingOptions, environment: Mapping[str, str]
) -> BenchmarkJob:
    """The settings and message sizes of a sweep for SGLang, in `environment`. Raises UserError."""
    sweep = loaded.sweep
    flags = sweep.server.flags
    own = {name: value for name, value in sweep.server.env.items() if value != UNSET}
    removed = {name for name, value in sweep.server.env.items() if value == UNSET}
    unset = frozenset({*sweep.space.env, *removed})
    kept = {name: value for name, value in environment.items() if name not in unset} | own
    counts = token_counts(loaded.space.points, sweep.workload.concurrency, sweep.model.tp)
    if wanted.tokens is not None:
        counts = {"verify": frozenset(wanted.tokens)}
    shape = message_shape(sweep, kept, wanted.hidden, wanted.dtype)
    world = rank_count(wanted.tp or sweep.model.tp)
    # With another --tp than the sweep's there may be no such groups.
    fitting = {part: each for part, each in counts.items() if world % (group_ranks(part) or 1) == 0}
    sizes = messages(shape, fitting)
    order = GroupOrder(
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
    settings = wanted.settings or list_settings(loaded.space.points)
    return _job(order, settings, sizes, wanted, tuple(not_measured(sweep)))


def job_by_hand(wanted: TimingOptions, environment: Mapping[str, str]) -> BenchmarkJob:
    """A benchmark without a sweep. Raises UserError for what is missing."""
    if wanted.hidden is None or wanted.tokens is None or wanted.tp is None:
        raise UserError(
            "give a sweep file, or --tp, --hidden and --tokens, such as --tp 2 --hidden 4096 "
            "--tokens 1,4,8"
        )
    shape = MessageShape(wanted.hidden, wanted.dtype or "bfloat16")
    sizes = messages(shape, {"verify": frozenset(wanted.tokens)})
    varied = frozenset(name for setting in wanted.settings for name, _ in setting.env)
    kept = {name: value for name, value in environment.items() if name not in varied}
    order = GroupOrder(
        program=(default_python(wanted.python),),
        world=rank_count(wanted.tp),
        device=wanted.device or "cuda",
        sizes=tuple((each.elements, each.ranks) for each in sizes),
        dtype=shape.dtype,
        limit_s=wanted.limit_s,
        env=nccl_defaults({}, kept),
        unset=varied,
    )
    return _job(order, wanted.settings or (Setting(),), sizes, wanted, ())


def _job(
    order: GroupOrder,
    settings: tuple[Setting, ...],
    sizes: tuple[Message, ...],
    wanted: TimingOptions,
    notes: tuple[str, ...],
) -> BenchmarkJob:
    if order.device == "cpu":
        notes = (*notes, "gloo on CPU: says nothing of NCCL")
    # Starting them costs a core for each rank.
    fitting = max(1, min(AT_ONCE, usable_cores() // order.world))
    return BenchmarkJob(order, settings, sizes, wanted.rounds, wanted.at_once or fitting, notes)


def rank_count(tp: int) -> int:
    """The number of ranks. Raises UserError for one."""
    if tp < 2:
        raise UserError("on one GPU there are no all-reduces: model.tp, or --tp, must be 2 or more")
    return tp


def _number(value: ServerFlag | None, otherwise: int) -> int:
    return value if type(value) is int else otherwise


def not_measured(sweep: Sweep) -> list[str]:
    """Sentences on what a benchmark of NCCL says nothing about."""
    said = []
    if flags := [f"--{name}" for name in sweep.space.flags if name in BACK_END_FLAGS]:
        said.append(
            f"{' and '.join(flags)} of the space: SGLang's own all-reduces are not NCCL and are "
            "not measured here, only servers can tell"
        )
    elif sweep.server.flags.get(_CUSTOM_OFF) is not True:
        said.append(
            "SGLang reduces with its own kernels before NCCL where it can (NVLink, or two GPUs "
            f"with P2P): there NCCL settings matter with --{_CUSTOM_OFF} alone"
        )
    if others := [name for name in sweep.space.env if not is_communication(name)]:
        said.append(
            f"{', '.join(others)} of the space: read by the server alone, not measured here"
        )
    return said
