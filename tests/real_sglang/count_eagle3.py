"""Counts what an EAGLE-3 chain has accepted, in plain torch and without SGLang.

Runs in the interpreter that has torch and transformers. Reads from stdin

    {"target": DIR, "draft": DIR, "steps": 3, "tokens": 32,
     "answers": [{"prompt": [ids], "output": [ids]}]}

where the outputs are greedy answers, and prints for each answer the verifies of its first `tokens`
tokens by accepted drafts: [[12, 3, 0, 1], ...]. An output has at least `steps` tokens more, as the
last verify is cut at the length but counted whole. The draft is computed anew over the whole text
before each verify.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu


class Draft:
    """One decoder layer over embeddings beside hidden states."""

    def __init__(self, folder: Path, embedding: Tensor) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        loaded = load_file(folder / "model.safetensors")
        self.weights = {
            name.removeprefix("midlayer."): value.float() if value.is_floating_point() else value
            for name, value in loaded.items()
        }
        self.embedding = embedding

    def _linear(self, name: str, values: Tensor) -> Tensor:
        return linear(values, self.weights[f"{name}.weight"])

    def _norm(self, name: str, values: Tensor) -> Tensor:
        scale = values.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]
        return values * scale.rsqrt() * self.weights[f"{name}.weight"]

    def _rotated(self, values: Tensor) -> Tensor:
        """Rotary embedding of [heads, positions, head size], pairs i and i + half."""
        half = values.shape[-1] // 2
        rates = self.config["rope_theta"] ** (-torch.arange(half) / half)
        angles = torch.arange(values.shape[1])[:, None] * rates
        first, second = values[..., :half], values[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _attention(self, values: Tensor) -> Tensor:
        def heads(name: str) -> Tensor:
            found = self._linear(f"self_attn.{name}_proj", values)
            return found.view(len(values), -1, self.config["head_dim"]).transpose(0, 1)

        query, key, value = self._rotated(heads("q")), self._rotated(heads("k")), heads("v")
        out = scaled_dot_product_attention(
            query[None], key[None], value[None], is_causal=True, enable_gqa=True
        )[0]
        return self._linear("self_attn.o_proj", out.transpose(0, 1).reshape(len(values), -1))

    def next(self, tokens: Tensor, states: Tensor) -> tuple[int, Tensor]:
        """The token after the last one, and the hidden state that goes with it.

        `tokens[i]` is the token behind the position that `states[i]` is the hidden state of.
        """
        embedded = self._norm("input_layernorm", self.embedding[tokens])
        beside = torch.cat([embedded, self._norm("hidden_norm", states)], dim=-1)
        states = states + self._attention(beside)
        inner = self._norm("post_attention_layernorm", states)
        gate = silu(self._linear("mlp.gate_proj", inner)) * self._linear("mlp.up_proj", inner)
        last = (states + self._linear("mlp.down_proj", gate))[-1]
        best = int(self._linear("lm_head", self._norm("norm", last)).argmax())
        return best + int(self.weights["d2t"][best]), last

    def chain(self, tokens: list[int], states: Tensor, steps: int) -> list[int]:
        """The next `steps` tokens; from the second on, its own hidden states are all it has."""
        drafted: list[int] = []
        for _ in range(steps):
            known = torch.tensor([*tokens[1:], *drafted])
            token, state = self.next(known, states)
            drafted.append(token)
            states = torch.cat([states, state[None]])
        return drafted


def histogram(
    model: torch.nn.Module, draft: Draft, text: list[int], span: range, steps: int
) -> list[int]:
    """Verifies by accepted drafts; before the span are the prompt and the prefill's token."""
    layers = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    count = len(layers) - 1
    read = [layers[number][0] for number in (2, count // 2, count - 3)]
    states = linear(torch.cat(read, dim=-1), draft.weights["fc.weight"])
    found, known = [0] * (steps + 1), span.start
    while known < span.stop:
        drafted = draft.chain(text[:known], states[: known - 1], steps)
        accepted = 0
        for token, right in zip(drafted, text[known:], strict=False):
            if token != right:
                break
            accepted += 1
        found[accepted] += 1
        known += accepted + 1
    return found


def main() -> None:
    from transformers import AutoModelForCausalLM

    task = json.load(sys.stdin)
    target = Path(task["target"])
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    draft = Draft(Path(task["draft"]), model.get_input_embeddings().weight)
    found = []
    with torch.inference_mode():
        for answer in task["answers"]:
            text = answer["prompt"] + answer["output"]
            prompt = len(answer["prompt"])
            span = range(prompt + 1, prompt + task["tokens"])
            found.append(histogram(model, draft, text, span, task["steps"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
