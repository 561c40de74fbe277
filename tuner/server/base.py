"""The interface between specbench and whatever serves the model.

An Engine turns a ServerConfig into a running Server or raises EngineFailure. The simulated and the
real engine pass the same contract tests (tests/server/test_engine_contract.py). To add an engine,
subclass Engine, implement Server, and register the engine (tuner/engines.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from tuner.config.field_types import UNSET
from tuner.config.loader import LoadedSweep
from tuner.config.pinned_flags import pins
from tuner.config.point import Point
from tuner.config.prompts import Prompt
from tuner.config.schema import ModelSpec, ServerFlag, ServerSpec, Sweep
from tuner.core.errors import Failure, UserError
from tuner.core.secrets import hidden, hidden_word, hide_arguments
from tuner.loadgen.auth import Keys
from tuner.loadgen.client import GenerationApi
from tuner.metrics.samples import EngineCounters, Request
from tuner.server.all_reduce import CommResults, TimingOptions
from tuner.server.gpu_sampler import ServerGpus

if TYPE_CHECKING:
    from tuner.server.memory import MemoryEstimator

HOST = "127.0.0.1"
"""Servers that specbench launches listen on the loopback address only."""


@dataclass(frozen=True)
class Rank:
    """One host's part of a server that spans several (`server.flags.nnodes`)."""

    number: int
    """From 0, which answers requests; the others only work."""
    address: str
    """`HOST:PORT`, where rank 0 waits for the others."""


@dataclass(frozen=True)
class ServerConfig:
    """What one server is started with, before any engine's spelling."""

    model: ModelSpec
    point: Point | None
    """None: no speculation."""
    flags: Mapping[str, ServerFlag]
    """Server flags and the point's, by name without dashes; False and UNSET are already gone."""
    env: Mapping[str, str]
    """Variables to set: the server's and the point's."""
    unset: frozenset[str]
    """Variables to remove from the inherited environment."""
    warm_steps: tuple[int, ...] = ()
    """Chain lengths, ascending, that the server is prepared for at launch and can be switched
    between (`Server.set_steps`); the point's own is among them. (): only the point's own."""
    rank: Rank | None = None
    """Of a server that spans hosts, the one to start; None: a server of this host alone."""

    @property
    def answers(self) -> bool:
        """False of what only works for another host's server."""
        return self.rank is None or self.rank.number == 0


def server_config(
    sweep: Sweep, point: Point | None, warm_steps: tuple[int, ...] = ()
) -> ServerConfig:
    """The server of `point`, or of the baseline for None.

    Every variable that is a dimension of the space is removed from the environment where the
    point leaves it unset; the baseline has every dimension at its default. What the file leaves
    open and SGLang would choose differently with speculation is pinned alike (pins.py).
    """
    if point is None:
        flags, env = dict(sweep.baseline.flags), dict(sweep.baseline.env)
    else:
        flags, env = dict(point.flags), dict(point.env)
    merged_env = {**sweep.server.env, **env}
    return ServerConfig(
        model=sweep.model,
        point=point,
        flags={
            k: v
            for k, v in {**pins(sweep), **sweep.server.flags, **flags}.items()
            if v is not False and v != UNSET
        },
        env={k: v for k, v in merged_env.items() if v != UNSET},
        unset=frozenset(
            {name for name in sweep.space.env if name not in merged_env}
            | {k for k, v in merged_env.items() if v == UNSET}
        ),
        warm_steps=warm_steps,
    )


def plain_config(sweep: Sweep, settings: Point) -> ServerConfig:
    """The server without speculation under a point's variables and flags (`Point.settings`)."""
    return replace(server_config(sweep, settings), point=None)


