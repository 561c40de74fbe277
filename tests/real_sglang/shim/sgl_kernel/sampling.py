"""Sampling on a chain of drafts, as SGLang's CUDA kernels do it up to 0.5.10, in plain torch.

Source: `sgl-kernel/csrc/speculative/speculative_sampling.cuh` and FlashInfer's `renorm_prob`.
"""

import torch
from torch import Tensor


def top_k_renorm_prob(probs: Tensor, top_ks: Tensor) -> Tensor:
    """Each row with all but its k largest at 0 and a sum of 1; equals of the last stay too."""
    largest = probs.sort(dim=-1, descending=True).values
    last = top_ks.long().clamp(1, probs.shape[-1]) - 1
    return _renormed(probs, probs >= largest.gather(1, last[:, None]))


def top_p_renorm_prob(probs: Tensor, top_ps: Tensor) -> Tensor:
    """Each row with the fewest of its largest that make up p, and a sum of 1."""
    values, places = probs.sort(dim=-1, descending=True)
    before = values.cumsum(-1) - values
    kept = torch.zeros_like(probs, dtype=torch.bool).scatter(1, places, before < top_ps[:, None])
    return _renormed(probs, kept)


def _renormed(probs: Tensor, kept: Tensor) -> Tensor:
    left = torch.where(kept, probs, torch.zeros_like(probs))
    return left / left.sum(-1, keepdim=True)


def tree_speculative_sampling_target_only(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,  # a chain's next is the next
    retrive_next_sibling: Tensor,  # and it has no siblings
    uniform_samples: Tensor,
    uniform_samples_for_final_sampling: Tensor,
    target_probs: Tensor,
    draft_probs: Tensor,  # the kernel's room for what was refused
    threshold_single: float,
    threshold_acc: float,
    deterministic: bool,
) -> None:
    """Accept each draft with its probability, and draw one more token from what is left.

    Written as in `verify_tree_greedy_cpu`: predicts, accept_index, accept_token_num.
    """
    requests, count = candidates.shape
    longest = min(count, accept_index.shape[1])
    for request in range(requests):
        places = retrive_index[request].tolist()
        accept_index[request, 0] = places[0]
        at, refused = 0, None
        while at + 1 < longest:
            draft = int(candidates[request, at + 1])
            chance = float(target_probs[request, at, draft])
            coin = float(uniform_samples[request, at])
            if coin > chance / threshold_acc and chance < threshold_single:
                refused = draft
                break
            predicts[places[at]] = draft
            at += 1
            accept_index[request, at] = places[at]
        left = target_probs[request, at].clone()
        if refused is not None:
            left[refused] = 0
        reached = left.cumsum(-1)
        drawn = uniform_samples_for_final_sampling[request] * reached[-1]
        predicts[places[at]] = int((reached > drawn).long().argmax())
        accept_token_num[request] = at
