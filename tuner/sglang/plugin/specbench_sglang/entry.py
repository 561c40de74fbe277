"""Where SGLang calls the plug-in: in the launcher and in every process that it starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import budget, contract, groups, scheduler, settings, steps, switch, sync, versions, workers
from .imports import Patch, PostImport
from .problems import NotPatched
from .versions import Version


@dataclass(frozen=True)
class Part:
    """One of the things that the plug-in does, where its variable asks for it."""

    asked: Callable[[], Any]
    """None: not asked for."""
    expectations: Callable[[Version], list[contract.Expected]]
    patches: Mapping[str, Patch]
    """What is done to which module."""


def load() -> None:
    """The entry point of SGLang 0.5.11 and later. Does nothing where nothing is asked for.

    SGLang only logs what a plug-in raises and goes on without it; SystemExit it lets pass.
    """
    try:
        if any(part.asked() is not None for part in _parts()):
            _require(versions.installed())
            install()
    except Exception as error:
        message = str(error) if isinstance(error, RuntimeError) else str(NotPatched(repr(error)))
        raise SystemExit(message) from error


def _require(version: Version) -> None:
    if settings.read_steps() is not None and not version.switches_steps:
        first = ".".join(map(str, versions.FIRST_WITH_STEPS))
        raise NotPatched(f"chain lengths are switched from SGLang {first} on")


def install() -> None:
    """Patch what is imported already, and the rest when SGLang imports it."""
    PostImport(patches()).install()


def patch_here(name: str) -> None:
    """Patch one module: the last line of a source with `specbench draft-tp diff` applied."""
    PostImport({name: _apply}).patch_loaded()


def patches() -> dict[str, Patch]:
    """All modules that are changed where something asks for it."""
    return {name: _apply for part in _parts() for name in part.patches}


def _apply(module: ModuleType) -> None:
    for part in _parts():
        patch = part.patches.get(module.__name__)
        if patch is not None and part.asked() is not None:
            # Again, as no sitecustomize can refuse: Python prints what that raises and goes on.
            _require(versions.installed())
            contract.check(part.expectations(versions.installed()), module)
            patch(module)


def _parts() -> tuple[Part, ...]:
    draft_tp = Part(
        settings.read,
        contract.expectations,
        {
            contract.SCHEDULER: scheduler.patch,
            contract.PARALLEL_STATE: _only_check,
            contract.POOL: budget.patch,
            contract.RUNNER: groups.patch_runner,
            contract.V2: workers.patch_v2,
            contract.STANDALONE_V2: workers.patch_standalone_v2,
            contract.V1: workers.patch_v1,
            contract.STANDALONE_V1: workers.patch_standalone_v1,
            contract.COMMON: sync.patch,
            contract.UPDATER: scheduler.patch_weight_updates,
            contract.OLD_UPDATER: scheduler.patch_weight_updates,
        },
    )
    switching = Part(
        settings.read_steps,
        contract.step_expectations,
        {
            contract.SCHEDULER: switch.patch_scheduler,
            contract.PARALLEL_STATE: _only_check,
            contract.ADAPTIVE: steps.patch_config,
            contract.CONTROLLER: steps.patch_controller,
            contract.EXTEND_RUNNER: _patch_extend_runner,
            contract.V2: _only_check,
            contract.MESSAGES: _only_check,
            contract.TOKENIZER: switch.patch_tokenizer,
            contract.TOKENIZER_CONTROL: switch.patch_tokenizer_control,
        },
    )
    return draft_tp, switching


def _patch_extend_runner(module: ModuleType) -> None:
    if versions.installed().forgets_captured_width:
        steps.patch_extend_runner(module)


def _only_check(module: ModuleType) -> None:
    """Names of this module are read and set where they are used."""
