"""Combinations that SGLang refuses, or dies of, known before anything is launched.

Each rule is a function of one planned server. Sources are wheel files below sglang/srt/; the
releases that a rule holds for are in releases.TABLE or in the rule. The draft tree's own bounds
hold for every release and are sweep.space's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.config.point import Point
from tuner.config.schema import ServerFlag, Sweep
from tuner.server.base import server_config
from tuner.sglang.flag_catalogue import fact
from tuner.sglang.flag_spelling import spell
from tuner.sglang.releases import Release

TRUE = ("1", "true", "yes", "y", "on")
"""What SGLang reads as true in a variable, in lower case."""

SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


def looked_at(release: Release) -> frozenset[str]:
    """Variables that rules look at: points that differ in others alone break the same rule."""
    pipeline = release.text("pipeline_variable")
    return frozenset({SPEC_V2} if pipeline is None else {SPEC_V2, pipeline})


@dataclass(frozen=True)
class Broken:
    """A rule that a server breaks."""

    about: tuple[str, ...]
    """What the rule joins, the likeliest mistake first: flags, `algorithm`, `eagle_topk`, ..."""
    message: str
    """What is wrong, and what would be right."""


@dataclass(frozen=True)
class Planned:
    """A server with speculation that a sweep would start."""

    release: Release
    algorithm: str
    tp: int
    point: Point
    flags: Mapping[str, ServerFlag]
    """By the release's first name of each."""
    env: Mapping[str, str]
    """Those that a rule looks at (`looked_at`)."""

    @classmethod
    def of(cls, sweep: Sweep, point: Point, release: Release) -> "Planned":
        """The server of `point`; flags that the release lacks are left out."""
        config = server_config(sweep, point)
        flags: dict[str, ServerFlag] = {}
        for name, value in config.flags.items():
            spelled = spell(name, value, release)
            if spelled is not None and spelled.name is not None and spelled.value is not None:
                flags[release.arguments[spelled.name].name] = spelled.value
        model = sweep.model
        seen = looked_at(release)
        env = {name: value for name, value in config.env.items() if name in seen}
        return cls(release, model.algorithm or "", model.tp, point, flags, env)

    def flag(self, name: str) -> ServerFlag | None:
        """A flag's value under any of its names; None where it is not set."""
        argument = self.release.arguments.get(name)
        return None if argument is None else self.flags.get(argument.name)

    def number(self, name: str) -> int:
        """A flag's whole number, 0 where it has none."""
        value = self.flag(name)
        return int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0

    def is_set(self, name: str) -> bool:
        """True for a switch that is on, a list or a text."""
        return self.flag(name) not in (None, False)

    def has_variable(self, name: str) -> bool:
        """True where the variable is on, in the words that SGLang takes."""
        return self.env.get(name, "").lower() in TRUE

    @property
    def topk(self) -> int:
        """eagle_topk; NGRAM's is the breadth of its trie."""
        if self.algorithm == "NGRAM":
            return self.number("speculative-ngram-max-bfs-breadth") or 10
        return self.point.eagle_topk or 1

    @property
    def has_dp_attention(self) -> bool:
        """Attention split over data-parallel ranks, in either spelling."""
        return self.is_set("enable-dp-attention") or self.number("attn-dp-size") > 1


CHAIN_ONLY = ("trtllm_mha", "flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla")
"""Attention back-ends without trees: trtllm_mha is checked at start (server_args.py:2203 of 0.5.8,
arg_groups/speculative_hook.py:1174 of 0.5.23), the others when the draft's back-end is built, after
loading (flashmla_backend.py:517, flashinfer_mla_backend.py:912 of 0.5.8, whose class the trtllm
family inherits)."""
EAGLE_FAMILY = ("EAGLE", "EAGLE3", "NEXTN")
_BACKENDS = ("attention-backend", "decode-attention-backend", "prefill-attention-backend")
_DRAFT_BACKEND = "speculative-draft-attention-backend"


Rule = Callable[[Planned], Broken | None]


def chain_only_backend(server: Planned) -> Broken | None:
    """Trees on a back-end that holds chains only."""
    names = (*_BACKENDS, _DRAFT_BACKEND) if server.algorithm != "NGRAM" else ()
    for name in names:
        backend = server.flag(name)
        late = backend != "trtllm_mha" and server.point.num_steps == 1
        if server.topk > 1 and backend in CHAIN_ONLY and not late:
            return Broken(
                ("eagle_topk", name),
                f"attention back-end {backend} has no trees, write eagle_topk: [1] or another "
                f"{name}",
            )
    return None


