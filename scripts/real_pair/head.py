"""An EAGLE-3 draft of a Llama in plain torch: its unrolled training, and what it is worth.

As SGLang runs it (models/llama_eagle3.py): position i reads the target's hidden states there and
the embedding of the token behind it, i + 1, and predicts the token after that, i + 2. From the
second step on it reads its own hidden state, before the last norm, in place of the target's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from real_pair.llama import Answers, Llama, Rotary, rope_theta, rounded


def config_of(target: Llama, draft_vocabulary: int) -> dict[str, Any]:
    """The config.json of a draft in the target's shape, one layer deep."""
    copied = (
        *("model_type", "hidden_size", "intermediate_size", "num_attention_heads"),
        *("num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps"),
        *("hidden_act", "bos_token_id", "eos_token_id"),
    )
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **{name: target.config[name] for name in copied if name in target.config},
        "num_hidden_layers": 1,
        "head_dim": target.head_dim,
        "rope_theta": rope_theta(target.config),
        "attention_bias": False,
        "tie_word_embeddings": False,
        "draft_vocab_size": draft_vocabulary,
        "torch_dtype": "bfloat16",
    }


class Norm(nn.RMSNorm):
    """In float32, as SGLang computes it, whatever it reads."""

    def forward(self, values: Tensor) -> Tensor:
        weight = self.weight.float()
        normed = F.rms_norm(values.float(), self.normalized_shape, weight, self.eps)
        return normed.to(values.dtype)


