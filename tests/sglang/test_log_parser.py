"""Sizes are read from a server's log as it states them, of its first rank."""

from pathlib import Path

import pytest

from tuner.sglang.log_parser import Cache, Sizes, parse_sizes, read_sizes

H200 = Path("results/h200_draft_tp/20261129-210746/logs")


def test_a_server_with_a_draft() -> None:
    """Otherwise an estimate would be held against the wrong model's figure."""
    assert read_sizes(H200 / "0002.log") == Sizes(
        before=138.21,
        target=7.48,
        draft=2.14,
        caches=(Cache(1122005, 68.48), Cache(1122005, 4.28)),
        captures=(0.09, 0.04, 0.06),
        lengths=(),
        tokens=1122005,
        free=55.28,
    )


def test_a_server_without_a_draft_has_none() -> None:
    found = read_sizes(H200 / "0000.log")
    assert (found.target, found.draft, len(found.caches)) == (7.48, None, 1)


def test_a_launch_for_several_lengths_keeps_its_own_graphs_apart() -> None:
    found = read_sizes(Path("results/smollm2_warm/20261129-233105/logs/0001.log"))
    assert found.captures == (0.11, 0.04, 0.06)
    assert found.lengths == ((1, 0.1), (2, 0.14), (3, 0.16), (4, 0.14), (5, 0.16), (6, 0.16))


@pytest.mark.parametrize("rank", ["TP1", "DP1 TP0", "TP10"])
def test_other_ranks_are_not_read(rank: str) -> None:
    line = "Load weight end. elapsed=1 s, type=A, avail mem=1.00 GB, mem usage=2.00 GB."
    assert parse_sizes([f"[2026-11-29 20:00:00 {rank}] {line}"]) == Sizes()
    assert parse_sizes([f"[2026-11-29 20:00:00 TP0] {line}"]).target == 2.0


def test_the_words_of_older_releases_and_of_compressed_caches() -> None:
    """0.5.8's words; MLA has one size for keys and values."""
    stamp = "[2026-01-01 00:00:00] "
    lines = [
        "Load weight begin. avail mem=78.58 GB",
        "Load weight end. type=DeepseekV3ForCausalLM, dtype=torch.bfloat16, avail mem=63.40 GB, "
        "mem usage=15.18 GB.",
        "KV Cache is allocated. #tokens: 1000, KV size: 1.50 GB",
        "Capture cuda graph end. Time elapsed: 5.30 s. mem usage=0.80 GB. avail mem=60.00 GB.",
        "max_total_num_tokens=1000, chunked_prefill_size=8192, available_gpu_mem=60.00 GB",
    ]
    found = parse_sizes(stamp + line for line in lines)
    assert (found.before, found.target, found.tokens, found.free) == (78.58, 15.18, 1000, 60.0)
    assert (found.caches, found.captures) == ((Cache(1000, 1.5),), (0.8,))


def test_a_log_that_says_nothing_gives_nothing() -> None:
    assert parse_sizes(["", "Traceback (most recent call last):"]) == Sizes()
