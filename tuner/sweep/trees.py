"""Draft trees: how many tokens one may have.

Facts about SGLang (0.5.8 to 0.5.23): with eagle_topk 1 the server sets num_draft_tokens to
num_steps + 1 whatever it is told. With topk > 1 the tree has at most
1 + topk + (num_steps - 1) * topk^2 nodes; no release checks that, a server asked for more loads all
its weights and then dies at graph capture.
"""

MAX_AUTO_TOKENS = 64
"""`num_draft_tokens: auto` proposes powers of two up to this."""


def tree_bound(num_steps: int, eagle_topk: int) -> int:
    """The most draft tokens that a tree of that depth and width holds, the root included."""
    if eagle_topk == 1:
        return num_steps + 1
    return 1 + eagle_topk + (num_steps - 1) * eagle_topk**2


def auto_tokens(num_steps: int, eagle_topk: int) -> tuple[int, ...]:
    """What `auto` tries for one tree: powers of two from steps + 1 to steps * topk + 1."""
    if eagle_topk == 1:
        return (num_steps + 1,)
    powers = (2**exponent for exponent in range(1, MAX_AUTO_TOKENS.bit_length()))
    return tuple(d for d in powers if num_steps + 1 <= d <= num_steps * eagle_topk + 1)
