"""POST /set_internal_state {"server_args": {"speculative_num_steps": k}}: pin the chain length.

A scheduler changes it between two batches of its loop, and only with nothing to do. Control
requests reach all tensor-parallel ranks in the same round of that loop, so they can vote there.
"""

import asyncio
import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from . import settings, steps
from .log import say
from .problems import NotPatched

FIELD = "speculative_num_steps"
STATE = "specbench_steps"
"""What it adds to a scheduler's internal state, which /server_info shows."""


class _Process:
    refused: str | None = None
    """A scheduler's: why it did not do what it was last asked for."""
    pinned: int | None = None
    """The tokenizer's: the chain length since the first switch."""
    lock: asyncio.Lock | None = None


def patch_scheduler(module: ModuleType) -> None:
    """Refuse before loading, look at what was built, switch, and show it."""
    scheduler = module.Scheduler
    construct, change, show = (
        scheduler.__init__,
        scheduler.set_internal_state,
        scheduler.get_internal_state,
    )

    @functools.wraps(construct)
    def __init__(self: Any, server_args: Any, *args: Any, **options: Any) -> None:  # noqa: N807
        if settings.read_steps() is not None:
            steps.refuse(server_args)
        construct(self, server_args, *args, **options)
        if settings.read_steps() is not None:
            group = _group()
            say(
                f"chain lengths {steps.built(_controller(self))} built, "
                f"{_controller(self).worker.speculative_num_steps} pinned, "
                f"rank {group.rank_in_group} of {group.world_size}"
            )

    @functools.wraps(change)
    def set_internal_state(self: Any, recv_req: Any) -> Any:
        asked = recv_req.server_args
        if FIELD not in asked:
            return change(self, recv_req)
        reason = next((each for each in _told(_refusal(self, asked)) if each is not None), None)
        if reason is None:
            _pin(self, int(asked[FIELD]))
        _Process.refused = reason
        return _answer(reason is None, asked)

    @functools.wraps(show)
    def get_internal_state(self: Any, recv_req: Any) -> Any:
        answer = show(self, recv_req)
        controller = _controller(self)
        pinned = controller.worker.speculative_num_steps
        mine = {"pinned": pinned, "built": steps.built(controller), "refused": _Process.refused}
        answer.internal_state = {**answer.internal_state, STATE: mine}
        return answer

    scheduler.__init__ = __init__
    scheduler.set_internal_state = set_internal_state
    scheduler.get_internal_state = get_internal_state


def _controller(scheduler: Any) -> Any:
    controller = getattr(scheduler.draft_worker, "adaptive_controller", None)
    if controller is None:
        raise NotPatched("the scheduler has no adaptive speculation to switch")
    return controller


def _refusal(scheduler: Any, asked: Mapping[str, Any]) -> str | None:
    """Why this rank cannot switch now; None where it can."""
    value, lengths = asked[FIELD], steps.built(_controller(scheduler))
    if len(asked) > 1:
        return f"{FIELD} is set alone, not with {', '.join(k for k in asked if k != FIELD)}"
    if isinstance(value, bool) or value not in lengths:
        return f"{value} is not among the chain lengths built: {', '.join(map(str, lengths))}"
    if not scheduler.is_fully_idle():
        running, waiting = len(scheduler.running_batch.reqs), len(scheduler.waiting_queue)
        return f"the scheduler is not idle ({running} requests running, {waiting} waiting)"
    return None


def _pin(scheduler: Any, length: int) -> None:
    """Raises NotPatched, which ends the scheduler, where the ranks come out different."""
    controller = _controller(scheduler)
    _finish_kernels(controller.worker.device)
    controller._activate(length)
    _finish_kernels(controller.worker.device)
    reporter = getattr(scheduler, "metrics_reporter", None)
    for name in ("spec_total_num_accept_tokens", "spec_total_num_forward_ct"):
        if hasattr(reporter, name):
            setattr(reporter, name, 0)
    pinned = _told(controller.worker.speculative_num_steps)
    if set(pinned) != {length}:
        raise NotPatched(f"ranks draft chains of {pinned} after a switch to {length}")
    if _group().rank_in_group == 0:
        say(f"chain length {length} pinned")


def _finish_kernels(device: str) -> None:
    """Buffers are made and dropped here, on another stream than the one that reads them."""
    import torch

    torch.get_device_module(device).synchronize()


def _group() -> Any:
    from sglang.srt.distributed import parallel_state

    return parallel_state.get_tp_group()


def _told(mine: Any) -> list[Any]:
    """Every rank's, by rank. All ranks must come here."""
    group = _group()
    if group.world_size == 1:
        return [mine]
    import torch

    found: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, mine, group=group.cpu_group)
    return found


def _answer(updated: bool, asked: Mapping[str, Any]) -> Any:
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput as Output

    # Up to 0.5.15 the answer repeats the arguments.
    more = {"server_args": dict(asked)} if "server_args" in Output.__annotations__ else {}
    return Output(updated=updated, **more)


def patch_tokenizer_control(module: ModuleType) -> None:
    """The process of the HTTP server: say what became of it, with the reason and a status."""
    mixin = module.TokenizerControlMixin
    change = mixin.set_internal_state

    @functools.wraps(change)
    async def set_internal_state(self: Any, obj: Any) -> Any:
        if FIELD not in obj.server_args:
            return await change(self, obj)
        _Process.lock = _Process.lock or asyncio.Lock()
        async with _Process.lock:
            updated = await change(self, obj)
            states = [each[STATE] for each in await self.get_internal_state()]
        if all(updated) and len({each["pinned"] for each in states}) == 1:
            _Process.pinned = states[0]["pinned"]
        return _told_over_http(obj.server_args[FIELD], updated, states)

    mixin.set_internal_state = set_internal_state


def _told_over_http(asked: Any, updated: list[bool], states: list[dict[str, Any]]) -> Any:
    """One object for each data-parallel replica; status 409 where any has not switched.

    Replicas answer in any order, so each object is of one replica's state alone.
    """
    from fastapi.responses import JSONResponse

    content = []
    for state in states:
        done = state["refused"] is None and state["pinned"] == asked
        told = {"updated": done, FIELD: state["pinned"], "built": state["built"]}
        content.append(told if done else {**told, "reason": state["refused"]})
    fine = all(updated) and all(each["updated"] for each in content)
    return JSONResponse(content, status_code=200 if fine else 409)


def patch_tokenizer(module: ModuleType) -> None:
    """Proposed drafts and the rate of a request are counted by the launch's chain length."""
    manager = module.TokenizerManager
    calculate = manager._calculate_spec_decoding_metrics

    @functools.wraps(calculate)
    def corrected(self: Any, meta_info: dict[str, Any], recv_obj: Any, i: int) -> None:
        calculate(self, meta_info, recv_obj, i)
        if _Process.pinned is not None and "spec_verify_ct" in meta_info:
            _correct(meta_info, _Process.pinned)

    manager._calculate_spec_decoding_metrics = corrected


def _correct(meta_info: dict[str, Any], length: int) -> None:
    """Without drafts there is nothing of speculation, as on a server without it."""
    if length == 0:
        for name in [name for name in meta_info if name.startswith("spec_")]:
            del meta_info[name]
        return
    proposed = meta_info["spec_verify_ct"] * length
    for name in ("spec_num_proposed_drafts", "spec_proposed_drafts"):
        if name in meta_info:
            meta_info[name] = proposed
    meta_info["spec_accept_rate"] = meta_info["spec_num_correct_drafts"] / proposed
