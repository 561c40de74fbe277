"""A server that somebody else started and that stays when we are done."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.config.prompts import Prompt
from tuner.config.schema import EngineSpec, ModelSpec, ServerSpec, Sweep, TimeoutSpec
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.loadgen.auth import NO_KEYS, Keys
from tuner.metrics.samples import EngineCounters
from tuner.server.base import Checked, Command, Engine, Server, ServerConfig, Tokenised
from tuner.server.gpu_sampler import ServerGpus
from tuner.server.http_api import ServerApi
from tuner.sglang.dialect import SGLANG
from tuner.sglang.flags import running_point
from tuner.sglang.tokenizer import Tokeniser, default_python


class EndpointServer(Server):
    """A running server, attached to. See `server.base.Server`; `stop` leaves it running."""

    gpus: ServerGpus | None = None
    """Somebody else chose them, and they may be on another machine."""
    api = SGLANG.api

    def __init__(self, api: ServerApi, keys: Keys = NO_KEYS) -> None:
        """Raises EngineFailure where it does not answer as SGLang does, or with no token."""
        began = time.monotonic()
        self._api, self.keys = api, keys
        self.url = api.url
        self.info: Mapping[str, Any] = api.server_info()
        api.generate_one_token(self.info)
        self.engine_version = str(self.info.get("version", "unknown"))
        self.launch_s = time.monotonic() - began

    def flush_cache(self) -> None:
        """Empty the prefix cache. Raises EngineFailure."""
        self._api.flush_cache()

    def set_steps(self, steps: int) -> None:
        """Raises EngineFailure(CLIENT): somebody else's server stays as it is."""
        raise EngineFailure(
            Failure.CLIENT, f"a server that runs already stays as it is: {steps} steps"
        )

    def counters(self) -> EngineCounters | None:
        """What the server itself has counted since the cache was emptied."""
        return self._api.counters(SGLANG.counters)

    def check_alive(self) -> None:
        """Raises EngineFailure(CLIENT) if nothing answers any more."""
        self._api.server_info()

    def stop(self) -> None:
        """Let go of the server, which goes on running."""


class EndpointEngine(Engine):
    """Attaches to `engine.url`."""

    name = "endpoint"

    def __init__(self, spec: EngineSpec, timeouts: TimeoutSpec) -> None:
        if spec.url is None:
            raise UserError("kind endpoint needs a url, such as url: http://127.0.0.1:30000")
        self._url, self._keys = spec.url, Keys(spec.api_key, spec.admin_api_key)
        self._timeouts = timeouts
        self._python = default_python(spec.python)

    def check(self, loaded: LoadedSweep) -> Checked:
        """The sweep as it is: the server runs with whatever it was started with."""
        return Checked(loaded)

    def switch_refusal(self, config: ServerConfig) -> str | None:  # noqa: ARG002
        """A server that somebody else started stays as it is."""
        return "a server that runs already is measured as it is"

    def command(self, config: ServerConfig) -> Command:  # noqa: ARG002
        """No words: this engine starts nothing."""
        return Command((), {}, frozenset())

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> EndpointServer:  # noqa: ARG002
        """Attach to the server, whatever it was started with; `point_of` says with what."""
        api = ServerApi(self._url, self._timeouts.request, self._keys)
        if not api.is_healthy():
            raise EngineFailure(Failure.CLIENT, f"no healthy server at {api.url}/health")
        return EndpointServer(api, self._keys)

    def tokenise(
        self, model: ModelSpec, server: ServerSpec, prompts: Sequence[Prompt]
    ) -> Tokenised:
        """Prompts as ids where `engine.python` can load model.target's tokenizer, else as text."""
        return Tokeniser(self._python, model, server)(prompts)

    def communication_refusal(self, sweep: Sweep, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """A running server has one communication setting."""
        return (
            "an endpoint runs with the settings that it has, so there are none to compare: "
            "specbench comm needs a sweep of kind sglang"
        )

    def running_point(self, info: Mapping[str, Any]) -> Point | None:
        """Return the speculation of the server, or None if it has none."""
        return running_point(info)
