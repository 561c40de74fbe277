"""Trains an EAGLE-3 draft of a small Llama, and keeps it small.

    python scripts/train_eagle3_draft.py --target DIR --out DIR --minutes 6

Two phases share the time: the target answers prompts of `real_pair/prompts.py`, of which the token
ids are kept; then the draft learns from them, unrolled as in EAGLE-3's training-time test, while
the frozen target's states are computed anew for each batch. Ends in time, saving included.

--out gets what `real_pair/packed.py` describes, and training.log. The last line of the log is of
the draft as it will be served: unpacked, in bfloat16. Held-out figures are of greedy answers to
prompts about other subjects that go on for --new-tokens, past the end of a turn, as
specbench's do by default.

Needs torch, safetensors and transformers (for the tokenizer). Takes a GPU where there is one.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from real_pair import packed
from real_pair.head import Batch, Head, accepted, batch_of, config_of, loss_of, rounds
from real_pair.llama import Answers, Llama, cut, rounded
from real_pair.prompts import chats
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

STARTED = time.monotonic() - time.thread_time()  # the imports took some of the time, too
TEMPERATURES = (0.0, 0.7)
LONGEST_PROMPT = 512
DEPTHS = (3, 7)
"""Drafts at a time that held-out accept lengths are given for."""


class Log:
    """Prints lines and keeps them, each with the seconds since the start."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")

    def __call__(self, text: str) -> None:
        line = f"{time.monotonic() - STARTED:6.1f} s  {text}"
        print(line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()


def tokenised(tokenizer: Any, seed: int, held_out: bool) -> Iterator[list[int]]:
    """Prompts as the target's chat template writes them, without end."""
    source = chats(seed, held_out)
    while True:
        some = [chat for _, chat in islice(source, 512)]
        texts = tokenizer.apply_chat_template(some, tokenize=False, add_generation_prompt=True)
        for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]:
            if len(ids) <= LONGEST_PROMPT:
                yield ids


def joined(some: list[Answers]) -> Answers:
    width = max(each.tokens.shape[1] for each in some)
    tokens = [F.pad(each.tokens, (0, width - each.tokens.shape[1])) for each in some]
    prompts = torch.cat([each.prompts for each in some])
    return Answers(torch.cat(tokens), prompts, torch.cat([each.lengths for each in some]))


def answered(
    target: Llama, prompts: Iterator[list[int]], rows: int, new: int, until: float
) -> Answers:
    """Answers to as many prompts as there is time for, half of them cut at the end of the turn.

    Served answers end there or do not; a draft should be good at both.
    """
    found: list[Answers] = []
    window: list[list[int]] = []
    took = 0.0
    while not found or time.monotonic() + took < until:
        began = time.monotonic()
        if not window:  # four batches, each of prompts about as long as each other
            window = sorted(islice(prompts, 4 * rows), key=len)
        at = (len(found) % 2) * (len(window) - rows)  # the shortest and the longest in turn
        some = window[at : at + rows]
        del window[at : at + rows]
        warmth = [TEMPERATURES[row % len(TEMPERATURES)] for row in range(rows)]
        answers = target.answer(some, warmth, new, until)
        ended = torch.arange(rows) // len(TEMPERATURES) % 2 == 0
        found.append(cut(answers, ended.nonzero()[:, 0], target.ends))
        took = time.monotonic() - began
    return joined(found)


def frequent(answers: Answers, count: int, vocabulary: int) -> tuple[Tensor, float]:
    """The tokens that most of the answers are made of, and how much of them they are."""
    place = torch.arange(answers.tokens.shape[1])
    said = (place >= answers.prompts[:, None]) & (place < answers.lengths[:, None])
    tokens = answers.tokens[said.to(answers.tokens.device)]
    times = torch.bincount(tokens, minlength=vocabulary)
    ids = times.argsort(descending=True, stable=True)[:count]
    return ids, float(times[ids].sum() / len(tokens))


