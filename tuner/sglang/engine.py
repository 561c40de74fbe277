"""The real engine: SGLang as a child process, under its own interpreter."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tuner.config.loader import LoadedSweep
from tuner.config.prompts import Prompt
from tuner.config.schema import EngineSpec, ModelSpec, ServerSpec, Sweep, TimeoutSpec
from tuner.loadgen.auth import Keys
from tuner.server.all_reduce import CommResults, TimingOptions
from tuner.server.base import AdaptiveSpeculation, Checked, Command, Engine, ServerConfig, Tokenised
from tuner.server.lifecycle import Launch, LaunchedServer, refuse_missing_program
from tuner.sglang import draft_tp, flags
from tuner.sglang.check import check, check_named
from tuner.sglang.dialect import SGLANG
from tuner.sglang.flag_spelling import spelled_config
from tuner.sglang.interpreter import flags_of_help, installed_version
from tuner.sglang.memory.fit import GpuMemory, estimate_memory
from tuner.sglang.nccl.benchmark import job_of_sweep, run_job
from tuner.sglang.nccl.selection import refusal
from tuner.sglang.releases import Release, latest, parse_version
from tuner.sglang.revisions import held_to_revisions
from tuner.sglang.step_switching import adaptive_config, step_switch_refusal, with_switch
from tuner.sglang.tokenizer import Tokeniser, default_python

_FIND_LIMIT_S = 60.0
# A folder that merely is called sglang has no origin.
_FIND = (
    "import importlib.util as u, sys; s = u.find_spec('sglang'); "
    "sys.exit(0 if s is not None and s.origin else 3)"
)


class SglangEngine(Engine):
    """Launches `python -m sglang.launch_server`."""

    name = "sglang"

    def __init__(
        self,
        spec: EngineSpec,
        timeouts: TimeoutSpec,
        server: ServerSpec | None = None,
    ) -> None:
        self._spec = spec
        self._timeouts = timeouts
        self._server = server if server is not None else ServerSpec()
        self._python = default_python(spec.python)
        self._program = (*spec.command, self._python, *flags.LAUNCHER)

    def refuse(self, loaded: LoadedSweep) -> None:
        """Raises UserError for an interpreter without SGLang, or a prefix that is not here."""
        document = loaded.document
        # Behind docker, ssh or srun the interpreter is another machine's.
        if self._spec.command:
            refuse_missing_program(self._spec.command, document)
        elif reason := self._unusable_interpreter():
            raise document.error(("engine", "python"), reason)

    def check(self, loaded: LoadedSweep) -> Checked:
        """By the rules of the release: engine.release, or what the interpreter has.

        Needs no SGLang. A release that is not in the table is asked for its flags.
        """
        self._refuse_endpoint_keys(loaded)
        if self._spec.release is not None:
            check_named(self._spec.release, loaded)
        also: frozenset[str] = frozenset()
        if self.release.warning is not None and self._is_asked:
            also = flags_of_help(self._python, self._server.env) or also
        held, notes = held_to_revisions(loaded, os.environ)
        checked = check(held, self.release, also)
        return replace(checked, notes=(*checked.notes, *notes))

    def _refuse_endpoint_keys(self, loaded: LoadedSweep) -> None:
        for name in ("api_key", "admin_api_key"):
            if getattr(self._spec, name) is not None:
                flag = name.replace("_", "-")
                raise loaded.document.error(
                    ("engine", name),
                    f"this is of a server that runs already, write server: {{flags: {{{flag}: "
                    "...}} for one that is launched",
                )
        Keys.of_flags(self._server.flags)

    @cached_property
    def release(self) -> Release:
        """The SGLang that the sweep is for; asks the interpreter, once."""
        if self._spec.release is not None:
            return parse_version(self._spec.release, "engine.release")
        found = installed_version(self._python, self._server.env) if self._is_asked else None
        if found is not None:
            return parse_version(found, self._python)
        newest = latest()
        return replace(
            newest,
            warning=self._describe_unknown(newest.known),
        )

    def _describe_unknown(self, newest: object) -> str:
        """What is planned for instead, and what to set."""
        if not self._is_asked:
            return (
                "engine.command hides which SGLang it launches: planned for "
                f"{newest}, the newest; set engine.release"
            )
        return (
            f"no SGLang found in {self._python}: planned for {newest}, the newest; a sweep will "
            "refuse this: set engine.python"
        )

    @property
    def _is_asked(self) -> bool:
        """Behind docker, ssh or srun the interpreter is another machine's."""
        return not self._spec.command and self._spec.release is None

    def switch_refusal(self, config: ServerConfig) -> str | None:
        """By the rules of the release."""
        topk = (config.point.eagle_topk if config.point else None) or 1
        flags = spelled_config(config, self.release).flags
        return step_switch_refusal(self.release, config.model, flags, topk)

    def estimate_memory(self, sweep: Sweep, gib: float | None = None) -> GpuMemory | None:
        """Estimates from the models' files, the flags and the release."""
        return estimate_memory(sweep, self.release, gib)

    def adaptive_config(self, sweep: Sweep) -> AdaptiveSpeculation:
        """Return the adaptive speculation of the release."""
        return adaptive_config(sweep, self.release)

    def communication_refusal(self, sweep: Sweep, environment: Mapping[str, str]) -> str | None:
        """Return why a benchmark of NCCL on this machine says nothing about the servers."""
        return refusal(sweep, environment)

    def screen_communication(
        self,
        loaded: LoadedSweep,
        options: TimingOptions,
        environment: Mapping[str, str],
        report: Callable[[str], None],
    ) -> CommResults:
        """Measure with torch, under the servers' interpreter."""
        return run_job(job_of_sweep(loaded, options, environment), report)

    def command(self, config: ServerConfig) -> Command:
        """The launch command with PORT for the port; starts nothing."""
        return flags.shown_command(self._program, self._spelled(config))

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> LaunchedServer:  # noqa: ARG002
        """Start a server and return when it has generated a token and has its chain length."""
        spelled = self._spelled(config)
        server = LaunchedServer.start(Launch(self._program, SGLANG, spelled, log, self._timeouts))
        if not config.answers:
            return server
        try:
            draft_tp.require_proof(spelled, log)
            if config.point is not None and config.point != spelled.point:
                server.set_steps(config.point.num_steps or 0)
        except BaseException:
            server.stop()
            raise
        return server

    def tokenise(
        self, model: ModelSpec, server: ServerSpec, prompts: Sequence[Prompt]
    ) -> Tokenised:
        """Prompts with the model's chat template, as ids."""
        return Tokeniser(self._python, model, server)(prompts)

    def _spelled(self, config: ServerConfig) -> ServerConfig:
        """The configuration in the release's spelling, with what carries the plug-in."""
        spelled = spelled_config(with_switch(config), self.release)
        return draft_tp.carried(spelled, self.release)

    def _unusable_interpreter(self) -> str | None:
        """Why no server can be started with it, and what would help; None where one can."""
        remedy = "set engine.python to the interpreter that has SGLang"
        environment = {**os.environ, **self._server.env}
        try:
            found = subprocess.run(
                [self._python, "-c", _FIND],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_FIND_LIMIT_S,
                env=environment,
                check=False,
            )
        except OSError as error:
            if Path(self._python).is_dir():
                inside = Path(self._python) / "bin" / "python"
                return f"{self._python} is a folder, write the interpreter in it, as {inside}"
            return f"cannot run {self._python}: {error.strerror}; {remedy}"
        except subprocess.TimeoutExpired:
            return f"{self._python} does not answer; {remedy}"
        if found.returncode != 0:
            return (
                f"{self._python} has no sglang; {remedy}, or try the sweep with --engine simulated"
            )
        return None
