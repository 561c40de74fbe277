"""The sizes that are measured: another model's would answer another question."""

import json
from pathlib import Path

import pytest

from tests.factories import load_sweep_text
from tuner.config.loader import LoadedSweep
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.server.all_reduce import (
    MOST_SIZES,
    Message,
    Setting,
    count_sizes,
    list_settings,
    token_counts,
)
from tuner.sglang.nccl.messages import MessageShape, message_shape, messages

SWEEP = """
name: sizes
engine: {kind: sglang}
model: {target: TARGET, draft: some/draft, algorithm: EAGLE3, tp: 8}
space:
  num_steps: [2, 5]
  draft_tp: [PLACES]
  env: {NCCL_PROTO: [unset, LL], NCCL_ALGO: [unset, Ring], SGLANG_X: [unset, 1]}
workload: {concurrency: [1, 8]}
"""


def loaded(folder: Path, target: str = "nobody/nothing", places: str = "target, 1") -> LoadedSweep:
    return load_sweep_text(folder, SWEEP, TARGET=target, PLACES=places)


def model(folder: Path, **config: object) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_a_pass_sends_its_tokens_for_every_stream(tmp_path: Path) -> None:
    """Kimi-K2.5's 7168 in bf16 are 14 KiB a token."""
    counts = token_counts(loaded(tmp_path).space.points, [1, 8], 8)
    assert counts == {"verify": {3, 6, 24, 48}, "draft": {1, 8}}
    sizes = messages(MessageShape(7168, "bfloat16"), counts)
    assert [(each.tokens, each.bytes) for each in sizes] == [
        (tokens, tokens * 14336) for tokens in (1, 3, 6, 8, 24, 48)
    ]
    assert sizes[1].label() == "verify, 3 tokens (42 KiB)"


def test_a_draft_on_one_gpu_sends_nothing(tmp_path: Path) -> None:
    counts = token_counts(loaded(tmp_path, places="1").space.points, [1], 8)
    assert counts["draft"] == frozenset()


def test_a_draft_on_some_gpus_sends_in_groups_of_them(tmp_path: Path) -> None:
    """Of the same size as the target's, and not the same all-reduce."""
    points = loaded(tmp_path, places="target, 4, 2, 1").space.points
    counts = token_counts(points, [1, 8], 8)
    assert counts["draft"] == counts["draft TP 4"] == counts["draft TP 2"] == {1, 8}
    sizes = messages(MessageShape(8, "float16", 4), counts)
    assert count_sizes(counts) == len(sizes)
    assert [(each.ranks, each.parts, each.tokens) for each in sizes if each.ranks] == [
        (ranks, (f"draft TP {ranks}",), tokens) for ranks in (2, 4) for tokens in (1, 8)
    ]
    assert {each.bytes // each.tokens for each in sizes if each.ranks} == {8}  # the draft's width
    assert sizes[-1].label() == "draft TP 4, 8 tokens (64 B)"
    assert [Message.from_json(each.to_json()) for each in sizes] == list(sizes)
    assert token_counts(points, [1], 4)["draft"] == {1}  # on four of four it is the target's group


def test_equal_sizes_are_measured_once_and_many_are_thinned() -> None:
    both = messages(MessageShape(8, "float32"), {"verify": frozenset({4}), "draft": frozenset({4})})
    assert [each.label() for each in both] == ["verify and draft, 4 tokens (128 B)"]
    many = messages(MessageShape(8, "float16"), {"verify": frozenset(range(1, 65))})
    assert len(many) <= MOST_SIZES
    assert (many[0].tokens, many[-1].tokens) == (1, 64)


def test_the_settings_are_those_of_the_points_without_what_nccl_does_not_read(
    tmp_path: Path,
) -> None:
    found = list_settings(loaded(tmp_path).space.points)
    assert {each.label() for each in found} == {
        "unset",
        "NCCL_PROTO=LL",
        "NCCL_ALGO=Ring",
        "NCCL_ALGO=Ring, NCCL_PROTO=LL",
    }
    assert found[0] == Setting()
    assert Setting.of(Point(env=(("NCCL_PROTO", "LL"), ("SGLANG_X", "1")))) in found


def test_the_shape_is_the_models(tmp_path: Path) -> None:
    inner = {"hidden_size": 7168, "torch_dtype": "bfloat16"}
    sweep = loaded(tmp_path, model(tmp_path / "target", text_config=inner)).sweep
    assert message_shape(sweep, {}, None, None) == MessageShape(7168, "bfloat16")
    assert message_shape(sweep, {}, 64, "float32") == MessageShape(64, "float32")


def test_a_float32_checkpoint_is_served_in_half(tmp_path: Path) -> None:
    """As SGLang does; four bytes would measure messages that no server sends."""
    target = model(tmp_path / "target", hidden_size=64, dtype="float32")
    assert message_shape(loaded(tmp_path, target).sweep, {}, None, None).dtype == "float16"


def test_an_unknown_shape_is_asked_for(tmp_path: Path) -> None:
    sweep = loaded(tmp_path).sweep
    cache = {"HF_HUB_CACHE": str(tmp_path)}
    with pytest.raises(
        UserError, match=r"nobody/nothing is not known \(it is not here\), give --h"
    ):
        message_shape(sweep, cache, None, None)
    with pytest.raises(UserError, match="give --dtype bfloat16 or float16 or float32"):
        message_shape(sweep, cache, 64, None)
    target = model(tmp_path / "target", hidden_size=64, dtype="float8_e4m3fn")
    with pytest.raises(UserError, match="float8_e4m3fn are not known here"):
        message_shape(loaded(tmp_path, target).sweep, {}, None, None)
