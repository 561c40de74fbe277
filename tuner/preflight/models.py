"""Checks of the target and the draft against each other, by their config.json.

Sources are wheel files below sglang/srt/. A rule stops only where the model's own code is known to
refuse; of architectures whose code was not read it says a doubt.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tuner.preflight.finding import Finding
from tuner.sglang.models import Config, Hub, Model
from tuner.sglang.releases import Release

_LLAMA = "LlamaForCausalLM"
_LLAMA_DRAFT = "LlamaForCausalLMEagle3"
_SPLIT_BY_HEADS = (_LLAMA, _LLAMA_DRAFT, "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Assert that the TP size divides their heads (models/llama.py:139 of 0.5.8, :183 of 0.5.23;
qwen2.py and qwen3.py alike)."""
FIRST_WITH_DEEP_DRAFTS = "0.5.12"
"""models/llama_eagle3.py:198 of 0.5.8 and :212 of 0.5.11 raise ValueError; :183 of 0.5.12 loops."""
FIRST_WITH_VOCABULARY_CHECK = "0.5.15"
"""speculative/standalone_worker_v2.py:223 of 0.5.15 raises ValueError; nothing did before."""
DEFAULT_NEEDS_LAYERS = 7
"""The default aux layers are 2, n / 2 and n - 3 (models/llama.py:781 of 0.5.8, :936 of 0.5.23):
with fewer layers two coincide and are handed on once."""


@dataclass(frozen=True)
class ModelPair:
    """A target and its draft on a release; None for a model that could not be read."""

    target: Config | None
    draft: Config | None
    algorithm: str
    release: Release


def heads(role: str, config: Config, sizes: Collection[int], is_plain: bool) -> Iterator[Finding]:
    """Attention heads over each TP size that the model runs on.

    Not `is_plain`, the server may split attention in another way. A size that fits keeps the
    sweep going, so one that does not is a doubt beside it.
    """
    uneven = {tp: why for tp in sorted(sizes) if (why := _uneven(config, tp)) is not None}
    stops = is_plain and config.architecture in _SPLIT_BY_HEADS and len(uneven) == len(sizes)
    knob = "model.tp" if role == "target" else "model.tp, or space.draft_tp"
    for why in uneven.values():
        yield Finding("stop" if stops else "doubt", f"{role} heads", why, f"set another {knob}")
    if not uneven and config.heads is not None:
        shown = " and ".join(map(str, sorted(sizes)))
        yield Finding("ok", f"{role} heads", f"{config.heads} over tp {shown}")


def _uneven(config: Config, tp: int) -> str | None:
    kv = config.kv_heads
    if config.heads is not None and config.heads % tp:
        return f"{config.heads} attention heads cannot be split over {tp} GPUs"
    if kv is not None and (kv % tp if kv >= tp else tp % kv):
        return f"{kv} KV heads cannot be split over {tp} GPUs or copied to them evenly"
    return None


def sizes(pair: ModelPair) -> Iterator[Finding]:
    """Vocabulary and hidden size of the draft against the target's."""
    target, draft = pair.target, pair.draft
    if target is None or draft is None:
        return
    yield from _vocabulary(pair, target, draft)
    if pair.algorithm == "STANDALONE":
        return  # a model of its own: nothing of the target's goes in
    takes = draft.target_hidden_size or draft.hidden_size
    if takes is None or target.hidden_size is None:
        return
    if takes == target.hidden_size:
        yield Finding("ok", "hidden size", f"the draft takes the target's {takes}")
        return
    # The first matrix of the draft has another width than what it is given (fc of llama_eagle3.py).
    is_eagle3 = pair.algorithm == "EAGLE3" and draft.architecture == _LLAMA_DRAFT
    yield Finding(
        "stop" if is_eagle3 and draft.uses_aux_layers else "doubt",
        "hidden size",
        f"the draft takes hidden states of {takes}, the target's are {target.hidden_size}",
        "use a draft that was trained for this target",
    )


def _vocabulary(pair: ModelPair, target: Config, draft: Config) -> Iterator[Finding]:
    if target.vocab_size is None or draft.vocab_size is None:
        return
    both = f"target {target.vocab_size}, draft {draft.vocab_size}"
    if target.vocab_size == draft.vocab_size:
        own = draft.draft_vocab_size
        small = f", the draft proposes {own} of them" if own not in (None, draft.vocab_size) else ""
        yield Finding("ok", "vocabulary", f"{target.vocab_size} tokens on both sides{small}")
    elif pair.algorithm == "STANDALONE":
        refuses = pair.release.at_least(FIRST_WITH_VOCABULARY_CHECK) and not pair.release.warning
        yield Finding(
            "stop" if refuses else "doubt",
            "vocabulary",
            f"{both}: STANDALONE needs the same tokens on both sides",
            "use a draft of the target's family",
        )
    else:
        yield Finding(
            "doubt", "vocabulary", f"{both}: the draft is given the target's embedding",
            "check that the draft belongs to this target",
        )  # fmt: skip


def draft_layers(pair: ModelPair) -> Iterator[Finding]:
    """EAGLE-3 drafts of several layers, which SGLang takes from 0.5.12 on."""
    draft = pair.draft
    if pair.algorithm != "EAGLE3" or draft is None or draft.layers in (None, 1):
        return
    if draft.architecture == _LLAMA_DRAFT and not pair.release.at_least(FIRST_WITH_DEEP_DRAFTS):
        yield Finding(
            "stop" if pair.release.warning is None else "doubt",
            "draft layers",
            f"{draft.layers}, and SGLang {pair.release.known} takes EAGLE-3 drafts of one only",
            f"use SGLang {FIRST_WITH_DEEP_DRAFTS} or later, or a draft of one layer",
        )


