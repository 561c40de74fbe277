"""A frozen Llama in plain torch: it answers many prompts at once, and shows its hidden states.

Nothing of transformers is used, so that the speed and the states depend on no release of it.
"""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

ROUND = 64  # lengths are rounded up to it: few different shapes, and aligned masks


def rounded(length: int) -> int:
    return -(-length // ROUND) * ROUND


def rope_theta(config: dict[str, Any]) -> float:
    """transformers has moved this into `rope_parameters`."""
    return float(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])


class Rotary:
    """Rotary embedding, pairs i and i + half. Rotates in float32."""

    def __init__(self, head_dim: int, theta: float, length: int, device: torch.device) -> None:
        half = head_dim // 2
        rates = theta ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
        angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * rates
        self._cos = torch.cat([angles.cos(), angles.cos()], dim=-1)
        self._sin = torch.cat([-angles.sin(), angles.sin()], dim=-1)

    def __call__(self, values: Tensor, positions: Tensor) -> Tensor:
        """`values` are [rows, positions, heads, head size]; `positions` [rows or 1, positions]."""
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        exact = values.float()
        return (exact * cos + exact.roll(values.shape[-1] // 2, -1) * sin).to(values.dtype)


@dataclass
class Answers:
    """Prompts with their answers. Tokens are on the model's device, the counts of them are not:
    what is computed from counts then makes no GPU wait."""

    tokens: Tensor  # [answers, longest] int32, 0 beyond the length
    prompts: Tensor  # [answers]: tokens of each prompt
    lengths: Tensor  # [answers]: tokens of each prompt and its answer


class Llama:
    """The target. `device` and `dtype` are where and how it computes."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype) -> None:
        self.config = config = json.loads((folder / "config.json").read_text())
        self.device, self.dtype = device, dtype
        self.hidden = config["hidden_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or self.hidden // self.heads
        self.eps = config["rms_norm_eps"]
        ends = config["eos_token_id"]
        self.ends = ends if isinstance(ends, list) else [ends]
        loaded = {
            name: value.to(device, dtype)
            for path in sorted(folder.glob("*.safetensors"))
            for name, value in load_file(path).items()
        }
        self.embedding = loaded["model.embed_tokens.weight"]
        self.norm = loaded["model.norm.weight"]
        self.lm_head = loaded.get("lm_head.weight", self.embedding)
        self.layers = [
            {
                name.removeprefix(f"model.layers.{number}.").removesuffix(".weight"): value
                for name, value in loaded.items()
                if name.startswith(f"model.layers.{number}.")
            }
            for number in range(config["num_hidden_layers"])
        ]
        for layer in self.layers:  # two products fewer a layer
            layer["qkv"] = torch.cat([layer[f"self_attn.{part}_proj"] for part in "qkv"])
            layer["gate_up"] = torch.cat([layer["mlp.gate_proj"], layer["mlp.up_proj"]])
        self._rotary = Rotary(self.head_dim, rope_theta(config), 4096, device)

    def _norm(self, values: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(values, (self.hidden,), weight, self.eps)

    def _qkv(self, layer: dict[str, Tensor], values: Tensor, positions: Tensor) -> list[Tensor]:
        """Queries, keys and values, each [rows, positions, its heads, head size]."""
        normed = self._norm(values, layer["input_layernorm"])
        mixed = F.linear(normed, layer["qkv"]).unflatten(-1, (-1, self.head_dim))
        turned, rest = mixed.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
        turned = self._rotary(turned, positions)
        return [*turned.split([self.heads, self.kv_heads], dim=2), rest]

    def _after(self, layer: dict[str, Tensor], values: Tensor, attended: Tensor) -> Tensor:
        values = values + F.linear(attended.flatten(2), layer["self_attn.o_proj"])
        inner = self._norm(values, layer["post_attention_layernorm"])
        gate, up = F.linear(inner, layer["gate_up"]).chunk(2, dim=-1)
        return values + F.linear(F.silu(gate) * up, layer["mlp.down_proj"])

    def _blocks(self, tokens: Tensor, cache: Tensor | None = None) -> Iterator[Tensor]:
        """What each layer reads, and last what the final norm reads: [rows, positions, hidden].

        Padding stands behind a row's tokens, where no token sees it. Keys and values go into
        `cache`, see `answer`.
        """
        values = self.embedding[tokens]
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        group = self.heads // self.kv_heads
        for number, layer in enumerate(self.layers):
            yield values
            query, key, value = self._qkv(layer, values, positions)
            if cache is not None:
                cache[number, 0, :, :, : tokens.shape[1]] = key.transpose(1, 2)
                cache[number, 1, :, :, : tokens.shape[1]] = value.transpose(1, 2)
            attended = F.scaled_dot_product_attention(
                query.transpose(1, 2),
                key.repeat_interleave(group, 2).transpose(1, 2),
                value.repeat_interleave(group, 2).transpose(1, 2),
                is_causal=True,
            )
            values = self._after(layer, values, attended.transpose(1, 2))
        yield values

    @property
    def read(self) -> tuple[int, int, int]:
        """The layers whose inputs SGLang gives to an EAGLE-3 draft of a Llama."""
        count = len(self.layers)
        return 2, count // 2, count - 3

    @torch.no_grad()
    def states(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Of each position: the three hidden states that a draft reads, side by side, and the
        final state, which `lm_head` turns into the next token's logits."""
        values = list(self._blocks(tokens))
        return (
            torch.cat([values[number] for number in self.read], dim=-1),
            self._norm(values[-1], self.norm),
        )

    def _decode(self, token: Tensor, at: Tensor, cache: Tensor, span: int) -> Tensor:
        """The last hidden state of one more token a row, at position `at` of each."""
        values, rows = self.embedding[token][:, None], torch.arange(len(token), device=self.device)
        seen = (torch.arange(span, device=self.device) <= at[:, None])[:, None, None]
        for layer, kept in zip(self.layers, cache, strict=True):
            query, key, value = self._qkv(layer, values, at[:, None])
            kept[0][rows, :, at], kept[1][rows, :, at] = key[:, 0], value[:, 0]
            # The query heads of one key head are rows of one product: no key is copied for them.
            attended = F.scaled_dot_product_attention(
                query[:, 0].unflatten(1, (self.kv_heads, -1)),
                kept[0, :, :, :span],
                kept[1, :, :, :span],
                attn_mask=seen,
            )
            values = self._after(layer, values, attended.flatten(1, 2)[:, None])
        return values[:, 0]

    @torch.no_grad()
    def answer(
        self,
        prompts: list[list[int]],
        temperatures: Sequence[float],
        new: int,
        until: float = math.inf,
    ) -> Answers:
        """`new` tokens for each prompt, on past the end of its turn; see `cut` for the other way.

        Temperature 0 is greedy. Fewer tokens where the clock (time.monotonic) reaches `until`.
        """
        count, longest = len(prompts), max(map(len, prompts))
        size = rounded(longest + new)
        flat = torch.zeros(count, size, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            flat[row, : len(prompt)] = torch.tensor(prompt)
        tokens = flat.to(self.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        at = lengths.to(self.device) - 1
        warmth = torch.tensor(temperatures, device=self.device)[:, None]
        noisy = any(temperatures)
        rows = torch.arange(count, device=self.device)
        # [layer, keys or values, row, head, position, head size]
        shape = (len(self.layers), 2, count, self.kv_heads, size, self.head_dim)
        cache = torch.zeros(shape, device=self.device, dtype=self.dtype)
        read = []
        for start in range(0, count, 128):  # the prefill of all at once would be most of the memory
            some = slice(start, start + 128)
            for values in self._blocks(tokens[some, : rounded(longest)], cache[:, :, some]):
                last = values
            read.append(last[rows[: len(last)], at[some]])
        state = torch.cat(read)
        for made in range(1, new + 1):
            logits = F.linear(self._norm(state, self.norm), self.lm_head).float()
            if noisy:  # Gumbel noise: the highest of the sums is a sample
                logits -= warmth * torch.empty_like(logits).exponential_().log_()
            token = logits.argmax(-1)
            at = at + 1
            tokens[rows, at] = token
            if made == new or time.monotonic() > until:
                break
            state = self._decode(token, at, cache, rounded(longest + made))
        return Answers(tokens.int(), lengths, lengths + made)


def cut(answers: Answers, rows: Tensor, ends: list[int]) -> Answers:
    """The answers, those of `rows` no longer than to the first token that ends a turn."""
    tokens = answers.tokens
    position = torch.arange(tokens.shape[1], device=tokens.device)
    ending = torch.tensor(ends, device=tokens.device, dtype=tokens.dtype)
    prompts = answers.prompts.to(tokens.device)[:, None]
    done = torch.isin(tokens, ending) & (position >= prompts)
    first = torch.where(done, position, tokens.shape[1]).amin(-1).cpu() + 1
    lengths = answers.lengths.clone()
    lengths[rows] = torch.minimum(lengths, first)[rows]
    kept = position < lengths.to(tokens.device)[:, None]
    return Answers(tokens * kept, answers.prompts, lengths)