@dataclass(frozen=True)
class Command:
    """A launch as a person would type it: the words, and what changes in the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    unset: frozenset[str]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Command":
        """The command that `to_json` wrote."""
        return cls(tuple(data["argv"]), dict(data["env"]), frozenset(data["unset"]))

    def hidden(self) -> "Command":
        """With `${NAME}` for each secret, as it is kept and shown."""
        env = {name: hidden_word(value, name) for name, value in self.env.items()}
        return Command(hide_arguments(self.argv), env, self.unset)

    def to_json(self) -> dict[str, Any]:
        """The shape that ledgers and plans show, without secrets."""
        shown = self.hidden()
        return {"argv": list(shown.argv), "env": dict(shown.env), "unset": sorted(shown.unset)}


@dataclass(frozen=True)
class Identity:
    """Signs by which a launch recognises its own server among all that may answer on a port."""

    words: tuple[str, ...]
    """Words added to the command line."""
    expected: Mapping[str, Any] = field(default_factory=dict)
    """Values that /server_info must then report."""

    def mismatch(self, info: Mapping[str, Any]) -> str | None:
        """Return the first difference between `info` and this server, or None."""
        for name, value in self.expected.items():
            if info.get(name) != value:
                return f"{name} is {info.get(name)!r}, not {value!r}"
        return None


@dataclass(frozen=True)
class Dialect:
    """How one kind of server is started and how its output is read.

    The life of a server (`lifecycle`) is the same for every engine; this is what differs.
    """

    identity: Callable[[ServerConfig, str, int], Identity]
    """From the config, a nonce of the launch and the port."""
    environment: Callable[[ServerConfig], Mapping[str, str]]
    """Variables to set."""
    own_variables: frozenset[str]
    """Variables that only specbench sets. They are removed from the caller's environment."""
    server_words: Callable[[ServerConfig, int, int], list[str]]
    """Flags of the command line, from the config, the port and the NCCL port."""
    diagnose: Callable[[int | None, str], tuple[Failure, str]]
    """Label and sentence, from the exit status (None: still running) and the log."""
    has_port_conflict: Callable[[str], bool]
    """True if the log shows that a port is taken."""
    is_dying: Callable[[str], bool]
    """True if the log shows that the server is about to end."""
    counters: Callable[[Mapping[str, Any]], EngineCounters | None]
    """Counters in an answer of /server_info. Returns None if there are none."""
    api: GenerationApi
    """How load is sent, and how the events of an answer are read."""


@dataclass(frozen=True)
class Checked:
    """A sweep as an engine will run it."""

    loaded: LoadedSweep
    """The file's sweep less the points that cannot run."""
    notes: tuple[str, ...] = ()
    """What plan and report show of that: the release, what was pinned, what stays different."""


@dataclass(frozen=True)
class Tokenised:
    """Prompts ready to be sent, in the order given, and a doubt about them."""

    requests: tuple[Request, ...]
    doubt: str | None = None

    @classmethod
    def as_text(cls, prompts: Sequence[Prompt], doubt: str | None = None) -> "Tokenised":
        """Return prompts as texts, for a server that tokenises them itself."""
        requests = (
            Request(prompt.id, prompt.kind, prompt.text, None, prompt.follows) for prompt in prompts
        )
        return cls(tuple(requests), None if doubt is None else hidden(doubt))


@dataclass(frozen=True)
class AdaptiveSpeculation:
    """How servers of a release choose their chain length by batch size, from a file."""

    release: str
    """`SGLang 0.5.17`."""
    takes_zero: bool
    """True if a batch size may have 0 steps: nothing is drafted."""
    has_one_list: bool
    """True if the file has one list of lengths, from which the server chooses by acceptance."""
    flags: tuple[str, ...]
    """Words of the command line in front of the file's path."""
    refusal: Callable[[Point], str | None]
    """Why a server of the point cannot read such a file. Returns None if it can."""
    content: Callable[[Mapping[int, int]], Mapping[str, Any] | str]
    """The file for steps by batch size, or why there is none for them."""


