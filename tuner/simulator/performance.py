"""How long each cycle takes: draft, verify and all-reduces. Pure, milliseconds throughout."""

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.simulator.acceptance import SimulatedAcceptance, expected_length, fixed_length

NCCL_VARIABLES = ("NCCL_PROTO", "NCCL_ALGO", "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE")


@dataclass(frozen=True)
class Linear:
    """base + per_token * n, with another slope beyond the knee."""

    base_ms: float
    per_token_ms: float
    knee_tokens: float = float("inf")
    per_token_beyond_ms: float = 0.0

    def at(self, tokens: int) -> float:
        """Milliseconds for `tokens` tokens."""
        beyond = max(0.0, tokens - self.knee_tokens)
        return (
            self.base_ms
            + self.per_token_ms * (tokens - beyond)
            + (self.per_token_beyond_ms * beyond)
        )


@dataclass(frozen=True)
class Factors:
    """What a setting multiplies the latency and the per-token part of an all-reduce by."""

    latency: float = 1.0
    per_token: float = 1.0

    def __mul__(self, other: "Factors") -> "Factors":
        return Factors(self.latency * other.latency, self.per_token * other.per_token)


@dataclass(frozen=True)
class Draft:
    """The draft model's share of a cycle, for each of its `steps` forwards."""

    fixed_ms: float
    """Once per cycle: building and verifying the tree's buffers."""
    step_ms: float
    """Each step, whatever the draft's TP."""
    read_ms: float
    """Each step: reading all draft weights on one GPU; d GPUs take a d-th each."""
    all_reduce_ms: float
    """Each step: all-reduces through NCCL at its defaults; none at draft TP 1."""
    custom_all_reduce_ms: float
    """The same through custom all-reduce."""
    sharded_ms: float
    """Each step, at a draft TP above 1: what sharding costs besides all-reduces."""
    tree_ms: float
    """Each step, for each candidate beyond the first (topk - 1)."""


@dataclass(frozen=True)
class StartUp:
    """Model-time seconds of each phase of a launch."""

    init_s: float
    load_weight_s: float
    load_draft_s: float
    kv_cache_s: float
    capture_decode_s: float
    capture_verify_s: float
    capture_draft_s: float
    capture_extend_s: float
    capture_more: float
    """What each further chain length takes, as a share of the verify, draft and extend captures."""
    warmup_s: float


@dataclass(frozen=True)
class SimulatedMachine:
    """One model on one machine: every number that the simulated engine plays with."""

    name: str
    tp: int
    nvlink: bool
    acceptance: SimulatedAcceptance
    algorithm_factors: Mapping[str, float]
    step: Linear
    """A decode step without speculation, by batch, all-reduces included."""
    verify: Linear
    """The verify forward's compute, by batch * draft tokens."""
    all_reduce: Linear
    """A target forward's all-reduces through NCCL at its defaults, by tokens."""
    custom_all_reduce: Linear
    nccl: Mapping[str, Mapping[str, Factors]]
    """By variable and value; a value that is not there changes nothing."""
    draft: Draft
    prefill: Linear
    startup: StartUp
    noise: float
    """Relative standard deviation of one cycle's time."""
    weight_gb: float
    kv_cache_gb: float
    token_capacity: int


@dataclass(frozen=True)
class Speculation:
    """The speculative settings of a server, after SGLang's own adjustments."""

    algorithm: str
    steps: int
    topk: int
    draft_tokens: int
    draft_tp: int

    @property
    def most_draft_tokens(self) -> int:
        """The largest tree of these steps and topk; a larger one dies at graph capture."""
        if self.topk == 1:
            return self.steps + 1
        return 1 + self.topk + (self.steps - 1) * self.topk**2


@dataclass(frozen=True)
class CycleTime:
    """Where one cycle goes, in milliseconds. Without speculation all of it is verify_compute."""

    draft_ms: float
    verify_compute_ms: float
    all_reduce_ms: float

    @property
    def verify_ms(self) -> float:
        return self.verify_compute_ms + self.all_reduce_ms

    @property
    def total_ms(self) -> float:
        return self.draft_ms + self.verify_ms


