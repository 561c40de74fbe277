"""Weights and caches as they are: a wrong size would refuse what fits, or launch what cannot."""

from typing import Any

import pytest

from tests.sglang.memory.configs import (
    COUNTED,
    DEEPSEEK_V3,
    EAGLE3_DRAFT,
    KIMI,
    LLAMA_8B,
    QWEN2_7B,
    QWEN3_30B_A3B,
)
from tuner.sglang.memory.estimate import token_bytes
from tuner.sglang.memory.model_shape import ModelShape, read_shape
from tuner.sglang.memory.weights import DraftWeights, draft_bytes, target_bytes

GIB = 2**30


def shape_of(config: dict[str, Any]) -> ModelShape:
    found = read_shape(config)
    assert isinstance(found, ModelShape), found
    return found


@pytest.mark.parametrize(("name", "config", "parameters"), COUNTED, ids=[x[0] for x in COUNTED])
def test_parameters_are_those_that_the_model_has(
    name: str, config: dict[str, Any], parameters: int
) -> None:
    assert target_bytes(shape_of(config), 1) == 2 * parameters


def test_ranks_share_matrices_and_repeat_norms() -> None:
    shape = shape_of(LLAMA_8B)
    whole, halves = target_bytes(shape, 1), target_bytes(shape, 2)
    norms = 2 * (2 * 32 + 1) * 4096
    assert isinstance(whole, float | int)
    assert isinstance(halves, float | int)
    assert 2 * halves == whole + norms
    assert halves / GIB == pytest.approx(7.48, abs=0.005)


def test_a_vocabulary_is_padded_before_it_is_split() -> None:
    """50,257 rows become 50,304, and with 5 ranks a multiple of 320."""
    config = LLAMA_8B | {"vocab_size": 50257, "num_hidden_layers": 0, "tie_word_embeddings": True}
    norm = 4096
    assert target_bytes(shape_of(config), 1) == 2 * (50304 * 4096 + norm)
    assert target_bytes(shape_of(config), 5) == 2 * (50560 // 5 * 4096 + norm)


def test_fewer_kv_heads_than_ranks_are_copied() -> None:
    shape = shape_of(QWEN2_7B)
    assert token_bytes(shape, 1, 2) == 28 * 2 * 4 * 128 * 2
    assert token_bytes(shape, 4, 2) == token_bytes(shape, 7, 2) == 28 * 2 * 128 * 2


def test_mlas_cache_is_whole_on_each_rank() -> None:
    shape = shape_of(DEEPSEEK_V3)
    assert token_bytes(shape, 8, 2) == token_bytes(shape, 1, 2) == 61 * 576 * 2


@pytest.mark.parametrize(
    ("config", "low", "high"),
    [(DEEPSEEK_V3, 671e9, 690e9), (KIMI, 560e9, 600e9)],
    ids=["DeepSeek-V3 in fp8", "Kimi-K2.5's text part with int4 experts"],
)
def test_quantised_experts_come_near(config: dict[str, Any], low: float, high: float) -> None:
    """Published checkpoints of these parts: 689 GB with the MTP layer, and 595 GB with vision."""
    shape = shape_of(config)
    assert not shape.is_exact
    found = target_bytes(shape, 1)
    assert isinstance(found, float)
    assert low < found < high


def test_the_llama_draft_takes_what_servers_logged() -> None:
    """1.12 GB of TP 2 and 2.14 GB of TP 1, as in results/h200_draft_tp."""
    target, draft = shape_of(LLAMA_8B), shape_of(EAGLE3_DRAFT)
    shared, alone = draft_bytes(draft, target, 2, 2), draft_bytes(draft, target, 1, 2)
    assert isinstance(shared, DraftWeights)
    assert isinstance(alone, DraftWeights)
    assert shared.loaded / GIB == pytest.approx(1.12, abs=0.005)
    assert alone.loaded / GIB == pytest.approx(2.14, abs=0.005)
    # The target's embedding takes the place of its own, and cannot where it is split otherwise.
    assert (shared.loaded - shared.kept) / GIB == pytest.approx(128256 * 4096 / GIB)
    assert alone.kept == alone.loaded


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"architectures": ["NewForCausalLM"]}, "NewForCausalLM is not counted"),
        ({"hidden_size": None}, "config.json has no hidden_size"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step is not counted"),
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(change: dict[str, Any], why: str) -> None:
    assert why in str(read_shape(QWEN3_30B_A3B | change))


def test_an_unknown_quantisation_is_not_counted() -> None:
    shape = shape_of(LLAMA_8B | {"quantization_config": {"quant_method": "new"}})
    assert target_bytes(shape, 1) == "quantisation new is not counted"
