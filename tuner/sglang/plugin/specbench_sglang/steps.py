"""Several chain lengths in one server, built by SGLang's adaptive speculation, one of them pinned.

Adaptive speculation builds the attention back ends and CUDA graphs of every length that its
configuration names, and swaps all of them at once. Here its configuration is one list for every
batch size, so that each length has the graphs of a server launched with it, and it decides nothing.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import settings, versions
from .problems import STEP_SWITCH, NotPatched, Refused

Slots = tuple[dict[str, Any], dict[int, dict[str, Any]]]


def patch_config(module: ModuleType) -> None:
    """adaptive_spec_params: the lengths asked for, and no silent way out."""
    load, reason = module._load_adaptive_config, module.adaptive_unsupported_reason

    @functools.wraps(load)
    def one_slot(cfg_path: str | None) -> Slots:
        slot = {"candidate_steps": list(_lengths(load, cfg_path))}
        return {"1": slot}, {1: slot}

    @functools.wraps(reason)
    def refused(server_args: Any) -> None:
        found = reason(server_args)
        if found is not None:
            raise Refused(found, STEP_SWITCH)

    module._load_adaptive_config = one_slot  # type: ignore[attr-defined]
    module.adaptive_unsupported_reason = refused  # type: ignore[attr-defined]


def _lengths(load: Callable[[str | None], Slots], path: str | None) -> list[int]:
    asked = settings.read_steps()
    if asked is not None and asked.steps is not None:
        if path is not None:
            raise Refused(
                f"both {settings.STEPS} and --speculative-adaptive-config say which chain lengths",
                STEP_SWITCH,
            )
        return list(asked.steps)
    if path is None:
        raise Refused(
            f"{settings.STEPS} does not say which chain lengths, such as 1,3,5", STEP_SWITCH
        )
    _, slots = load(path)
    return sorted({steps for slot in slots.values() for steps in slot["candidate_steps"]})


def patch_controller(module: ModuleType) -> None:
    """adaptive_runtime_state: neither batch sizes nor acceptance change the length."""

    def activate_step_by_batch(self: Any, batch_size: int) -> None:
        pass

    def on_verify_complete(
        self: Any, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> None:
        pass

    module.AdaptiveController.activate_step_by_batch = activate_step_by_batch
    module.AdaptiveController.on_verify_complete = on_verify_complete


def patch_extend_runner(module: ModuleType) -> None:
    """0.5.17: the width of draft-extend's graphs is read from the launch's arguments.

    The graphs of every other length would never fit their batches, which then run without graphs.
    Mended upstream in 0.5.18.
    """
    resolve = module.resolve_num_tokens_per_req

    @functools.wraps(resolve)
    def resolve_now(*, phase: str, **options: Any) -> int:
        if phase == "draft_extend":
            from sglang.srt.runtime_context import get_spec

            return int(get_spec().speculative_num_draft_tokens)
        return int(resolve(phase=phase, **options))

    module.resolve_num_tokens_per_req = resolve_now  # type: ignore[attr-defined]


def refuse(args: Any) -> None:
    """Raises Refused before a weight is loaded; `args` are SGLang's ServerArgs."""
    if not args.speculative_adaptive:
        raise Refused("it needs --speculative-adaptive and a speculative algorithm", STEP_SWITCH)
    from sglang.srt.speculative import adaptive_spec_params

    built = adaptive_spec_params.resolve_candidate_steps_from_config(
        cfg_path=args.speculative_adaptive_config
    )
    if args.speculative_num_steps != built[-1]:
        raise Refused(
            f"buffers are made for --speculative-num-steps {args.speculative_num_steps}, start "
            f"with the longest chain: --speculative-num-steps {built[-1]}",
            STEP_SWITCH,
        )
    if built[0] == 0 and not versions.installed().can_draft_nothing:
        raise Refused("chains of 0 drafts need SGLang 0.5.14 or later", STEP_SWITCH)
    if (getattr(args, "pp_size", None) or 1) > 1:
        raise Refused("pipeline stages (pp_size > 1) do not switch together", STEP_SWITCH)
    if (getattr(args, "tokenizer_worker_num", None) or 1) > 1:
        raise Refused("of several tokenizer workers only one hears of a switch", STEP_SWITCH)
    if getattr(args, "disaggregation_mode", None) not in (None, "null"):
        raise Refused("PD disaggregation is untried", STEP_SWITCH)


def built(controller: Any) -> list[int]:
    """The lengths of a controller's states. Raises NotPatched where a state is not its length's."""
    states = controller._states
    if set(states) != set(controller.candidate_steps):
        raise NotPatched(
            f"chain lengths {sorted(states)} were built, not {controller.candidate_steps}"
        )
    for steps, state in states.items():
        for name in ("target_graph_runner", "cuda_graph_runner_for_draft_extend"):
            runner = getattr(state, name)
            width = getattr(runner, "captured_req_width", steps + 1)
            if width != steps + 1:
                raise NotPatched(f"{name} of {steps} drafts takes {width} tokens a request")
            if (runner is None) != (getattr(states[max(states)], name) is None):
                raise NotPatched(f"{steps} drafts have no {name}, or only they have one")
    return sorted(states)