def batches(answers: Answers, tokens: int, mixing: torch.Generator) -> Iterator[Tensor]:
    """Rows of answers about as long as each other, `tokens` a batch; all of them, and again."""
    while True:
        noise = torch.rand(len(answers.lengths), generator=mixing) * 32
        order = (answers.lengths + noise).argsort(descending=True)
        cuts, at = [], 0
        while at < len(order):
            longest = rounded(int(answers.lengths[order[at]] + 32))
            count = max(1, tokens // longest)
            cuts.append(order[at : at + count])
            at += count
        for number in torch.randperm(len(cuts), generator=mixing).tolist():
            yield cuts[number]


def held_out_figures(head: Head, held_out: list[Batch]) -> str:
    """Accept rates by position and accept lengths, as a line."""
    deepest = max(DEPTHS)
    found = {steps: torch.zeros(steps + 1, dtype=torch.int64) for steps in DEPTHS}
    for batch in held_out:
        count = accepted(head, batch, deepest)
        for steps in DEPTHS:
            stop = batch.lengths - steps
            found[steps] += rounds(count, batch.prompts, stop, steps).sum(0)
    lengths = {
        steps: 1 + float((times * torch.arange(steps + 1)).sum() / times.sum())
        for steps, times in found.items()
    }
    by_position = found[deepest].flip(0).cumsum(0).flip(0)[1:] / found[deepest].sum()
    rates = " ".join(f"{rate:.3f}" for rate in by_position.tolist())
    said = ", ".join(f"{length:.3f} at {steps} steps" for steps, length in lengths.items())
    return f"held-out accept rates {rates}, accept length {said}"


def memory(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return f", {peak:.1f} GiB"


def train(arguments: argparse.Namespace, log: Log) -> None:
    from transformers import AutoTokenizer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.manual_seed(arguments.seed)
    # A new plan for each new shape costs more than its kernels win.
    torch.backends.cuda.enable_cudnn_sdp(False)
    end = STARTED + 60 * arguments.minutes
    rows = arguments.rows or (1024 if on_gpu else 32)
    target = Llama(arguments.target, device, getattr(torch, arguments.dtype))
    tokenizer = AutoTokenizer.from_pretrained(arguments.target)
    log(f"{json.dumps({**vars(arguments), 'rows': rows}, default=str)} on {device}")

    questions = tokenised(tokenizer, arguments.seed, held_out=True)
    count = arguments.held_out or (256 if on_gpu else 8)
    until = time.monotonic() + 0.1 * (end - STARTED)
    kept = target.answer(list(islice(questions, count)), [0.0] * count, arguments.new_tokens, until)
    order = kept.lengths.argsort()
    held_out = [batch_of(target, kept, some) for some in order.split(32)]
    log(f"answered {count} held-out prompts{memory(device)}")

    began = time.monotonic()
    until = began + arguments.share * (end - began)
    prompts = tokenised(tokenizer, arguments.seed, held_out=False)
    answers = answered(target, prompts, rows, arguments.new_tokens, until)
    ids, known = frequent(answers, arguments.draft_vocabulary, len(target.embedding))
    made, took = int((answers.lengths - answers.prompts).sum()), time.monotonic() - began
    log(
        f"answered {len(answers.lengths)} prompts in {made} tokens, {made / took:.0f}/s; "
        f"{known:.2%} of them are in the draft vocabulary{memory(device)}"
    )

    config = config_of(target, len(ids))
    head = Head(config).to(device)
    head.begin(target, ids)
    optimizer = torch.optim.AdamW(
        head.parameters(), betas=(0.9, 0.95), weight_decay=0.01, fused=on_gpu or None
    )
    mixed = torch.autocast(device.type, torch.bfloat16, arguments.dtype == "bfloat16")
    size = arguments.batch_tokens or (32768 if on_gpu else 2048)
    chosen = batches(answers, size, torch.Generator().manual_seed(arguments.seed))

    def figures() -> tuple[str, float]:
        asked = time.monotonic()
        with mixed:
            said = held_out_figures(head, held_out)
        return said, time.monotonic() - asked

    said, costs = figures()
    log(f"step 0, untrained: {said}")
    began, shown, step, seen = time.monotonic(), 0.0, 0, 0
    loss = torch.zeros(())
    end -= 2 * costs + 2  # the last figures, of what was saved
    took = 0.0
    while time.monotonic() + took < end:
        progress = (time.monotonic() - began) / (end - began)
        if progress > shown + arguments.show:
            shown = progress
            said, _ = figures()
            log(f"step {step}, loss {float(loss.detach()):.3f}, {seen} tokens: {said}")
        warm = min(1.0, max((step + 1) / 100, progress / 0.05))
        cold = 0.02 + 0.98 * (1 + math.cos(math.pi * progress)) / 2
        for group in optimizer.param_groups:
            group["lr"] = arguments.lr * warm * cold
        asked = time.monotonic()
        batch = batch_of(target, answers, next(chosen))
        with mixed:
            loss = loss_of(head, target, batch, arguments.unroll)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        step, seen = step + 1, seen + int(batch.lengths.sum())
        took = time.monotonic() - asked

    packed.write(arguments.out, config, head.state_dict())
    passes = seen / int(answers.lengths.sum())
    log(f"step {step}, {passes:.1f} passes over the answers{memory(device)}: saved, packed")
    _, weights = packed.read(arguments.out)
    head.load_state_dict(weights)
    head.to(target.dtype)
    log(f"as served: {held_out_figures(head, held_out)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train an EAGLE-3 draft of a small Llama.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    add("--out", type=Path, required=True, help="folder for the packed draft and its log")
    add("--minutes", type=float, default=6.0, help="for everything")
    add("--share", type=float, default=0.25, help="of the time, for the target's answers")
    add("--rows", type=int, help="prompts answered at once: 1024 on a GPU, else 32")
    add("--new-tokens", type=int, default=256, help="length of an answer")
    add("--held-out", type=int, help="held-out prompts: 256 on a GPU, else 8")
    add("--draft-vocabulary", type=int, default=4096, help="tokens that can be drafted")
    add("--unroll", type=int, default=5, help="steps that are trained")
    add("--batch-tokens", type=int, help="a step's tokens: 32768 on a GPU, else 2048")
    add("--lr", type=float, default=1e-3, help="highest learning rate")
    add("--show", type=float, default=0.125, help="of the training, between two lines of figures")
    add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of the computation")
    add("--seed", type=int, default=0, help="of prompts, sampling and the order of batches")
    arguments = parser.parse_args()
    if not (arguments.target / "config.json").is_file():
        parser.error(f"--target {arguments.target} has no config.json, give a model's folder")
    train(arguments, Log(arguments.out / "training.log"))


if __name__ == "__main__":
    main()