def paged_tree(server: Planned) -> Broken | None:
    """Trees with pages of several tokens."""
    backend, page = server.flag("attention-backend"), server.number("page-size")
    if server.topk == 1 or page <= 1 or backend is None:
        return None
    able = server.release.names("paged_tree_backends")
    if server.algorithm == "NGRAM":  # speculative_hook.py:1358 of 0.5.23, the same since 0.5.8
        able = ("flashinfer",)
    if backend in able:
        return None
    return Broken(
        ("page-size", "attention-backend", "eagle_topk"),
        f"page-size {page} with eagle_topk {server.topk} needs attention-backend "
        f"{' or '.join(able)}, not {backend}",
    )


def draft_backend(server: Planned) -> Broken | None:
    """An attention back-end for which the draft has none of its own (draft_utils.py)."""
    if server.algorithm == "NGRAM" or server.flag("device") == "cpu":
        return None  # without a GPU there is no such back-end: whoever runs that has patched it
    decode = server.flag("decode-attention-backend") or server.flag("attention-backend")
    prefill = server.flag("prefill-attention-backend") or server.flag("attention-backend")
    extend = decode if server.flag("speculative-attention-mode") == "decode" else prefill
    own = server.flag(_DRAFT_BACKEND)
    uses = [("draft_extend_backends", own or extend)]
    if (server.point.num_steps or 1) > 1:
        uses.append(("draft_decode_backends", own or decode))
    for kind, backend in uses:
        able = fact(server.release.known, kind)
        if backend is not None and backend not in able:
            return Broken(
                (_DRAFT_BACKEND, *_BACKENDS),
                f"SGLang {server.release.known} cannot draft with attention back-end {backend}, "
                f"write {_DRAFT_BACKEND}: triton, or another attention-backend",
            )
    return None


def dp_attention(server: Planned) -> Broken | None:
    """STANDALONE and NGRAM with DP attention (server_args.py:2128, :2266 of 0.5.8)."""
    if server.algorithm in ("STANDALONE", "NGRAM") and server.has_dp_attention:
        return Broken(
            ("enable-dp-attention", "attn-dp-size", "algorithm"),
            f"{server.algorithm} does not work with DP attention, remove the flag",
        )
    return None


def pipeline(server: Planned) -> Broken | None:
    """Speculation over pipeline stages."""
    if server.number("pp-size") <= 1:
        return None
    variable = server.release.text("pipeline_variable")
    if variable is None:
        return Broken(
            ("pp-size", "pipeline-parallel-size"),
            f"SGLang {server.release.known} has no speculation with pp-size above 1, write "
            "pp-size: 1",
        )
    single = server.algorithm in ("EAGLE", "NEXTN") and not server.is_set(
        "enable-multi-layer-eagle"
    )
    if single and server.has_variable(variable) and not server.has_dp_attention:
        return None
    return Broken(
        ("pp-size", "pipeline-parallel-size"),
        f"pp-size above 1 speculates only with EAGLE, without DP attention and with {variable}=1 "
        "in server.env; write pp-size: 1",
    )


def spec_v2_variable(server: Planned) -> Broken | None:
    """Trees under SGLANG_ENABLE_SPEC_V2 (server_args.py:2148 of 0.5.8)."""
    on = server.has_variable(SPEC_V2)
    if server.release.at_least("0.5.11") or not on or server.topk == 1:
        return None
    if server.algorithm == "NGRAM":
        return None
    return Broken(
        ("SGLANG_ENABLE_SPEC_V2", "eagle_topk"),
        f"on SGLang {server.release.known} SGLANG_ENABLE_SPEC_V2 takes eagle_topk 1 only, remove "
        "the variable or the trees",
    )


def moe_runner(server: Planned) -> Broken | None:
    """server_args.py:2119 of 0.5.8, :2350 of 0.5.9; gone in 0.5.10."""
    name = "speculative-moe-runner-backend"
    if server.flag(name) == "flashinfer_trtllm" and not server.release.at_least("0.5.10"):
        return Broken((name,), f"flashinfer_trtllm works from SGLang 0.5.10 on, write {name}: auto")
    return None


def lora(server: Planned) -> Broken | None:
    """Adapters with speculation."""
    able = server.release.names("lora_algorithms")
    name = next((n for n in ("lora-paths", "enable-lora") if server.is_set(n)), None)
    if name is None or server.algorithm in able:
        return None
    return Broken(
        (name, "algorithm"),
        f"SGLang {server.release.known} has LoRA with {', '.join(able)} only, not "
        f"{server.algorithm}: remove {name}",
    )


