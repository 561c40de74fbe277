"""The draft workers: built, given memory and run within the draft's scope."""

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import budget, groups, refusals, settings, sync, versions, weights
from .log import say
from .problems import NotPatched


class _Process:
    placed = False


def placed() -> bool:
    """True once a draft was built on its own group and looked at."""
    return _Process.placed


def patch_v2(module: ModuleType) -> None:
    """eagle_worker_v2, of which the standalone workers inherit."""
    version = versions.installed()
    setattr(module, version.context_name, groups.draft_scope)
    _build_in_scope(module)
    draft = module.EagleDraftWorker
    draft.init_lm_head = _reshared(draft.init_lm_head)
    if version.resolves_shared_weights:
        _reshare_result(draft)
    # Adaptive speculation builds the target's graphs from within the draft's context.
    _in(groups.target_scope, module.EAGLEWorkerV2, "build_adaptive_runtime_state")
    for name in ("init_attention_backend", "_capture_cuda_graphs"):
        _in(groups.draft_scope, draft, name)
    sync.patch(module)
    if version.resolves_layout:
        module.resolve_draft_parallel_layout = _layout  # type: ignore[attr-defined]


def patch_standalone_v2(module: ModuleType) -> None:
    """standalone_worker_v2, which imports by name what it shares with eagle_worker_v2."""
    _build_in_scope(module)
    for name in ("empty_context", "draft_tp_context"):
        if hasattr(module, name):
            setattr(module, name, groups.draft_scope)
    if versions.installed().resolves_layout:
        module.resolve_draft_parallel_layout = _layout  # type: ignore[attr-defined]


def patch_v1(module: ModuleType) -> None:
    """eagle_worker, up to 0.5.12: the worker is itself the draft's TpModelWorker."""
    module.empty_context = groups.draft_scope  # type: ignore[attr-defined]
    worker = module.EAGLEWorker
    original = worker.__init__

    @functools.wraps(original)
    def __init__(self: Any, server_args: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        target = _argument("target_worker", original, (self, server_args, *args), options)
        _before(server_args)
        _with_reshared_target(self, target, lambda: original(self, server_args, *args, **options))
        _look_at(self)

    worker.__init__ = __init__
    sync.patch(module)


def patch_standalone_v1(module: ModuleType) -> None:
    """standalone_worker, up to 0.5.12; shares no weights."""
    module.empty_context = groups.draft_scope  # type: ignore[attr-defined]
    worker = module.StandaloneWorker
    original = worker.__init__

    @functools.wraps(original)
    def __init__(self: Any, server_args: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        _before(server_args)
        original(self, server_args, *args, **options)
        _look_at(self)

    worker.__init__ = __init__


def _build_in_scope(module: ModuleType) -> None:
    """Stand in for the TpModelWorker that the module calls."""
    original = module.TpModelWorker

    def build(*args: Any, **options: Any) -> Any:
        if not options.get("is_draft_worker"):
            return original(*args, **options)
        _before(options["server_args"])
        with groups.draft_scope():
            # On a CPU the constructor binds this process's cores by its target rank.
            if "ps" in options and options["server_args"].device != "cpu":
                options["ps"] = _own_ranks(options["ps"])
            worker = original(*args, **options)
        if hasattr(worker, "alloc_memory_pool"):
            worker.alloc_memory_pool = _scoped(groups.draft_scope, worker.alloc_memory_pool)
        _look_at(worker)
        return worker

    module.TpModelWorker = build  # type: ignore[attr-defined]


def _before(server_args: Any) -> None:
    asked = settings.read()
    if asked is not None and asked.draft_tp != server_args.tp_size:
        refusals.refuse_experts(asked, budget.read_draft_config(server_args))


def _own_ranks(state: Any) -> Any:
    """SGLang's ParallelState as the draft's block sees it; some attention back ends read it."""
    group = groups.placement().draft
    return dataclasses.replace(
        state,
        tp_size=group.world_size,
        tp_rank=group.rank_in_group,
        attn_tp_size=group.world_size,
        attn_tp_rank=group.rank_in_group,
        moe_ep_size=1,
        moe_ep_rank=0,
    )


def _look_at(worker: Any) -> None:
    """Raises NotPatched where the draft's layers were not split for its group."""
    place = groups.placement()
    sizes = {getattr(layer, "tp_size", None) for layer in worker.model_runner.model.modules()}
    foreign = not place.is_stock and place.target.world_size in sizes
    if place.size not in sizes or foreign:
        found = sorted(size for size in sizes if isinstance(size, int))
        raise NotPatched(f"the draft's layers are at TP {found}, not {place.size}")
    _Process.placed = True
    say(
        f"draft TP {place.size} of target TP {place.target.world_size}, "
        f"ranks {list(place.draft.ranks)}"
    )


def _reshared(init_lm_head: Callable[[Any], None]) -> Callable[[Any], None]:
    """Up to 0.5.20 the worker asks the target's model for the weights itself."""

    @functools.wraps(init_lm_head)
    def wrapped(self: Any) -> None:
        if versions.installed().resolves_shared_weights:
            init_lm_head(self)
        else:
            _with_reshared_target(self, self.target_worker, lambda: init_lm_head(self))

    return wrapped


def _with_reshared_target(worker: Any, target: Any, call: Callable[[], None]) -> None:
    model = target.model_runner.model
    get = model.get_embed_and_head

    def reshared() -> tuple[Any, Any]:
        owner = worker if hasattr(worker, "draft_runner") else _V1Draft(worker, target)
        shared: tuple[Any, Any] = weights.reshare(owner, *get())
        return shared

    model.get_embed_and_head = reshared
    try:
        call()
    finally:
        del model.get_embed_and_head


@dataclasses.dataclass(frozen=True)
class _V1Draft:
    """A V1 worker by the names of a V2 worker."""

    worker: Any
    target_worker: Any

    @property
    def draft_runner(self) -> Any:
        return self.worker.model_runner

    @property
    def speculative_algorithm(self) -> Any:
        return self.worker.speculative_algorithm

    @property
    def hot_token_id(self) -> Any:
        return self.worker.hot_token_id


def _reshare_result(draft: Any) -> None:
    original = draft._resolve_shared_embed_and_head

    @functools.wraps(original)
    def wrapped(self: Any) -> Any:
        return weights.reshare(self, *original(self))

    draft._resolve_shared_embed_and_head = wrapped


def _layout(*_args: Any, **_options: Any) -> Any:
    """0.5.23: sizes by the draft's block. The group itself comes from the scope."""
    from sglang.srt.configs.draft_parallel import DraftParallelLayout

    return DraftParallelLayout(tp_group=None, attn_tp_size=groups.placement().size)


def _in(scope: Callable[[], Any], owner: Any, name: str) -> None:
    if hasattr(owner, name):
        setattr(owner, name, _scoped(scope, getattr(owner, name)))


def _scoped(scope: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        with scope():
            return function(*args, **options)

    return wrapped


def _argument(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    import inspect

    return inspect.signature(function).bind(*args, **options).arguments[name]
