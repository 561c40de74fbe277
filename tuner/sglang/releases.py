"""What differs between SGLang's releases, in one table, and which row a version has.

Sources are files of the wheel of the release that begins the row, below sglang/srt/. Arguments are
not here: all of them are in data/arguments.json (see arguments.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tuner.core.errors import UserError
from tuner.sglang.flag_catalogue import Argument, arguments, fact, releases

OLDEST = "0.5.8"

FIRST_SWITCHED = "0.5.13"
"""The first whose chain length can be switched: 0.5.12 has one list of lengths for all batch sizes,
without 0; 0.5.11 needs the V1 worker."""


@dataclass(frozen=True)
class ReleaseFact:
    """A fact that holds from one release on, until the next row of its topic."""

    since: str
    value: str | tuple[str, ...] | None
    source: str


TABLE: Mapping[str, tuple[ReleaseFact, ...]] = {
    # meta_info of a request's last chunk: accepted draft tokens, without the bonus token
    "correct_drafts": (
        ReleaseFact("0.5.8", "spec_accept_token_num", "managers/tokenizer_manager.py:1844"),
        ReleaseFact("0.5.11", "spec_accepted_drafts", "managers/tokenizer_manager.py:2108"),
        ReleaseFact("0.5.12", "spec_num_correct_drafts", "managers/tokenizer_manager.py:2135"),
    ),
    # verify_ct * (num_draft_tokens - 1), by the static argument: wrong under adaptive speculation
    "proposed_drafts": (
        ReleaseFact("0.5.8", "spec_draft_token_num", "managers/tokenizer_manager.py:1845"),
        ReleaseFact("0.5.11", "spec_proposed_drafts", "managers/tokenizer_manager.py:2109"),
        ReleaseFact("0.5.12", "spec_num_proposed_drafts", "managers/tokenizer_manager.py:2136"),
    ),
    # number of verifies that accepted k drafts, by k
    "histogram": (
        ReleaseFact("0.5.8", None, "managers/tokenizer_manager.py:1814-1846"),
        ReleaseFact("0.5.9", "spec_accept_histogram", "managers/tokenizer_manager.py:1865"),
        ReleaseFact(
            "0.5.12", "spec_correct_drafts_histogram", "managers/tokenizer_manager.py:2149"
        ),
    ),
    # `accept rate` of the decode log line and of /metrics: what is divided by what
    "logged_accept_rate": (
        ReleaseFact(
            "0.5.8",
            "(correct drafts + bonus) / (verifies * num_draft_tokens)",
            "managers/scheduler_metrics_mixin.py:359-372",
        ),
        ReleaseFact(
            "0.5.11",
            "correct drafts / (verifies * (num_draft_tokens - 1))",
            "observability/scheduler_metrics_mixin.py:531-541",
        ),
    ),
    # v1: EAGLEWorker, overlap scheduler off; v2: EAGLEWorkerV2
    "workers": (
        ReleaseFact(
            "0.5.8", "v1, v2 with SGLANG_ENABLE_SPEC_V2=1 (topk 1)", "server_args.py:2141-2161"
        ),
        ReleaseFact("0.5.11", "v2, v1 with topk > 1", "server_args.py:3458-3480"),
        ReleaseFact("0.5.13", "v2", "arg_groups/speculative_hook.py:288-300"),
    ),
    # how a draft gets its group: what a draft-TP patch must take hold of
    "draft_group": (
        ReleaseFact("0.5.8", "dp_attention globals", "speculative/eagle_worker.py:133-136"),
        ReleaseFact("0.5.9", "parallel_state globals", "speculative/eagle_worker.py:133-136"),
        ReleaseFact(
            "0.5.14", "separate alloc_memory_pool", "speculative/eagle_worker_v2.py:159-176"
        ),
        ReleaseFact("0.5.21", "owns_attention", "speculative/eagle_worker_v2.py:189-194"),
        ReleaseFact(
            "0.5.23", "resolve_draft_parallel_layout", "speculative/eagle_worker_v2.py:207-225"
        ),
    ),
    # setuptools entry points `sglang.srt.plugins`, run in every process of the server
    "plugins": (
        ReleaseFact("0.5.8", None, "no plugins/ folder; a .pth file or sitecustomize does it"),
        ReleaseFact("0.5.11", "sglang.srt.plugins", "plugins/__init__.py"),
    ),
    # attention back-ends that can hold a tree (eagle_topk > 1) with page_size > 1
    "paged_tree_backends": (
        ReleaseFact("0.5.8", ("flashinfer", "fa3"), "server_args.py:2222-2229"),
        ReleaseFact(
            "0.5.13", ("flashinfer", "fa3", "triton"), "arg_groups/speculative_hook.py:376"
        ),
    ),
    # LoRA adapters with speculation
    "lora_algorithms": (
        ReleaseFact("0.5.8", ("NGRAM",), "server_args.py:5016"),
        ReleaseFact(
            "0.5.19", ("NGRAM", "EAGLE", "NEXTN", "EAGLE3"), "arg_groups/lora_hook.py:166-226"
        ),
    ),
    # the variable that lets pp_size > 1 go with EAGLE
    "pipeline_variable": (
        ReleaseFact("0.5.8", None, "server_args.py:4809"),
        ReleaseFact("0.5.21", "SGLANG_ENABLE_PP_SPEC", "arg_groups/validation_hook.py:37-62"),
    ),
    # prefill graphs (piecewise) without being asked for
    "prefill_graphs": (
        ReleaseFact("0.5.8", "off", "server_args.py:579"),
        ReleaseFact("0.5.10", "on", "server_args.py:637"),
    ),
    # SGLANG_SIMULATE_ACC_METHOD's default; multinomial rounds and is biased
    "simulated_acceptance": (
        ReleaseFact("0.5.8", "multinomial", "environ.py:200"),
        ReleaseFact("0.5.11", "match-expected", "environ.py:207"),
    ),
    # what --speculative-adaptive-config holds: see adaptive.py
    "adaptive_config": (
        ReleaseFact("0.5.8", None, "no speculative/adaptive_spec_params.py"),
        ReleaseFact("0.5.11", "one list", "speculative/adaptive_spec_params.py:98-101"),
        ReleaseFact("0.5.13", "batch sizes", "speculative/adaptive_spec_params.py:94-113"),
        ReleaseFact(
            "0.5.14", "batch sizes, 0 steps too", "speculative/adaptive_spec_params.py:110"
        ),
    ),
    # exit status after SIGINT; SIGTERM drains and then ends with -9 in all
    "interrupted_status": (
        ReleaseFact("0.5.8", "0", "measured on 0.5.17"),
        ReleaseFact("0.5.20", "130", "measured on 0.5.20 and 0.5.23"),
    ),
    # where a port that is taken shows: never before the weights are loaded
    "port_taken": (ReleaseFact("0.5.8", "[Errno 98], then hangs", "measured on 0.5.17"),),
}

Topic = Literal[
    "correct_drafts",
    "proposed_drafts",
    "histogram",
    "logged_accept_rate",
    "workers",
    "draft_group",
    "plugins",
    "paged_tree_backends",
    "lora_algorithms",
    "pipeline_variable",
    "prefill_graphs",
    "simulated_acceptance",
    "adaptive_config",
    "interrupted_status",
    "port_taken",
]

FORMULAS: Mapping[str, str] = {
    "accept_length": "1 + sum(correct drafts) / sum(verify_ct)",
    "spec_accept_length": "completion_tokens / verify_ct: about 1 / verify_ct above accept_length",
    "spec_accept_rate": "correct drafts / (verify_ct * (num_draft_tokens - 1)); "
    "for trees it counts nodes, so it is low by construction",
}
"""The same in every release: ours, and what SGLang's own figures mean."""


