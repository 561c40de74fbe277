"""What a sweep's servers will meet: their interpreter, their GPUs, their models."""

from collections.abc import Iterator
from dataclasses import replace

from tuner.core.errors import UserError
from tuner.preflight import interpreter, machine, models
from tuner.preflight.finding import Finding, softened
from tuner.server.gpu import visible_gpus
from tuner.sglang import draft_tp
from tuner.sglang.engine import SglangEngine
from tuner.sglang.interpreter import Installed, installed_packages
from tuner.sglang.models import Hub, Model, local
from tuner.sglang.releases import Release, latest
from tuner.sglang.server_settings import REVISION_FLAGS, Launches
from tuner.sglang.tokenizer import default_python


def examine(launches: Launches) -> Iterator[Finding]:
    """Every finding about servers of the engine `sglang`."""
    release = _release(launches)
    yield from _interpreter(launches, release)
    yield from _gpus(launches)
    yield from softened(_models(launches, release), launches.unsure_of_models)


def _release(launches: Launches) -> Release:
    sweep = launches.sweep
    engine = SglangEngine(sweep.engine, sweep.timeouts, sweep.server)
    try:
        return engine.release
    except UserError as error:  # too old, or no version: the sweep is refused for it already
        return replace(latest(), warning=error.message)


def _interpreter(launches: Launches, release: Release) -> Iterator[Finding]:
    python = default_python(launches.sweep.engine.python)
    is_here = not launches.sweep.engine.command
    found = installed_packages(python, launches.environment) if is_here else None
    if is_here:
        yield from interpreter.interpreter(python, found, needed=True)
    else:
        yield Finding(
            "doubt", "interpreter", "not looked at: engine.command may put it on another machine",
            "run specbench doctor there, without engine.command",
        )  # fmt: skip
    yield interpreter.release(release, found.sglang if found else None)
    if launches.moves_draft:
        yield interpreter.plugin(_carrier(launches, release, python, is_here), release)


def _carrier(
    launches: Launches, release: Release, python: str, is_here: bool
) -> interpreter.Carrier:
    package = draft_tp.CARRIER / interpreter.ENTRY
    entries = [*draft_tp.CARRIER.glob("*.dist-info/entry_points.txt")]
    seen = None
    if is_here and release.at_least(draft_tp.FIRST_WITH_PLUGINS):
        path = draft_tp.python_path(release, launches.environment.get("PYTHONPATH"))
        found = installed_packages(python, {**launches.environment, "PYTHONPATH": path})
        seen = found is not None and _names_plugin(found)
    whole = (package / "entry.py").is_file() and bool(entries) and draft_tp.SITECUSTOMIZE.is_dir()
    return interpreter.Carrier(draft_tp.CARRIER, whole, seen)


def _names_plugin(found: Installed) -> bool:
    return any(each.startswith(interpreter.ENTRY) for each in found.plugins)


def _gpus(launches: Launches) -> Iterator[Finding]:
    if not launches.takes_gpus:
        device = launches.flag("device") or "cpu"
        yield Finding("ok", "GPUs", f"not looked at: the servers run on device {device}")
        return
    found = visible_gpus(launches.environment)
    yield from softened(machine.gpus(found, launches.sweep.model.tp), launches.unsure_of_gpus)
    yield from machine.links(found)


def _models(launches: Launches, release: Release) -> Iterator[Finding]:
    hub, target = Hub.of(launches.environment), launches.target
    yield from models.presence(target, hub, loads_weights=_loads(launches, "load-format"))
    draft = launches.draft
    if draft is not None:
        loads = _loads(launches, "speculative-draft-load-format", "load-format")
        yield from models.presence(draft, hub, loads_weights=loads)
    named = launches.text("tokenizer-path")
    tokenizer = target
    if named is not None:  # SGLang looks for another one at the target's revision too
        tokenizer = local("target", named, hub, launches.text(REVISION_FLAGS["target"]) or "main")
    if launches.flag("skip-tokenizer-init") is None:
        yield models.template(tokenizer)
    yield from _fits(launches, target, draft, release)


def _loads(launches: Launches, *flags: str) -> bool:
    """True where the first of the flags that is set, or SGLang's default, reads weight files."""
    value = next((found for name in flags if (found := launches.flag(name)) is not None), "auto")
    return value in ("auto", "safetensors", "pt")


def _fits(
    launches: Launches, target: Model, draft: Model | None, release: Release
) -> Iterator[Finding]:
    spec = launches.sweep.model
    plain = launches.splits_plainly
    if target.config is not None:
        yield from models.heads("target", target.config, {spec.tp}, plain)
    if draft is None:
        return
    if draft.config is not None:
        yield from models.heads("draft", draft.config, launches.draft_sizes, plain)
    pair = models.ModelPair(target.config, draft.config, spec.algorithm or "", release)
    yield from models.sizes(pair)
    yield from models.draft_layers(pair)
    yield from models.aux_layers(pair)