def rejection_sampling(server: Planned) -> Broken | None:
    """arg_groups/speculative_hook.py:341-380 of 0.5.14, :1210-1252 of 0.5.23."""
    name = "speculative-use-rejection-sampling"
    if not server.is_set(name):
        return None
    release = server.release
    if server.algorithm not in EAGLE_FAMILY:
        return Broken((name, "algorithm"), f"{name} works with EAGLE, EAGLE3 and NEXTN only")
    if server.topk != 1:
        return Broken((name, "eagle_topk"), f"{name} needs eagle_topk: [1]")
    for threshold in ("single", "acc"):
        other = f"speculative-accept-threshold-{threshold}"
        if server.flag(other) not in (None, 1, 1.0):
            return Broken((other, name), f"{name} ignores {other}, leave one of them away")
    if server.is_set("enable-deterministic-inference") and not release.at_least("0.5.23"):
        return Broken(
            ("enable-deterministic-inference", name),
            f"{name} is not deterministic before SGLang 0.5.23, leave one of them away",
        )
    if server.is_set("enable-multi-layer-eagle") and not release.at_least("0.5.16"):
        return Broken(
            ("enable-multi-layer-eagle", name),
            f"{name} does not work with multi-layer EAGLE before SGLang 0.5.16",
        )
    return None


def adaptive(server: Planned) -> Broken | None:
    """Where SGLang would silently go on without it (speculative/adaptive_spec_params.py)."""
    name = "speculative-adaptive"
    if not server.is_set(name):
        return None
    if server.algorithm not in EAGLE_FAMILY:
        return Broken((name, "algorithm"), f"{name} works with EAGLE, EAGLE3 and NEXTN only")
    if server.topk != 1:
        return Broken((name, "eagle_topk"), f"{name} needs eagle_topk: [1]")
    rivals = ("enable-multi-layer-eagle", "enable-two-batch-overlap", "enable-pdmux")
    for rival in ("enable-dp-attention", *rivals):
        if server.is_set(rival) or (rival == "enable-dp-attention" and server.has_dp_attention):
            return Broken((rival, name), f"{name} does not work with {rival}, remove one of them")
    v2_off = server.env.get(SPEC_V2, "1").lower() not in TRUE
    if not server.release.at_least("0.5.12") and not (
        server.is_set("disable-overlap-schedule") or v2_off
    ):
        return Broken((name,), f"on SGLang 0.5.11 {name} needs disable-overlap-schedule: true")
    return _steps_of_adaptive(server)


def _steps_of_adaptive(server: Planned) -> Broken | None:
    """num_steps must be one of the config's steps (speculative_hook.py of 0.5.14 and later)."""
    config = server.flag("speculative-adaptive-config")
    if not isinstance(config, str) or not server.release.at_least("0.5.14"):
        return None
    try:
        slots = json.loads(Path(config).read_text(encoding="utf-8"))
        steps = {step for slot in slots.values() if isinstance(slot, dict)
                 for step in slot.get("candidate_steps", ())}  # fmt: skip
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None  # another machine's file, or not what SGLang will accept: its to say
    if not steps or server.point.num_steps in steps:
        return None
    return Broken(
        ("num_steps", "speculative-adaptive-config"),
        f"num_steps {server.point.num_steps} is not among candidate_steps of {config}, write "
        f"{', '.join(map(str, sorted(steps)))}",
    )


def token_map(server: Planned) -> Broken | None:
    """The draft's head is a shard that the map indexes as a whole (eagle_worker.py:176 of 0.5.8,
    eagle_worker_v2.py:375 of 0.5.23): an assertion on the GPU, in no release a message."""
    name = "speculative-token-map"
    split = server.tp > 1 and server.point.draft_tp != 1
    if server.algorithm in ("EAGLE", "NEXTN") and server.is_set(name) and split:
        return Broken((name,), f"{name} works with tp 1 or draft_tp 1 only, remove it")
    return None


def chunks_of_pages(server: Planned) -> Broken | None:
    """A prefill chunk is a whole number of pages (server_args.py, check_server_args)."""
    chunk, page = server.number("chunked-prefill-size"), server.number("page-size")
    if chunk and page and chunk % page:
        return Broken(
            ("chunked-prefill-size", "page-size"),
            f"chunked-prefill-size {chunk} is no multiple of page-size {page}",
        )
    return None


RULES: tuple[Rule, ...] = (
    chain_only_backend,
    paged_tree,
    draft_backend,
    dp_attention,
    pipeline,
    spec_v2_variable,
    moe_runner,
    lora,
    rejection_sampling,
    adaptive,
    token_map,
    chunks_of_pages,
)


def broken_rule(server: Planned) -> Broken | None:
    """The first rule that the server breaks; None where SGLang will take it."""
    return next((found for rule in RULES if (found := rule(server)) is not None), None)