class Head(nn.Module):
    """The draft. Its parameters and buffers are named as SGLang loads them."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.head_dim, self.theta = config["head_dim"], config["rope_theta"]
        self.groups = config["num_attention_heads"] // config["num_key_value_heads"]
        wide = config["num_attention_heads"] * self.head_dim
        narrow = config["num_key_value_heads"] * self.head_dim
        linear = partial(nn.Linear, bias=False)
        norm = partial(Norm, hidden, config["rms_norm_eps"])
        self.fc = linear(3 * hidden, hidden)
        self.midlayer = nn.ModuleDict(
            {
                "input_layernorm": norm(),
                "hidden_norm": norm(),
                "self_attn": nn.ModuleDict(
                    {
                        "q_proj": linear(2 * hidden, wide),
                        "k_proj": linear(2 * hidden, narrow),
                        "v_proj": linear(2 * hidden, narrow),
                        "o_proj": linear(wide, hidden),
                    }
                ),
                "post_attention_layernorm": norm(),
                "mlp": nn.ModuleDict(
                    {
                        "gate_proj": linear(hidden, inner),
                        "up_proj": linear(hidden, inner),
                        "down_proj": linear(inner, hidden),
                    }
                ),
            }
        )
        self.norm = norm()
        self.lm_head = linear(hidden, config["draft_vocab_size"])
        self.register_buffer("d2t", torch.zeros(config["draft_vocab_size"], dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(config["vocab_size"], dtype=torch.bool))

    @property
    def ids(self) -> Tensor:
        """The target's ids of the draft vocabulary; d2t holds the differences."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    @torch.no_grad()
    def begin(self, target: Llama, ids: Tensor) -> None:
        """Start from the target: its last layer, over the last state that is read, and its output
        rows of the draft vocabulary `ids`."""
        ids = ids.sort().values
        self.t2d.zero_()[ids] = True
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.lm_head.weight.copy_(target.lm_head[ids])
        self.norm.weight.copy_(target.norm)
        hidden = self.fc.out_features
        self.fc.weight.normal_(std=0.002)
        self.fc.weight[:, 2 * hidden :] += torch.eye(hidden, device=ids.device)
        last = target.layers[-1]
        self.midlayer["hidden_norm"].weight.copy_(last["input_layernorm"])
        for name, module in self.midlayer["self_attn"].items():
            weight = last[f"self_attn.{name}"]
            module.weight[:, -weight.shape[1] :] = weight
            module.weight[:, : -weight.shape[1]].normal_(std=0.002)  # of the embedding, if any
        for name, module in self.midlayer["mlp"].items():
            module.weight.copy_(last[f"mlp.{name}"])
        norm = self.midlayer["post_attention_layernorm"]
        norm.weight.copy_(last["post_attention_layernorm"])

    def unroll(self, states: Tensor, following: Tensor, steps: int) -> Iterator[Tensor]:
        """The hidden states of `steps` drafts from every position: [rows, positions, hidden] each.

        `states` are the target's three per position, `following` the embeddings of the tokens
        behind them; at step s, position i reads following[i + s]. As while drafting, it attends to
        the positions up to i of step 0 and to itself at the steps since, turned by i + s.
        """
        layer, attention, mlp = self.midlayer, self.midlayer["self_attn"], self.midlayer["mlp"]
        length, device = following.shape[1], following.device
        rotary = Rotary(self.head_dim, self.theta, length + steps, device)
        index = torch.arange(length, device=device)
        past, same = index[:, None] >= index, index[:, None] == index
        embedded = layer["input_layernorm"](following)
        hidden, keys, values = self.fc(states), [], []

        def heads(name: str, read: Tensor) -> Tensor:
            return attention[name](read).unflatten(-1, (-1, self.head_dim))

        for step in range(steps):
            token = F.pad(embedded[:, step:], (0, 0, 0, step))
            read = torch.cat([token, layer["hidden_norm"](hidden)], dim=-1)
            at = index[None] + step
            keys.append(rotary(heads("k_proj", read), at).repeat_interleave(self.groups, 2))
            values.append(heads("v_proj", read).repeat_interleave(self.groups, 2))
            attended = F.scaled_dot_product_attention(
                rotary(heads("q_proj", read), at).transpose(1, 2),
                torch.cat(keys, dim=1).transpose(1, 2),
                torch.cat(values, dim=1).transpose(1, 2),
                attn_mask=torch.cat([past, *[same] * step], dim=-1) if step else None,
                is_causal=step == 0,
            )
            hidden = hidden + attention["o_proj"](attended.transpose(1, 2).flatten(2))
            inner = layer["post_attention_layernorm"](hidden)
            gate = F.silu(mlp["gate_proj"](inner)) * mlp["up_proj"](inner)
            hidden = hidden + mlp["down_proj"](gate)
            yield hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Over the draft vocabulary."""
        return self.lm_head(self.norm(hidden))


@dataclass
class Batch:
    """Answers with what the target makes of them, `length` positions each."""

    tokens: Tensor  # [rows, length] int64
    states: Tensor  # [rows, length, 3 x hidden]
    final: Tensor  # [rows, length, hidden]
    following: Tensor  # [rows, length, hidden]: embeddings of the next tokens
    prompts: Tensor  # [rows], not on the device, as in Answers
    lengths: Tensor


def there(values: Tensor, device: torch.device) -> Tensor:
    """A copy on the device that the host does not wait for."""
    if device.type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def batch_of(target: Llama, answers: Answers, rows: Tensor) -> Batch:
    """These answers, by one forward of the target."""
    prompts, lengths = answers.prompts[rows], answers.lengths[rows]
    chosen = there(rows, target.device)
    tokens = answers.tokens[chosen, : rounded(int(lengths.max()))].long()
    states, final = target.states(tokens)
    following = F.pad(target.embedding[tokens[:, 1:]], (0, 0, 0, 1))
    return Batch(tokens, states, final, following, prompts, lengths)


def loss_of(head: Head, target: Llama, batch: Batch, steps: int, fade: float = 0.8) -> Tensor:
    """Cross-entropy to the target's distribution over the draft vocabulary, later steps less.

    Only drafts of an answer's tokens count, and of those only what the draft vocabulary has.
    """
    device, (_, length) = batch.tokens.device, batch.tokens.shape
    place = torch.arange(length)
    left = batch.lengths[:, None] - 2 - place  # drafts that the answer has, from there on
    chosen = ((place >= batch.prompts[:, None] - 1) & (left > 0)).flatten().nonzero()[:, 0]
    left, chosen = there(left.flatten()[chosen], device), there(chosen, device)
    tokens = batch.tokens.flatten()
    aims = F.linear(batch.final, target.lm_head[head.ids]).flatten(0, 1)
    total = torch.zeros((), device=device)
    for step, hidden in enumerate(head.unroll(batch.states, batch.following, steps)):
        # Behind the last answer's end there is nothing to look at, and `left` says so.
        before = (chosen + step + 1).clamp(max=len(tokens) - 2)
        weight = (left > step) & head.t2d[tokens[before + 1]]
        aim = aims[before].float().softmax(-1)
        logits = head.logits(hidden.flatten(0, 1)[chosen]).float()
        off = F.cross_entropy(logits, aim, reduction="none") * weight
        total = total + fade**step * off.sum() / weight.sum().clamp(min=1)
    return total


@torch.no_grad()
def accepted(head: Head, batch: Batch, steps: int) -> Tensor:
    """From every position, how many of `steps` greedy drafts are the answer's: [rows, length]."""
    good = torch.ones_like(batch.tokens, dtype=torch.bool)
    count = torch.zeros_like(batch.tokens)
    for step, hidden in enumerate(head.unroll(batch.states, batch.following, steps)):
        drafted = head.ids[head.logits(hidden).argmax(-1)]
        right = F.pad(batch.tokens[:, step + 2 :], (0, step + 2), value=-1)
        good &= drafted == right
        count += good
    return count


def rounds(count: Tensor, first: Tensor, stop: Tensor, steps: int) -> Tensor:
    """Verifies by accepted drafts, [rows, steps + 1], where a server drafts `steps` at a time.

    `count` is of `accepted`; the first verify of a row drafts the token `first` + 1, `first` being
    the one that the prefill gives, and the last begins before `stop` tokens are known.
    """
    count, known, stop = count.cpu(), first.cpu() + 1, stop.cpu()
    rows = torch.arange(len(count))
    found = torch.zeros(len(count), steps + 1, dtype=torch.int64)
    while (going := known < stop).any():
        right = count[rows, known.clamp(max=count.shape[1] + 1) - 2].clamp(max=steps)
        found[rows[going], right[going]] += 1
        known = torch.where(going, known + right + 1, known)
    return found
