"""Trains a draft for some steps, packs it, and counts what it has accepted as the training does.

Runs in the interpreter that has torch. Reads from stdin

    {"target": DIR, "out": DIR, "training": 30, "steps": 3, "tokens": 28}

and prints the answers, the verifies by accepted drafts of each answer's first `tokens` tokens, as
count_eagle3.py does, the first and last loss, and what packing did to the weights. OUT/packed is
the packed draft, OUT/draft what is served.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from real_pair import packed
from real_pair.head import Batch, Head, accepted, batch_of, config_of, loss_of, rounds
from real_pair.llama import Llama

PROMPTS = [[5, 6, 7, 8], [9, 100, 200, 3, 4, 44, 17, 23], [300, 17, 450]]


def learn(head: Head, target: Llama, batch: Batch, steps: int) -> list[float]:
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
    losses = []
    for _ in range(steps):
        loss = loss_of(head, target, batch, 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def packing(out: Path, weights: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Any]:
    """Writes OUT/packed and OUT/draft, and again beside them."""
    for name in ("", "_again"):
        packed.write(out / f"packed{name}", config, weights)
        packed.write_unpacked(out / f"packed{name}", out / f"draft{name}")
    _, unpacked = packed.read(out / "packed")
    errors = {}
    for name, values in weights.items():
        if values.dim() == 2:
            off = (unpacked[name].float() - values).abs().amax(1)
            errors[name] = float((off / values.abs().amax(1).clamp(min=1e-9)).max())
    return {
        "errors": errors,
        "shapes_kept": {k: v.shape for k, v in weights.items()}
        == {k: v.shape for k, v in unpacked.items()},
        "vocabulary_kept": all(bool((unpacked[k] == weights[k]).all()) for k in ("d2t", "t2d")),
        "dtypes": sorted({str(v.dtype) for v in unpacked.values()}),
    }


def main() -> None:
    task = json.load(sys.stdin)
    torch.manual_seed(0)
    target = Llama(Path(task["target"]), torch.device("cpu"), torch.float32)
    # Longer than measured: the last verify is cut at the length and counted whole.
    answers = target.answer(PROMPTS, [0.0] * len(PROMPTS), task["tokens"] + task["steps"])
    batch = batch_of(target, answers, torch.arange(len(PROMPTS)))
    said = [
        tokens[prompt:length].tolist()
        for tokens, prompt, length in zip(
            answers.tokens, answers.prompts, answers.lengths, strict=True
        )
    ]
    # A vocabulary that lacks some of what is said: d2t has something to do.
    ids = torch.tensor(sorted({token for answer in said for token in answer})[1:])
    config = config_of(target, len(ids))
    head = Head(config)
    head.begin(target, ids)
    losses = learn(head, target, batch, task["training"])
    facts = packing(Path(task["out"]), head.state_dict(), config)
    head.load_state_dict(packed.read(Path(task["out"]) / "packed")[1])
    count = accepted(head, batch, task["steps"])
    found = rounds(count, answers.prompts, answers.prompts + task["tokens"], task["steps"])
    pairs = zip(PROMPTS, said, strict=True)
    print(
        json.dumps(
            {
                "answers": [{"prompt": prompt, "output": output} for prompt, output in pairs],
                "histograms": found.tolist(),
                "losses": [losses[0], losses[-1]],
                "packing": facts,
            }
        )
    )


if __name__ == "__main__":
    main()
