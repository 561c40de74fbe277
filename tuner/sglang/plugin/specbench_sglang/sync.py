"""Keep the draft's replicas from drafting different tokens.

With the draft on the target's group its logits are bit-identical on all ranks. Replicas rely on
equal kernels, and SGLang's greedy verification has no broadcast: one rank that drafts another token
would mix the target's input silently. So all take the first rank's tree, once a cycle.
"""

from types import ModuleType
from typing import Any

from . import groups, settings

_TREE = ("parent_list", "top_scores_index", "draft_tokens")


def patch(module: ModuleType) -> None:
    """Put a broadcast in front of the tree: after drafting, outside of every CUDA graph."""
    asked = settings.read()
    build = getattr(module, "build_tree_kernel_efficient", None)
    if build is None or asked is None or not asked.sync:
        return
    import inspect

    names = list(inspect.signature(build).parameters)
    index = {name: names.index(name) for name in (*_TREE, "topk")}

    def build_agreed(*args: Any, **options: Any) -> Any:
        place = groups.placement()
        if place.is_stock:
            return build(*args, **options)
        given = dict(zip(names, args, strict=False)) | options
        # The rest of a chain is known beforehand.
        differing = _TREE if given["topk"] > 1 else _TREE[-1:]
        agreed = dict(zip(differing, _agreed([given[n] for n in differing]), strict=True))
        positional = list(args)
        for name, tensor in agreed.items():
            if index[name] < len(positional):
                positional[index[name]] = tensor
            else:
                options[name] = tensor
        return build(*positional, **options)

    module.build_tree_kernel_efficient = build_agreed  # type: ignore[attr-defined]


def _agreed(tensors: list[Any]) -> list[Any]:
    """The first rank's values, in one broadcast where they have one type."""
    import torch

    target = groups.placement().target
    if len(tensors) == 1 or len({tensor.dtype for tensor in tensors}) > 1:
        whole = [tensor.contiguous() for tensor in tensors]
        for tensor in whole:
            if tensor.numel():
                target.broadcast(tensor, 0)
        return whole
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    target.broadcast(flat, 0)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