@dataclass(frozen=True)
class Release:
    """The SGLang that a sweep is for."""

    asked: str
    """The version as the interpreter or the user says it."""
    known: str
    """The release on PyPI whose facts apply."""
    warning: str | None = None
    """Why `known` may not be right; None where it is the release itself."""

    def row(self, topic: Topic) -> ReleaseFact:
        """The row of the table that applies."""
        key = version_key(self.known)
        return [row for row in TABLE[topic] if version_key(row.since) <= key][-1]

    def text(self, topic: Topic) -> str | None:
        """A row's value where it is one word or sentence."""
        value = self.row(topic).value
        assert not isinstance(value, tuple)
        return value

    def names(self, topic: Topic) -> tuple[str, ...]:
        """A row's value where it is several names."""
        value = self.row(topic).value
        assert isinstance(value, tuple)
        return value

    def at_least(self, version: str) -> bool:
        """True from that release on."""
        return version_key(self.known) >= version_key(version)

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """The release's arguments by every name that they have."""
        return arguments(self.known)

    @property
    def meta_info(self) -> tuple[str, ...]:
        """The speculative fields of a request's meta_info, aliases of older names included."""
        return fact(self.known, "meta_info")

    @property
    def environment(self) -> tuple[str, ...]:
        """Variables that SGLang itself writes into its own environment, most only if unset."""
        return fact(self.known, "environment")


def latest() -> Release:
    """The newest release in the table."""
    return Release(releases()[-1], releases()[-1])


@lru_cache(maxsize=256)  # asked for with every rule of every point
def version_key(version: str) -> tuple[int, int, int, int]:
    """`0.5.12.post1` as (0, 5, 12, 1)."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post(\d+))?", version)
    if match is None:
        raise ValueError(f"{version} is not a release")
    major, minor, patch, post = (int(group or 0) for group in match.groups())
    return major, minor, patch, post


def parse_version(text: str, where: str | None = None) -> Release:
    """The release that a version belongs to, also for source checkouts and newer versions.

    `0.5.9.post1.dev3+g1a2b` is a checkout between 0.5.9 and the next release: it gets the row of
    the last one before it, with a warning. Raises UserError for versions before 0.5.8, and for
    text that is no version. `where` is the place that the error names.
    """
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:\.?post(\d+))?([^+]*)", text.strip())
    if match is None:
        raise UserError(f"'{text}' is not an SGLang version, write it like {releases()[-1]}", where)
    numbers = tuple(int(group or 0) for group in match.groups()[:4])
    if numbers[:3] == (0, 0, 0):
        return _beyond(text, f"{text} is a source checkout that does not know its version")
    if numbers[:3] < version_key(OLDEST)[:3]:
        raise UserError(
            f"SGLang {text} is older than {OLDEST}, the oldest that specbench knows: its flags and "
            f"its counts of accepted drafts are others; install sglang>={OLDEST}",
            where,
        )
    before = [each for each in releases() if version_key(each) <= numbers]
    known = before[-1]
    if version_key(known) == numbers and not match[5]:
        return Release(text, known)
    if version_key(known)[:3] == numbers[:3]:
        return Release(text, known, f"{text} is not a release on PyPI, taken for {known}")
    return _beyond(text, f"{text} is newer than {known}, the last release that specbench knows")


def _beyond(text: str, reason: str) -> Release:
    known = releases()[-1]
    return Release(text, known, f"{reason}; its flags and rules are taken to be those of {known}")
