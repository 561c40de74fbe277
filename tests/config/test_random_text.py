"""Prompts of random words: acceptance on them tells nothing, and people do send them."""

import random

import pytest

from tuner.config.prompts import BUILTIN, load_prompts
from tuner.config.random_text import MAX_WORDS, describe_random_text

VOCABULARY = [f"w{n}" for n in range(3000)]


@pytest.mark.parametrize("kind", BUILTIN)
def test_text_is_text(tmp_path, kind: str) -> None:
    """A note on real prompts would be one that nobody reads."""
    prompts = load_prompts(f"builtin:{kind}", tmp_path)
    assert describe_random_text([prompt.text for prompt in prompts]) is None


@pytest.mark.parametrize("size", [20, 200, 3000])
@pytest.mark.parametrize("seed", range(5))
def test_words_drawn_at_random_are_told(size: int, seed: int) -> None:
    """As the random data sets of serving benchmarks send them."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(VOCABULARY[:size], k=100)) for _ in range(16)]
    assert "1,600 words of the prompts stand in no order" in (describe_random_text(texts) or "")


def test_characters_of_a_script_without_spaces_are_words() -> None:
    """Random token ids are decoded to any script."""
    draw = random.Random(0)
    texts = ["".join(chr(draw.randrange(0x4E00, 0x9FFF)) for _ in range(100)) for _ in range(16)]
    assert describe_random_text(texts) is not None
    said = "我们今天去公园散步因为天气很好孩子们在那里玩得很开心" * 3
    assert describe_random_text([said[n:] for n in range(40)]) is None


def test_a_file_of_millions_of_words_is_judged_by_its_first() -> None:
    """A plan must not take minutes for a note."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(VOCABULARY, k=1000)) for _ in range(8)] + ["word " * 1000]
    assert f"{MAX_WORDS:,} words" in (describe_random_text(texts) or "")


def test_few_words_are_not_judged() -> None:
    """Chance makes a short list look like either."""
    assert describe_random_text([" ".join(VOCABULARY[:100])]) is None
    assert describe_random_text([" ".join(VOCABULARY[:100])] * 50) is None
