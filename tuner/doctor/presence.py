"""Checks of a model by itself: is it here, which revision, can its prompts be rendered."""

from collections.abc import Iterator

from tuner.doctor.finding import Finding
from tuner.engine.models import Hub, Model

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
