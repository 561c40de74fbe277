"""The prompts that the real pair's draft is trained on, and the draft that is kept."""

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
KEPT = CHECKOUT / "tests" / "sglang" / "real_draft"
BUILT_IN = CHECKOUT / "tuner" / "config" / "prompts"
RUN = 8
"""So many words in a row are no accident."""

sys.path.insert(0, str(CHECKOUT / "scripts"))

from real_pair.prompts import KINDS, SUBJECTS, chats  # noqa: E402


def runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return (tuple(words[at : at + RUN]) for at in range(max(1, len(words) - RUN + 1)))


def trained_on(held_out: bool, count: int = 8000) -> list[str]:
    chosen = islice(chats(0, held_out), count)
    return [message["content"] for _, chat in chosen for message in chat]


def built_in() -> list[str]:
    texts = []
    for path in sorted(BUILT_IN.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            prompt = json.loads(line)
            said = prompt.get("messages") or [{"content": prompt["prompt"]}]
            texts += [message["content"] for message in said]
    return texts


@pytest.mark.parametrize("held_out", [False, True])
def test_no_built_in_prompt_is_trained_on(held_out: bool) -> None:
    """Otherwise `builtin:` prompts would flatter the draft: it would have seen their answers."""
    measured = {run for text in built_in() for run in runs(text)}
    assert len(measured) > 5000
    seen = {run for text in trained_on(held_out) for run in runs(text)}
    assert measured & seen == set()


def test_held_out_subjects_are_not_trained_on() -> None:
    """Held-out figures are of subjects that the draft has not met."""
    told = " ".join(trained_on(held_out=False))
    for phrase in (SUBJECTS[name][0] for name in ("topic", "place", "person")):
        assert not re.search(rf"\b{re.escape(phrase)}\b", told), phrase


def test_prompts_are_many_and_of_every_kind() -> None:
    """A draft that learned few prompts by heart would be worth nothing elsewhere."""
    chosen = list(islice(chats(3), 8000))
    assert len({json.dumps(chat) for _, chat in chosen}) == len(chosen)
    for kind in KINDS:
        assert sum(each == kind for each, _ in chosen) > 0.2 * len(chosen)


def test_prompts_are_the_same_for_the_same_seed() -> None:
    assert list(islice(chats(1), 40)) == list(islice(chats(1), 40))
    assert list(islice(chats(1), 40)) != list(islice(chats(2), 40))


def test_no_slot_is_left_open() -> None:
    """A prompt with a {slot} in it teaches nothing."""
    slots = re.compile(r"\{(topic|place|person|thing|language|task|n|m|big)\d?\}")
    assert [text for text in trained_on(held_out=False) if slots.search(text)] == []


@pytest.mark.skipif(not KEPT.is_dir(), reason="no draft is kept yet")
def test_the_kept_draft_is_small_and_whole() -> None:
    """It travels with every clone, and `make real-pair` needs all of it."""
    sizes = [path.stat().st_size for path in KEPT.iterdir()]
    assert sum(sizes) <= 8.5e6
    config = json.loads((KEPT / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    with (KEPT / "packed.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert header["draft_ids"]["shape"] == [config["draft_vocab_size"]]
    assert header["lm_head.weight"]["dtype"] == "I8"
    assert header["lm_head.weight"]["shape"] == [config["draft_vocab_size"], config["hidden_size"]]
