"""The scheduler refuses before it loads, and does not serve unless its draft was placed."""

import functools
from types import ModuleType
from typing import Any

from . import refusals, settings, workers
from .problems import NotPatched

_UPDATES = ("disk", "distributed", "tensor", "ipc")
_NO_UPDATES = "specbench: draft TP refuses weight updates, which are cut by target rank"


def patch(module: ModuleType) -> None:
    """Wrap the scheduler's construction."""
    scheduler = module.Scheduler
    original = scheduler.__init__

    @functools.wraps(original)
    def __init__(self: Any, server_args: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        asked = settings.read()
        if asked is not None:
            refusals.refuse(asked, server_args)
        original(self, server_args, *args, **options)
        if asked is not None and not workers.placed():
            raise NotPatched("the scheduler has no draft that the plug-in has placed")

    scheduler.__init__ = __init__


def patch_weight_updates(module: ModuleType) -> None:
    """Answer every update of weights with a refusal."""
    for owner in vars(module).values():
        if isinstance(owner, type) and owner.__module__ == module.__name__:
            for kind in _UPDATES:
                if hasattr(owner, f"update_weights_from_{kind}"):
                    setattr(owner, f"update_weights_from_{kind}", _refusal(module, kind))


def _refusal(module: ModuleType, kind: str) -> Any:
    names = {"disk": "UpdateWeightFromDisk", "ipc": "UpdateWeightsFromIPC"}
    answer = getattr(module, f"{names.get(kind, f'UpdateWeightsFrom{kind.title()}')}ReqOutput")

    def refused(self: Any, request: Any, *args: Any, **options: Any) -> Any:  # noqa: ARG001
        more = {"num_paused_requests": 0} if kind == "disk" else {}
        return answer(success=False, message=_NO_UPDATES, **more)

    return refused
