"""Breaks one part of the draft-TP plug-in inside a server; CONTROL names it."""

import os
from contextlib import nullcontext
from typing import Any

from specbench_sglang import groups, sync, weights, workers  # type: ignore[import-not-found]

CONTROL = os.environ.get("SPECBENCH_CONTROL", "")


def load() -> None:
    if CONTROL == "no gather":
        weights.reshare = lambda _worker, embed, head: (embed, head)
    elif CONTROL == "no pool scope":
        workers._scoped = lambda _scope, function: function
    elif CONTROL == "no scope":
        groups.draft_scope = lambda *_args, **_options: nullcontext()
    elif CONTROL == "garbled replica":
        agreed = sync._agreed
        sync._agreed = lambda tensors: agreed(_garbled(tensors))
    elif CONTROL == "diverged replica":
        sync._agreed = _garbled


def _garbled(tensors: list[Any]) -> list[Any]:
    """What a rank with other kernels might draft: every rank but the first is off by one."""
    off = int(groups.placement().target.rank_in_group > 0)
    return [(tensor + off) % 512 for tensor in tensors]
