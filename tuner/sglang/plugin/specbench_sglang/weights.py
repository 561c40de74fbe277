"""The embedding and the head that a draft shares with the target, cut for the draft's group.

Each target rank holds consecutive rows of the padded vocabulary, so that the shards in rank order
are the whole table, and a draft rank's share of it is the shards of some consecutive target ranks.
"""

from typing import Any

from . import groups
from .problems import NotPatched, Refused


def reshare(worker: Any, embed: Any, head: Any) -> tuple[Any, Any]:
    """The draft's shares of the target's embedding and head, in the draft's own storage.

    `worker` has target_worker and draft_runner. What the draft will not take stays as it is: the
    head of most EAGLE-3 drafts, the embedding of a draft of another width. Collective.
    """
    if groups.placement().is_stock:
        return embed, head
    draft = worker.draft_runner.model
    own_embed, own_head = _own(draft)
    shared_embed = embed
    if embed is not None and (own_embed is None or own_embed.shape[1:] == embed.shape[1:]):
        shared_embed = _share(embed, own_embed)
    if head is None or not _takes_head(worker, draft):
        return shared_embed, head
    # A tied head has no storage of its own. With a token map SGLang picks the draft's rows from the
    # whole head, for which up to 0.5.12 the draft has too few.
    whole = own_head is own_embed or getattr(worker, "hot_token_id", None) is not None
    into = None if whole else own_head
    _refuse_quantised(worker, draft)
    return shared_embed, _share(head, into)


def _own(draft: Any) -> tuple[Any, Any]:
    get = getattr(draft, "get_embed_and_head", None)
    if get is None:
        return None, None
    embed, head = get()
    return embed, head


def _takes_head(worker: Any, draft: Any) -> bool:
    if not worker.speculative_algorithm.is_eagle3():
        return True
    return bool(getattr(draft, "load_lm_head_from_target", False))


def _refuse_quantised(worker: Any, draft: Any) -> None:
    """A draft that takes the target's head as a module gets the plain weight instead."""
    module = getattr(worker.target_worker.model_runner.model, "lm_head", None)
    method = type(getattr(module, "quant_method", None)).__name__
    if method not in ("NoneType", "UnquantizedEmbeddingMethod", "UnquantizedLinearMethod"):
        raise Refused(f"the draft shares the target's quantised head ({method})")
    if hasattr(draft, "set_lm_head_from_target"):
        draft.set_lm_head_from_target = lambda _head: None


def _share(shard: Any, into: Any) -> Any:
    """This draft rank's rows, from all shards. One shard of extra memory at a time."""
    import torch

    place = groups.placement()
    target, draft = place.target, place.draft
    count = shard.shape[0]
    rows = count * target.world_size // place.size
    if into is None:
        empty = torch.empty((rows, *shard.shape[1:]), dtype=shard.dtype, device=shard.device)
        into = torch.nn.Parameter(empty, requires_grad=False)
    if into.shape[0] != rows or into.dtype != shard.dtype:
        raise NotPatched(
            f"the draft's table has {into.shape[0]} rows of {into.dtype}, the target's shards make "
            f"{rows} of {shard.dtype}"
        )
    first = draft.rank_in_group * rows
    for source in range(target.world_size):
        mine = source == target.rank_in_group
        piece = shard.data.clone() if mine else torch.empty_like(shard.data)
        piece = piece.contiguous()
        target.broadcast(piece, source)
        at = source * count - first
        if 0 <= at < rows:
            into.data[at : at + count].copy_(piece)
    return into
