"""What a preset of the simulated engine would answer; exact, and of no hardware."""

from tuner.config.loader import LoadedSweep
from tuner.core.errors import UserError
from tuner.server.all_reduce import (
    CommResults,
    Message,
    Setting,
    SettingResult,
    TimingOptions,
    list_settings,
    thinned,
    token_counts,
)
from tuner.sglang.nccl.benchmark import not_measured, rank_count
from tuner.simulator.performance import Performance, SimulatedMachine, Speculation
from tuner.simulator.presets import load_preset


def simulated_results(loaded: LoadedSweep, wanted: TimingOptions, name: str) -> CommResults:
    """Return the all-reduces of preset `name`, all of a verify pass together, by setting.

    Raises UserError if the preset knows none of the variables.
    """
    sweep = loaded.sweep
    machine = load_preset(name, sweep.engine.overrides)
    settings = wanted.settings or list_settings(loaded.space.points)
    varied = {variable for setting in settings for variable, _ in setting.env}
    strange = sorted(varied - set(machine.nccl))
    if varied and len(strange) == len(varied):
        raise UserError(
            f"preset {name} has no numbers for {', '.join(strange)} (it has some for "
            f"{', '.join(machine.nccl)}), so there is nothing to screen: measure with engine.kind "
            "sglang",
            loaded.path,
        )
    tp = rank_count(wanted.tp or sweep.model.tp)
    counts = token_counts(loaded.space.points, sweep.workload.concurrency, tp)["verify"]
    sizes = sorted(wanted.tokens or counts)
    messages = thinned(tuple(Message(tokens, 0, tokens, ("verify",)) for tokens in sizes))
    return CommResults(
        messages=messages,
        measured=tuple(
            _measured(machine, tp, setting, messages, wanted.rounds) for setting in settings
        ),
        backend=f"preset {name}",
        device="simulated",
        tp=tp,
        simulated=True,
        notes=(
            "simulated: from the performance model, nothing was measured, and the microseconds are "
            "of all all-reduces of one verify pass together",
            *(f"{each}: no numbers in the preset, taken as without effect" for each in strange),
            *not_measured(sweep),
        ),
    )


def _measured(
    machine: SimulatedMachine, tp: int, setting: Setting, messages: tuple[Message, ...], rounds: int
) -> SettingResult:
    def us(tokens: int) -> float:
        played = Performance(
            machine,
            tp,
            Speculation("EAGLE3", 1, 1, tokens, 1),
            nccl=dict(setting.env),
            disable_custom_all_reduce=True,
        )
        return 1000 * played.cycle(1).all_reduce_ms

    return SettingResult(setting, tuple((us(message.tokens),) * rounds for message in messages))