@dataclass(frozen=True)
class Performance:
    """A machine under one server's settings.

    `nccl` holds the NCCL_* variables of the server's environment; `simulated_length` is
    SGLANG_SIMULATE_ACC_LEN, None where it is not set. The preset's compute is for its own TP
    size and is scaled to `tp`; the all-reduces are taken as they are.
    """

    machine: SimulatedMachine
    tp: int
    speculation: Speculation | None = None
    nccl: Mapping[str, str] | None = None
    disable_custom_all_reduce: bool = False
    simulated_length: float | None = None

    @property
    def has_custom_all_reduce(self) -> bool:
        """SGLang's own all-reduce: on two GPUs or NVLink, unless it is switched off."""
        fits = self.tp == 2 or (self.tp > 2 and self.machine.nvlink)
        return fits and not self.disable_custom_all_reduce

    def nccl_factors(self) -> Factors:
        """What the NCCL settings multiply an all-reduce by; 1 where NCCL is not in the way."""
        env = dict(self.nccl or {})
        if self.has_custom_all_reduce:
            return Factors()
        # Without peer-to-peer there is no level of it: both spellings go through host memory.
        if env.get("NCCL_P2P_DISABLE") == "1" or env.get("NCCL_P2P_LEVEL", "").upper() in (
            "LOC",
            "0",
        ):
            env.pop("NCCL_P2P_LEVEL", None)
            env["NCCL_P2P_DISABLE"] = "1"
        factors = Factors()
        for name in NCCL_VARIABLES:
            by_value = {k.upper(): v for k, v in self.machine.nccl.get(name, {}).items()}
            factors *= by_value.get(env.get(name, "").upper(), Factors())
        return factors

    def cycle(self, batch: int) -> CycleTime:
        """One cycle (one step without speculation) of `batch` running requests."""
        compute_scale = self.machine.tp / self.tp
        if self.speculation is None:
            return CycleTime(0.0, self.machine.step.at(batch) * compute_scale, 0.0)
        tokens = batch * self.speculation.draft_tokens
        return CycleTime(
            draft_ms=self._draft_ms(self.speculation),
            verify_compute_ms=self.machine.verify.at(tokens) * compute_scale,
            all_reduce_ms=self._all_reduce_ms(tokens),
        )

    def _all_reduce_ms(self, tokens: int) -> float:
        if self.tp == 1:
            return 0.0
        if self.has_custom_all_reduce:
            return self.machine.custom_all_reduce.at(tokens)
        factors, line = self.nccl_factors(), self.machine.all_reduce
        return line.base_ms * factors.latency + (line.at(tokens) - line.base_ms) * factors.per_token

    def _draft_ms(self, speculation: Speculation) -> float:
        if speculation.algorithm == "NGRAM":
            return 0.0
        draft = self.machine.draft
        step = draft.step_ms + draft.read_ms / speculation.draft_tp
        step += draft.tree_ms * (speculation.topk - 1)
        if speculation.draft_tp > 1:
            custom = self.has_custom_all_reduce
            step += draft.sharded_ms + (
                draft.custom_all_reduce_ms
                if custom
                else draft.all_reduce_ms * self.nccl_factors().latency
            )
        return draft.fixed_ms + step * speculation.steps

    def prefill_ms(self, tokens: int) -> float:
        """One prefill batch of `tokens` prompt tokens."""
        return self.machine.prefill.at(tokens)

    def conditional(self, kind: str) -> tuple[float, ...]:
        """Acceptance chance at each draft position; empty without speculation."""
        spec = self.speculation
        if spec is None:
            return ()
        if self.simulated_length is not None:
            return fixed_length(self.simulated_length, spec.steps)
        factor = self.machine.algorithm_factors.get(spec.algorithm, 1.0)
        chances = self.machine.acceptance.conditional(
            spec.steps, spec.topk, spec.draft_tokens, kind
        )
        return tuple(chance * factor for chance in chances)

    def expected_accept_length(self, kind: str = "chat") -> float:
        """Tokens per cycle and request, bonus included; 1 without speculation."""
        return expected_length(self.conditional(kind))

    def expected_tok_s(self, batch: int = 1, kind: str = "chat") -> float:
        """Decode throughput of `batch` requests together, prefill excluded."""
        return batch * self.expected_accept_length(kind) / self.cycle(batch).total_ms * 1000