class Server(Protocol):
    """A server that answered. Use it as a context manager, or call `stop` whatever happens."""

    url: str
    engine_version: str
    """`0.5.17`; the simulated engine says the release that it plays."""
    launch_s: float
    """Seconds from start to the first generated token; the simulated engine's are model time."""
    info: Mapping[str, Any]
    """The answer of /server_info when the server became ready."""
    keys: Keys
    """What it wants of requests."""
    api: GenerationApi
    """How it is asked for answers, and how their events are read."""
    gpus: ServerGpus | None
    """The GPUs that it runs on, to be read while it is measured; None where they are not known."""

    def flush_cache(self) -> None:
        """Empty the prefix cache. Raises EngineFailure(CLIENT) if the server refuses."""

    def set_steps(self, steps: int) -> None:
        """Pin the chain length of a running, idle server that was launched with `warm_steps`.

        It stays until the next call; num_draft_tokens follows. Raises EngineFailure:
        CLIENT with the server's reason where it refuses (a length it is not prepared for, requests
        that run), the cause of death where it has ended.
        """

    def counters(self) -> EngineCounters | None:
        """What the server itself has counted since the cache was emptied; None where it does not
        tell. Raises nothing."""

    def check_alive(self) -> None:
        """Raises EngineFailure with the cause of death if the server has ended."""

    def stop(self) -> None:
        """End every process of the launch and wait for ports and GPU memory; safe to repeat."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class Engine(ABC):
    """Starts servers. Its constructor takes what is fixed for the whole run.

    A new engine has to implement the abstract methods. The other methods have defaults for an
    engine without that capability.
    """

    name: str
    """The kind in sweep files and ledgers: `sglang`, `simulated`, `endpoint`."""

    def refuse(self, loaded: LoadedSweep) -> None:  # noqa: B027 - optional
        """Raise UserError, at its line, if this machine cannot run the sweep. Starts no server.

        Plans do not call this method, because they are made on any machine.
        """

    @abstractmethod
    def check(self, loaded: LoadedSweep) -> Checked:
        """Return the sweep as this engine runs it. Raises UserError with the line of the mistake.

        Starts no server. Run and plan the result, not `loaded`. A second check changes nothing.
        """

    @abstractmethod
    def command(self, config: ServerConfig) -> Command:
        """Return the launch command for plans and best.sh, with PORT for the port.

        Starts nothing.
        """

    @abstractmethod
    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> Server:
        """Start a server and return it when it has generated a token.

        `log` gets the server's output. A rank that does not answer is returned as soon as it runs:
        it can be checked and stopped. Raises EngineFailure, with no process left behind.
        KeyboardInterrupt passes through, also with no process left behind.
        """

    def tokenise(
        self,
        model: ModelSpec,  # noqa: ARG002
        server: ServerSpec,  # noqa: ARG002
        prompts: Sequence[Prompt],
    ) -> Tokenised:
        """Return prompts with the model's chat template as token ids, or by default as texts.

        `server` is that of the sweep that `check` returned. It names the commit of the target whose
        tokenizer is used.
        """
        return Tokenised.as_text(prompts)

    def switch_refusal(self, config: ServerConfig) -> str | None:  # noqa: ARG002
        """Return why one launch cannot serve all `warm_steps` of `config`, or None if it can.

        A reason is a clause such as `SGLang 0.5.8 has no adaptive speculation`. Then plans and
        runs have one launch for each point. Called only if `server.step_switch` is true.
        """
        return f"servers of the engine {self.name} keep their chain length"

    def estimate_memory(
        self,
        sweep: Sweep,  # noqa: ARG002
        gib: float | None = None,  # noqa: ARG002
    ) -> "MemoryEstimator | None":
        """Return estimates for the sweep's servers, or None if nothing is known.

        `gib` is the memory of a GPU. None: that of the smallest GPU here.
        """
        return None

    def adaptive_config(self, sweep: Sweep) -> AdaptiveSpeculation | str:  # noqa: ARG002
        """Return how servers choose their chain length by batch size, or why they cannot."""
        return f"the engine {self.name} has no adaptive speculation"

    def communication_refusal(self, sweep: Sweep, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Return why all-reduces cannot be timed for the sweep's servers, or None if they can."""
        return f"the engine {self.name} cannot time all-reduces"

    def screen_communication(
        self,
        loaded: LoadedSweep,
        options: TimingOptions,  # noqa: ARG002
        environment: Mapping[str, str],
        report: Callable[[str], None],  # noqa: ARG002
    ) -> CommResults:
        """Return the all-reduce latencies under every communication setting of the sweep.

        `environment` is this process's. `report` gets one line of progress at a time. Raises
        UserError if the sweep cannot be timed, and EngineFailure if no setting gave figures. No
        process is left, whatever is raised.
        """
        reason = self.communication_refusal(loaded.sweep, environment)
        raise UserError(reason or "all-reduces cannot be timed", loaded.path)

    def running_point(self, info: Mapping[str, Any]) -> Point | None:  # noqa: ARG002
        """Return the speculation of a running server from its `info`, or None if it has none.

        Called for an engine that launches no servers.
        """
        return None
