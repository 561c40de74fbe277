"""Stands in for the CPU build of sgl_kernel, which is not on PyPI: chains only, in plain torch.

Names and orders of arguments are those of SGLang's calls in 0.5.8 to 0.5.23; up to 0.5.15 there
are only CUDA's kernels, which take the same. Tensors called `out_...` are written to, as are those
that a docstring names. Anything else that SGLang asks for exists, so that imports pass, and raises
when it is called.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sgl_kernel.sampling import (  # noqa: F401
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
)


def spans(starts: Tensor, ends: Tensor) -> list[tuple[int, int]]:
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def assign_extend_cache_locs_cpu(
    rows: Tensor, table: Tensor, starts: Tensor, ends: Tensor, out_locations: Tensor, _width: int
) -> None:
    """Each request's slots from start to end, one after the other."""
    pieces = [
        table[row, start:end]
        for row, (start, end) in zip(rows.tolist(), spans(starts, ends), strict=True)
    ]
    if pieces:
        slots = torch.cat(pieces)
        out_locations[: slots.numel()] = slots


def assign_draft_cache_locs_contiguous_cpu(
    rows: Tensor,
    table: Tensor,
    lengths: Tensor,
    out_locations: Tensor,
    width: int,
    topk: int,
    columns: int,
) -> None:
    """The slots behind each sequence where its drafts will go."""
    count = topk * columns
    assign_extend_cache_locs_cpu(rows, table, lengths, lengths + count, out_locations, width)


def assign_req_to_token_pool_cpu(
    rows: Tensor, out_table: Tensor, starts: Tensor, ends: Tensor, slots: Tensor, _width: int
) -> None:
    """The reverse: slots written into each request's row from start to end."""
    done = 0
    for row, (start, end) in zip(rows.tolist(), spans(starts, ends), strict=True):
        out_table[row, start:end] = slots[done : done + end - start].to(out_table.dtype)
        done += end - start


def fill_bonus_tokens_cpu(tokens: Tensor, lengths: Tensor, out_bonus: Tensor, stride: int) -> None:
    """The last accepted token of each request."""
    flat = tokens.reshape(-1)
    last = torch.arange(lengths.numel()) * stride + lengths.long() - 1
    out_bonus[: lengths.numel()] = flat[last].to(out_bonus.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, locations: Tensor, out_locations: Tensor
) -> None:
    """The slots of accepted tokens, moved to the front; -1 marks what was not accepted."""
    index = accept_index.reshape(-1)
    kept = locations[index[index >= 0].long()]
    out_locations[: kept.numel()] = kept.to(out_locations.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    starts: Tensor,
    lengths: Tensor,
    new_tokens: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's `input_ids` left by one and put its new token at the end."""
    tokens = new_tokens.reshape(-1).tolist()
    for number, (start, length) in enumerate(spans(starts, lengths)):
        if length == 0:
            continue
        end = start + length
        input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
        last = end - 1 if select_index is None else int(select_index[number])
        input_ids[last] = tokens[number]


def build_tree_kernel_efficient_cpu(
    _parents: Tensor,
    _selected: Tensor,
    lengths: Tensor,
    _mask: Tensor,
    positions: Tensor,
    index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    topk: int,
    _depth: int,
    count: int,
    _mask_mode: int,
) -> None:
    """A chain as a tree: each node has the one behind it as its child and no sibling.

    Written: positions, index, next_token, next_sibling. The mask is left: attention is causal.
    """
    if topk != 1:
        raise NotImplementedError("this stand-in for sgl_kernel builds chains only")
    step = torch.arange(count)
    requests = lengths.numel()
    positions[: requests * count] = (lengths[:, None] + step).reshape(-1)
    index[:requests] = torch.arange(requests * count).view(requests, count).to(index.dtype)
    next_token[:requests] = torch.cat([step[1:], torch.tensor([-1])]).to(next_token.dtype)
    next_sibling[:requests] = -1


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Accept drafts as long as each is what the target says after the one before it.

    Candidate 0 is the token that is already known. Written: predicts (what the target says, at
    each accepted place), accept_index (those places), accept_token_num (drafts accepted).
    """
    requests, count = candidates.shape
    target = target_predict.reshape(requests, count)
    longest = min(count, accept_index.shape[1])
    for number in range(requests):
        right = candidates[number, 1:longest] == target[number, : longest - 1]
        accepted = int(right.long().cumprod(0).sum())
        places = retrive_index[number, : accepted + 1]
        accept_index[number, : accepted + 1] = places.to(accept_index.dtype)
        predicts[places.long()] = target[number, : accepted + 1].to(predicts.dtype)
        accept_token_num[number] = accepted


build_tree_kernel_efficient = build_tree_kernel_efficient_cpu
verify_tree_greedy = verify_tree_greedy_cpu


def copy_all_layer_kv_cache_cpu(*_arguments: Any) -> None:
    """Nothing to move: accepted tokens of a chain are where they belong."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_arguments: Any, **_named: Any) -> Any:
        raise NotImplementedError(f"sgl_kernel.{name} has no stand-in on a CPU")

    return missing
