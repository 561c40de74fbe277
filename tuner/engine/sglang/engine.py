"""The real engine: SGLang as a child process, under its own interpreter."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tuner.engine.base import Checked, Command, ServerConfig, Tokenised
from tuner.engine.launched import Launch, LaunchedServer
from tuner.engine.sglang import flags
from tuner.engine.sglang.checking import check, check_named
from tuner.engine.sglang.interpreter import flags_of_help, installed_version
from tuner.engine.sglang.releases import Release, latest, parse_version
from tuner.engine.sglang.spelling import spelled_config
from tuner.engine.sglang.tokenise import Tokeniser, default_python
from tuner.errors import UserError
from tuner.sweep.door import LoadedSweep
from tuner.sweep.model import EngineSpec, ModelSpec, ServerSpec, Sweep, TimeoutSpec
from tuner.sweep.point import DraftTp
from tuner.sweep.workload import Prompt

_FIND_LIMIT_S = 60.0
# A folder that merely is called sglang has no origin.
_FIND = (
    "import importlib.util as u, sys; s = u.find_spec('sglang'); "
    "sys.exit(0 if s is not None and s.origin else 3)"
)


class SglangEngine:
    """Launches `python -m sglang.launch_server`. See `engine.base.Engine`."""

    name = "sglang"

    def __init__(
        self,
        spec: EngineSpec,
        timeouts: TimeoutSpec,
        model: ModelSpec,
        server: ServerSpec | None = None,
    ) -> None:
        self._spec = spec
        self._timeouts = timeouts
        self._server = server if server is not None else ServerSpec()
        self._python = default_python(spec.python)
        self._program = (*spec.command, self._python, *flags.LAUNCHER)
        self._tokeniser = Tokeniser(self._python, model, self._server)

    def refuse(self, sweep: Sweep) -> None:
        """Raises UserError for a draft TP, and for an interpreter without SGLang."""
        for value in sweep.space.draft_tp or ():
            _refuse_draft_tp(value, sweep.model.tp)
        # Behind docker, ssh or srun the interpreter is another machine's.
        if not self._spec.command:
            self._check_interpreter()

    def check(self, loaded: LoadedSweep) -> Checked:
        """By the rules of the release: engine.release, or what the interpreter has.

        Needs no SGLang. A release that is not in the table is asked for its flags.
        """
        if self._spec.release is not None:
            check_named(self._spec.release, loaded)
        also: frozenset[str] = frozenset()
        if self.release.warning is not None and self._is_asked:
            also = flags_of_help(self._python, self._server.env) or also
        return check(loaded, self.release, also)

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
            warning=f"the release is not known here and taken for {newest.known}, the newest: "
            "engine.release or --sglang says which it is",
        )

    @property
    def _is_asked(self) -> bool:
        """Behind docker, ssh or srun the interpreter is another machine's."""
        return not self._spec.command and self._spec.release is None

    def command(self, config: ServerConfig) -> Command:
        """The launch command with PORT for the port; starts nothing."""
        return flags.shown_command(self._program, spelled_config(config, self.release))

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> LaunchedServer:  # noqa: ARG002
        """Start a server and return when it has generated a token."""
        if config.point is not None:
            _refuse_draft_tp(config.point.draft_tp, config.model.tp)
        spelled = spelled_config(config, self.release)
        return LaunchedServer.start(Launch(self._program, spelled, log, self._timeouts))

    def tokenise(self, prompts: Sequence[Prompt]) -> Tokenised:
        """Prompts with the model's chat template, as ids."""
        return self._tokeniser(prompts)

    def _check_interpreter(self) -> None:
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
            raise UserError(f"cannot run {self._python}: {error.strerror}; {remedy}") from error
        except subprocess.TimeoutExpired as error:
            raise UserError(f"{self._python} does not answer; {remedy}") from error
        if found.returncode != 0:
            raise UserError(
                f"{self._python} has no sglang; {remedy}, or try the sweep with --engine simulated"
            )


def _refuse_draft_tp(value: DraftTp | None, tp: int) -> None:
    if value not in (None, "target", tp):
        raise UserError(
            f"draft_tp {value} needs the draft-TP patch, which this release of specbench does not "
            "have yet; use draft_tp: [target]"
        )
