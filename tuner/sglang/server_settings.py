"""What the servers of a sweep have in common, and what makes that uncertain from here."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tuner.config.field_types import UNSET
from tuner.config.schema import ServerFlag, Sweep
from tuner.sglang.draft_tp import is_moved
from tuner.sglang.models import Hub, Model, Role, local

REVISION_FLAGS: Mapping[Role, str] = {
    "target": "revision",
    "draft": "speculative-draft-model-revision",
}
_YES = ("1", "true", "yes", "on", "y")
_OTHER_CODE = (
    "SGLANG_EXTERNAL_MODEL_PACKAGE",
    "SGLANG_PLUGINS",
    "SGLANG_PLATFORM",
)
"""Variables by which models are other code."""
_OTHER_SPLITS = (
    "attn-dp-size",
    "attention-context-parallel-size",
    "attn-cp-size",
    "context-parallel-size",
    "data-parallel-size",
    "dp-size",
    "enable-dp-attention",
    "model-impl",
)
"""Flags under which attention is not split over all of TP, or the model is other code."""
_HUBS = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "XDG_", "HOME")
"""How variables begin that say where the hub's cache is."""
_FILES = (
    "load-format",
    "revision",
    "speculative-draft-load-format",
    "speculative-draft-model-revision",
    "tokenizer-path",
)
"""Flags by which servers of one sweep may read other files than each other."""


@dataclass(frozen=True)
class Launches:
    """A sweep on an engine that starts SGLang. `inherited` is this process's environment."""

    sweep: Sweep
    inherited: Mapping[str, str]

    @cached_property
    def environment(self) -> dict[str, str]:
        """What every server has, before the point's own variables."""
        kept = {k: v for k, v in self.inherited.items() if k not in self.varied}
        return self.sweep.server.environment(kept)

    @cached_property
    def varied(self) -> frozenset[str]:
        """Variables that are a dimension, or the baseline's own."""
        return frozenset({*self.sweep.space.env, *self.sweep.baseline.env})

    @cached_property
    def settled(self) -> frozenset[str]:
        """Variables that the sweep itself has a word on."""
        return self.varied | frozenset(self.sweep.server.env)

    def flag(self, name: str) -> ServerFlag | None:
        """A flag that every server has; None where it is left open, false or a dimension."""
        return self.sweep.server.flag(name)

    def text(self, name: str) -> str | None:
        """The same where it is a text."""
        value = self.flag(name)
        return value if isinstance(value, str) else None

    @property
    def target(self) -> Model:
        """The target as it lies here."""
        return self._local("target", self.sweep.model.target)

    @property
    def draft(self) -> Model | None:
        """The draft as it lies here; None for an algorithm without a draft model."""
        name = self.sweep.model.draft
        return None if name is None else self._local("draft", name)

    def _local(self, role: Role, name: str) -> Model:
        revision = self.text(REVISION_FLAGS[role]) or "main"
        return local(role, name, Hub.of(self.environment), revision)

    @property
    def takes_gpus(self) -> bool:
        """False where the servers run on something that NVML does not know."""
        cpu = self.environment.get("SGLANG_USE_CPU_ENGINE", "").lower() in _YES
        return not cpu and self.flag("device") in (None, "cuda")

    @property
    def draft_sizes(self) -> frozenset[int]:
        """The TP sizes that the draft runs on."""
        placed = self.sweep.space.draft_tp or ["target"]
        return frozenset(self.sweep.model.tp if each == "target" else each for each in placed)

    @property
    def moves_draft(self) -> bool:
        """True where some point needs the plug-in."""
        placed = self.sweep.space.draft_tp or []
        return any(is_moved(each, self.sweep.model.tp) for each in placed)

    @property
    def splits_plainly(self) -> bool:
        """True where attention is split over all of TP by the model's own rule."""
        return self.takes_gpus and not any(self._is_used(name) for name in _OTHER_SPLITS)

    @property
    def unsure_of_gpus(self) -> str | None:
        """Why a count of this machine's GPUs settles nothing; None where it does."""
        for name in ("nnodes", "use-ray", "device"):
            if self._is_used(name):
                return f"--{name} may place it otherwise"
        if "CUDA_VISIBLE_DEVICES" in self.varied:
            return "CUDA_VISIBLE_DEVICES differs between the servers"
        return self._elsewhere

    @property
    def unsure_of_models(self) -> str | None:
        """Why a model's files here settle nothing; None where they do."""
        if self._is_used("json-model-override-args"):
            return "--json-model-override-args may change it"
        for name in _FILES:
            if self._is_varied(name):
                return f"--{name} differs between the servers"
        for name in (*self.environment, *self.varied):
            if name in _OTHER_CODE:
                return f"{name} may change it"
        return self.unsure_of_cache

    @property
    def unsure_of_cache(self) -> str | None:
        """Why the hub's cache here may not be what every server reads; None where it is."""
        if self._is_used("download-dir"):
            return "--download-dir may change it"
        name = "SGLANG_USE_MODELSCOPE"
        if name in self.varied or self.environment.get(name, "").lower() in _YES:
            return f"{name} may change it"
        for name in sorted(self.varied):
            if name.startswith(_HUBS):
                return f"{name} differs between the servers"
        return self._elsewhere

    @property
    def other_tokenizer(self) -> str | None:
        """A tokenizer from another place on the hub than the target, on some server.

        SGLang looks for it at `--revision`, the target's (managers/tokenizer_manager.py:2315 of
        0.5.8, :4055 of 0.5.23; detokenizer_manager.py and scheduler.py alike).
        """
        name, sweep, hub = "tokenizer-path", self.sweep, Hub.of(self.environment)
        named = [sweep.server.flags.get(name), sweep.baseline.flags.get(name)]
        named += sweep.space.flags.get(name, [])
        texts = (each for each in named if isinstance(each, str) and each != UNSET)
        others = (each for each in texts if each != sweep.model.target)
        is_here = ("folder", "file")
        return next((x for x in others if local("target", x, hub).source not in is_here), None)

    @property
    def _elsewhere(self) -> str | None:
        if not self.sweep.engine.command:
            return None
        return "engine.command may run it on another machine"

    def _is_used(self, name: str) -> bool:
        return self.flag(name) is not None or self._is_varied(name)

    def _is_varied(self, name: str) -> bool:
        return name in self.sweep.baseline.flags or name in self.sweep.space.flags