def aux_layers(pair: ModelPair) -> Iterator[Finding]:
    """The target's layers whose hidden states an EAGLE-3 draft is given."""
    target, draft = pair.target, pair.draft
    if pair.algorithm != "EAGLE3" or target is None or target.layers is None:
        return
    if draft is not None and not draft.uses_aux_layers:
        yield Finding("ok", "aux layers", "none: the draft takes the last hidden states")
        return
    wanted = draft.aux_layers if draft is not None else None
    if wanted is not None:
        yield _named_layers(target, wanted)
    elif target.layers < DEFAULT_NEEDS_LAYERS:
        yield Finding(
            "doubt",
            "aux layers",
            f"the target has {target.layers} layers, and layers 2, n / 2 and n - 3 of it are not "
            "three",
            "name them in the draft's eagle_config.eagle_aux_hidden_state_layer_ids",
        )
    else:
        yield Finding("ok", "aux layers", f"SGLang's default ones of the target's {target.layers}")


def _named_layers(target: Config, wanted: tuple[int, ...]) -> Finding:
    """Layer i is captured before layer i + 1 runs, which a last layer lacks (llama.py, forward)."""
    assert target.layers is not None
    last = target.layers - 1
    shown = f"{', '.join(map(str, wanted))} of the target's 0 to {last}"
    beyond = not all(-1 <= each <= last for each in wanted)
    if beyond:
        trouble = f"the draft wants {shown}"
    elif last in wanted:
        trouble = f"the draft wants {shown}, and some models do not hand on their last one"
    elif len(set(wanted)) < len(wanted):
        trouble = f"the draft wants {shown}, and one of them twice"
    else:
        return Finding("ok", "aux layers", f"{shown}, as the draft says")
    # What is left of them is narrower than the draft's first matrix; a single layer is as wide as
    # its own states and goes in unnoticed.
    handed_on = {each for each in wanted if -1 <= each < last}
    stops = beyond and target.architecture == _LLAMA and len(handed_on) > 1
    todo = "use the draft's own target, or mend its eagle_config"
    return Finding("stop" if stops else "doubt", "aux layers", trouble, todo)


_PUT_THERE = "make or copy it there"


def presence(model: Model, hub: Hub, *, loads_weights: bool) -> Iterator[Finding]:
    """Where the server will find the model. Not `loads_weights`, it needs none there."""
    name, what, where = model.name, model.role, f"in {hub.cache}"
    fetch = f"hf download {name}"
    if model.revision != "main":
        where, fetch = f"{where} at {model.revision}", f"{fetch} --revision {model.revision}"
    if model.source == "absent":
        yield Finding(
            "stop", what, f"there is no {name} here, and it is no name on the hub",
            f"{_PUT_THERE}, or mend model.{what}",
        )  # fmt: skip
    elif model.source == "not cached" and hub.offline:
        yield Finding(
            "stop",
            what,
            f"{name} is neither a folder nor {where}, and HF_HUB_OFFLINE forbids to ask",
            f"{_PUT_THERE}, where specbench is started"
            if _is_meant_as_path(name)
            else f"fetch it (HF_HUB_OFFLINE=0 {fetch}), or mend the path, which begins "
            "where specbench is started",
        )
    elif model.source == "not cached":
        yield Finding(
            "doubt",
            what,
            f"{name} is neither a folder nor {where}: the first launch looks for it on the "
            "hub, within timeouts.launch",
            f"{_PUT_THERE}, where specbench is started"
            if _is_meant_as_path(name)
            else f"fetch it before: {fetch}",
        )
    elif model.source == "elsewhere":
        yield Finding("doubt", what, f"{name} is not looked at from here", None)
    elif model.source == "file":
        yield Finding("ok", what, f"{name}, a file that is not looked into")
    else:
        yield _here(model)
        yield from _files(model, loads_weights=loads_weights)


def _is_meant_as_path(name: str) -> bool:
    """Of what could be a name on the hub as well; random weights say nothing, since a model of the
    hub can be served with them too."""
    return name.startswith("models/")


def _here(model: Model) -> Finding:
    if model.commit is None:
        return Finding("ok", model.role, f"{model.folder}")
    return Finding("ok", model.role, f"{model.name}, revision {model.commit} in the cache")


def _files(model: Model, *, loads_weights: bool) -> Iterator[Finding]:
    if model.trouble is not None:
        # Some formats (GGUF, Mistral's own) go without a config.json.
        yield Finding(
            "doubt", model.role, f"{model.folder} {model.trouble}",
            "sizes were not compared; check the folder",
        )  # fmt: skip
    if loads_weights and not model.has_weights:
        yield Finding(
            "doubt", model.role, f"no weights lie in {model.folder}",
            "fetch them before the sweep, or set load-format: dummy",
        )  # fmt: skip


def template(tokenizer: Model) -> Finding:
    """Whether prompts will be rendered as conversations."""
    if tokenizer.folder is None or tokenizer.source == "file":
        return Finding("doubt", "chat template", "the tokenizer is not here to be looked at")
    if tokenizer.has_template:
        return Finding("ok", "chat template", "there")
    return Finding(
        "doubt",
        "chat template",
        f"none in {tokenizer.folder}: prompts are sent as raw text, which lowers acceptance",
        "add the model's chat_template.jinja, or name another folder as tokenizer-path in "
        "server.flags",
    )
