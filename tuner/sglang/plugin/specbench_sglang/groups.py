"""The draft's own tensor-parallel group, and the scope in which SGLang sees it.

Ranks form consecutive blocks of d. SGLang's layers read their group from module globals, when they
are built and when they run, so the scope swaps those; the target's code runs outside of it.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from . import contract, settings, versions
from .problems import NotPatched

_GLOBALS = ("_TP", "_ATTN_TP", "_MOE_TP", "_MOE_EP")


@dataclass(frozen=True)
class View:
    """What SGLang's code finds when it asks for its place: values by module and name."""

    module_globals: tuple[tuple[ModuleType, str, Any], ...]
    parallel: Mapping[str, Any]
    """Fields of get_parallel() to override; empty where it reads the globals itself."""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Swap the values in, and what was there back at the end."""
        before = [(module, name, getattr(module, name)) for module, name, _ in self.module_globals]
        with ExitStack() as stack:
            if self.parallel:
                from sglang.srt.runtime_context import get_parallel

                stack.enter_context(get_parallel().override(**self.parallel))
            try:
                for module, name, value in self.module_globals:
                    setattr(module, name, value)
                yield
            finally:
                for module, name, value in before:
                    setattr(module, name, value)


@dataclass(frozen=True)
class Placement:
    """The two groups of this rank, SGLang's GroupCoordinators."""

    target: Any
    draft: Any
    target_view: View
    draft_view: View

    @property
    def size(self) -> int:
        return int(self.draft.world_size)

    @property
    def is_stock(self) -> bool:
        """The draft's TP size is the target's."""
        return self.draft is self.target


class _Process:
    placement: Placement | None = None
    in_scope = False


def placement() -> Placement:
    """The groups; the first call makes them, and every rank must come to it."""
    if _Process.placement is None:
        _Process.placement = _make()
    return _Process.placement


def exists() -> bool:
    """True once the draft has its group."""
    return _Process.placement is not None


@contextmanager
def draft_scope(*_args: Any, **_options: Any) -> Iterator[None]:
    """Everything of the draft runs in here. Takes what SGLang's own contexts take; may nest."""
    place = placement()
    if _Process.in_scope or place.is_stock:
        yield
        return
    with place.draft_view.shown():
        _Process.in_scope = True
        try:
            yield
        finally:
            _Process.in_scope = False


@contextmanager
def target_scope() -> Iterator[None]:
    """Work of the target that SGLang does from within a draft scope."""
    if not _Process.in_scope:
        yield
        return
    with placement().target_view.shown():
        _Process.in_scope = False
        try:
            yield
        finally:
            _Process.in_scope = True


def patch_runner(module: ModuleType) -> None:
    """Where a runner is told its TP size: a draft's would be told the server's."""
    if not versions.installed().tells_runner_sizes:
        return
    runner = module.ModelRunner
    original = runner.__init__

    def __init__(self: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        # On a CPU the constructor binds this process's cores by its target rank.
        if _Process.in_scope and "tp_size" in options and options["server_args"].device != "cpu":
            draft = placement().draft
            options |= {"tp_size": draft.world_size, "tp_rank": draft.rank_in_group}
        original(self, *args, **options)

    runner.__init__ = __init__


def _make() -> Placement:
    import torch
    from sglang.srt.distributed import parallel_state

    asked = settings.read()
    if asked is None:
        raise NotPatched(f"{settings.DRAFT_TP} has gone from the environment")
    contract.check_used(versions.installed())
    size = asked.draft_tp
    target = parallel_state.get_tp_group()
    draft = target
    if size != target.world_size:
        ranks = list(target.ranks)
        make = parallel_state.init_model_parallel_group
        options: dict[str, Any] = {"use_custom_allreduce": None if size > 1 else False}
        # SGLang says of mscclpp that it cannot do two groups; symmetric memory is untried.
        off = ("use_mscclpp", "use_mscclpp_allreduce", "use_torch_symm_mem_allreduce")
        options |= {name: False for name in off if name in inspect.signature(make).parameters}
        world = parallel_state.get_world_group()
        draft = make(
            [ranks[start : start + size] for start in range(0, len(ranks), size)],
            world.local_rank,
            torch.distributed.get_backend(world.device_group),
            group_name="draft_tp",
            **options,
        )
    # The first collective sets NCCL up and takes memory: now, before the KV pool is sized.
    target.broadcast(torch.zeros(1, dtype=torch.int64, device=target.device), 0)
    return Placement(
        target, draft, _target_view(parallel_state), _draft_view(parallel_state, draft)
    )


def _draft_view(parallel_state: ModuleType, group: Any) -> View:
    size, rank = group.world_size, group.rank_in_group
    found: list[tuple[ModuleType, str, Any]] = [
        (parallel_state, name, group) for name in _GLOBALS if hasattr(parallel_state, name)
    ]
    if not hasattr(parallel_state, "_ATTN_TP"):
        from sglang.srt.layers import dp_attention

        values = {"_ATTN_TP_GROUP": group, "_ATTN_TP_RANK": rank, "_ATTN_TP_SIZE": size}
        found += [(dp_attention, name, value) for name, value in values.items()]
    fields: dict[str, Any] = {}
    for prefix in ("tp", "attn_tp", "moe_tp"):
        fields |= {f"{prefix}_size": size, f"{prefix}_rank": rank, f"{prefix}_group": group}
    fields |= {"moe_ep_size": 1, "moe_ep_rank": 0}
    return View(tuple(found), _overridable(fields))


def _target_view(parallel_state: ModuleType) -> View:
    """As it is now: call it outside of any scope."""
    draft = _draft_view(parallel_state, parallel_state.get_tp_group())
    found = tuple((module, name, getattr(module, name)) for module, name, _ in draft.module_globals)
    parallel: dict[str, Any] = {}
    if draft.parallel:
        from sglang.srt.runtime_context import get_parallel

        for name in draft.parallel:
            # A field that nobody wrote raises when it is read, and so has no value to restore.
            with suppress(AttributeError, RuntimeError):
                parallel[name] = getattr(get_parallel(), name)
    return View(found, parallel)


def _overridable(fields: Mapping[str, Any]) -> dict[str, Any]:
    if not versions.installed().overrides_parallel:
        return {}
    from sglang.srt import runtime_context

    names = getattr(runtime_context, versions.installed().parallel_fields)
    if callable(names):
        names = names()
    return {field: value for field, value in fields.items() if field in names}
