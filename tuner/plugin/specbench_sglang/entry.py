"""Where SGLang calls the plug-in: in the launcher and in every process that it starts."""

from types import ModuleType

from . import budget, contract, groups, scheduler, settings, sync, versions, workers
from .imports import Patch, PostImport
from .problems import NotPatched


def load() -> None:
    """The entry point of SGLang 0.5.11 and later. Does nothing where no draft TP is asked for.

    SGLang only logs what a plug-in raises and goes on without it; SystemExit it lets pass.
    """
    try:
        if settings.read() is not None:
            versions.installed()
            install()
    except Exception as error:
        message = str(error) if isinstance(error, RuntimeError) else str(NotPatched(repr(error)))
        raise SystemExit(message) from error


def install() -> None:
    """Patch what is imported already, and the rest when SGLang imports it."""
    PostImport({name: _checked(patch) for name, patch in patches().items()}).install()


def patch_here(name: str) -> None:
    """Patch one module: the last line of a source with `specbench draft-tp diff` applied."""
    PostImport({name: _checked(patches()[name])}).patch_loaded()


def patches() -> dict[str, Patch]:
    """What is done to which module."""
    return {
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
    }


def _checked(patch: Patch) -> Patch:
    def checked(module: ModuleType) -> None:
        asked = settings.read()
        if asked is not None:
            contract.check(versions.installed(), module)
            patch(module)

    return checked


def _only_check(module: ModuleType) -> None:
    """Names of this module are read and set where they are used."""
