"""The simulated engine: a real server process that plays SGLang from a performance model.

Launch, flags and stop are those of the real engine; only the program differs.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.config.loader import LoadedSweep
from tuner.config.schema import EngineSpec, FaultSpec, Sweep, TimeoutSpec
from tuner.config.yaml_document import Document
from tuner.config.yaml_document import Path as Place
from tuner.core.errors import UserError
from tuner.server.all_reduce import CommResults, TimingOptions
from tuner.server.base import AdaptiveSpeculation, Checked, Command, Engine, ServerConfig
from tuner.server.lifecycle import Launch, LaunchedServer, refuse_missing_program
from tuner.sglang import flags
from tuner.sglang.check import check, check_named
from tuner.sglang.dialect import SGLANG
from tuner.sglang.flag_spelling import spelled_config
from tuner.sglang.releases import Release, parse_version
from tuner.sglang.step_switching import adaptive_config, step_switch_refusal, with_switch
from tuner.simulator.arguments import DEFAULT_PRESET, PLAYS_VERSION
from tuner.simulator.faults import misfit
from tuner.simulator.nccl import simulated_results
from tuner.simulator.presets import check_override, preset_description, preset_numbers


class SimulatedEngine(Engine):
    """Launches `python -m tuner.simulator`.

    Prompts stay texts: acceptance comes from the prompt's kind, not from its tokens.
    """

    name = "simulated"

    def __init__(self, spec: EngineSpec, timeouts: TimeoutSpec) -> None:
        self._spec = spec
        self._preset = spec.preset if spec.preset is not None else DEFAULT_PRESET
        self._played = spec.release or PLAYS_VERSION
        self._timeouts = timeouts
        self._faults = spec.faults
        self._program = (
            *spec.command,
            *(sys.executable, "-m", "tuner.simulator"),
            *("--preset", self._preset),
            *("--startup-scale", str(spec.startup_scale)),
            *(("--sglang-version", spec.release) if spec.release else ()),
            *_override_arguments(spec.overrides),
        )

    @property
    def _release(self) -> Release:
        return parse_version(self._played, "engine.release")

    def refuse(self, loaded: LoadedSweep) -> None:
        """Raises UserError for an engine.command that is not on this machine."""
        refuse_missing_program(self._spec.command, loaded.document)

    def check(self, loaded: LoadedSweep) -> Checked:
        """Check the keys of the preset, the faults, and the rules of the release that is played."""
        self._check_keys(loaded.document)
        check_named(self._played, loaded)
        checked = check(loaded, self._release, on_hardware=False)
        notes = (self._plays(), *self._other_ranks(loaded.sweep.model.tp))
        return replace(checked, notes=(*notes, *checked.notes))

    def _check_keys(self, document: Document) -> None:
        """Raise UserError at the line of a wrong key of `engine`."""
        place: Place = ("engine", "preset")
        try:
            preset_numbers(self._preset)
            for key, value in self._spec.overrides.items():
                place = ("engine", "overrides", key)
                check_override(self._preset, key, value)
            for index, fault in enumerate(self._spec.faults):
                place = ("engine", "faults", index)
                if (why := misfit(fault.kind, fault.value)) is not None:
                    raise UserError(why)
        except UserError as error:
            raise document.error(place, error.message) from error

    def _plays(self) -> str:
        played = f"plays {self._preset}: {preset_description(self._preset)}"
        if self._spec.preset is None:
            played += (
                "; engine.preset names none, so this is not the machine or the model of the file"
            )
        return played

    def _other_ranks(self, tp: int) -> Iterator[str]:
        """Yield a note if model.tp differs from the preset's number of ranks."""
        its = preset_numbers(self._preset)["tp"].value
        if tp != self._spec.overrides.get("tp", its):
            yield (
                f"the preset plays {its} ranks and model.tp is {tp}: compute is scaled to that, "
                "the rest is not"
            )

    def switch_refusal(self, config: ServerConfig) -> str | None:
        """Return the reason of the release that is played, or None if it can switch."""
        topk = (config.point.eagle_topk if config.point else None) or 1
        words = spelled_config(config, self._release).flags
        return step_switch_refusal(self._release, config.model, words, topk)

    def adaptive_config(self, sweep: Sweep) -> AdaptiveSpeculation:
        """Return the adaptive speculation of the release."""
        return adaptive_config(sweep, self._release)

    def communication_refusal(self, sweep: Sweep, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Every preset has latencies of all-reduces."""
        return None

    def screen_communication(
        self,
        loaded: LoadedSweep,
        options: TimingOptions,
        environment: Mapping[str, str],  # noqa: ARG002
        report: Callable[[str], None],  # noqa: ARG002
    ) -> CommResults:
        """Read the latencies from the preset."""
        return simulated_results(loaded, options, self._preset)

    def _spelled(self, config: ServerConfig) -> ServerConfig:
        return spelled_config(with_switch(config), self._release)

    def command(self, config: ServerConfig) -> Command:
        """Return the launch command, without faults and with PORT for the port. Starts nothing."""
        return flags.shown_command(self._program, self._spelled(config))

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> LaunchedServer:
        """Start a server with the faults of this launch. Its `launch_s` is model time."""
        faults = [
            word
            for fault in self._faults
            if (fault.launches is None or launch_id in fault.launches)
            and fault.rank == (config.rank.number if config.rank is not None else 0)
            for word in ("--fault", _spell_fault(fault))
        ]
        program = (*self._program, *faults)
        spelled = self._spelled(config)
        server = LaunchedServer.start(Launch(program, SGLANG, spelled, log, self._timeouts))
        if not config.answers:
            return server
        server.launch_s = _modelled_launch(server)
        if config.point is not None and config.point != spelled.point:
            try:
                server.set_steps(config.point.num_steps or 0)
            except BaseException:
                server.stop()
                raise
        return server


def _override_arguments(overrides: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in overrides.items()
        for word in ("--override", f"{name}={json.dumps(value)}")
    ]


def _spell_fault(fault: FaultSpec) -> str:
    return fault.kind if fault.value is None else f"{fault.kind}={fault.value!r}"


def _modelled_launch(server: LaunchedServer) -> float:
    played = server.info.get("simulated")
    modelled = played.get("launch_s") if isinstance(played, dict) else None
    return float(modelled) if isinstance(modelled, int | float) else server.launch_s
