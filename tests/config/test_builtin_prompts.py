"""The built-in prompts: a sweep that names no file of its own depends on every one of them."""

import re
from importlib import resources
from pathlib import Path

import pytest

from tuner.config.prompts import BUILTIN_KINDS, Prompt, load_prompts, pick

HERE = Path()
LONGEST_BYTES = 4096  # with a tokenizer of one token a byte, half of a context of 8192


@pytest.fixture(scope="module")
def mixed() -> tuple[Prompt, ...]:
    return load_prompts("builtin:mixed", HERE)


def test_mixed_holds_every_kind_in_full(mixed: tuple[Prompt, ...]) -> None:
    """A missing or unreadable file would take one kind of traffic out of a mixed sweep."""
    assert len(mixed) == 80
    counts = {kind: sum(prompt.kind == kind for prompt in mixed) for kind in BUILTIN_KINDS}
    assert counts == dict.fromkeys(BUILTIN_KINDS, 20)


@pytest.mark.parametrize("kind", BUILTIN_KINDS)
def test_each_kind_loads_alone(kind: str) -> None:
    """`builtin:KIND` would fail, or measure another kind than the one it names."""
    prompts = load_prompts(f"builtin:{kind}", HERE)
    assert [prompt.id for prompt in prompts] == [f"{kind}-{n:02d}" for n in range(1, 21)]
    assert {prompt.kind for prompt in prompts} == {kind}


def test_ids_and_texts_are_unique_across_kinds(mixed: tuple[Prompt, ...]) -> None:
    """Samples could not be traced to their prompt; a repeated text would hit the prefix cache."""
    assert len({prompt.id for prompt in mixed}) == len(mixed)
    assert len({prompt.text for prompt in mixed}) == len(mixed)
    assert len({prompt.text[:120] for prompt in mixed}) == len(mixed)


def test_conversations_are_ones_that_chat_templates_accept(mixed: tuple[Prompt, ...]) -> None:
    """Many templates refuse roles out of turn: the request would fail on some models only."""
    for prompt in mixed:
        roles = [role for role, _ in prompt.messages]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"], prompt.id
        assert all(content == content.strip() != "" for _, content in prompt.messages), prompt.id


def test_chat_covers_system_prompts_and_several_turns() -> None:
    """Without them a chat sweep would leave out what most served conversations look like."""
    chat = load_prompts("builtin:chat", HERE)
    assert sum(prompt.messages[0][0] == "system" for prompt in chat) >= 3
    assert sum(len(prompt.messages) >= 3 for prompt in chat) >= 3


def test_code_fences_are_closed(mixed: tuple[Prompt, ...]) -> None:
    """An open fence makes a model continue the code instead of answering."""
    for prompt in mixed:
        for _, content in prompt.messages:
            assert content.count("```") % 2 == 0, prompt.id


def test_passages_to_summarise_are_long_and_fit_small_contexts(mixed: tuple[Prompt, ...]) -> None:
    """Short passages would not exercise prefill; too long ones would be rejected by the server."""
    for prompt in mixed:
        words = len(re.findall(r"\S+", prompt.text))
        assert len(prompt.text.encode()) <= LONGEST_BYTES, prompt.id
        assert words >= 15, prompt.id
        if prompt.kind == "summarise":
            assert 250 <= words <= 500, prompt.id


def test_files_are_lines_of_plain_utf8() -> None:
    """A byte order mark, carriage returns or control characters would change the prompt sent."""
    folder = resources.files("tuner.config") / "prompts"
    for kind in BUILTIN_KINDS:
        text = (folder / f"{kind}.jsonl").read_text(encoding="utf-8")
        assert text.endswith("\n")
        assert not re.search(r"[\x00-\x09\x0b-\x1f\ufeff\ufffd]", text), kind


def test_eight_requests_see_all_kinds(mixed: tuple[Prompt, ...]) -> None:
    """A short mixed run would report the speed of one kind as the speed of the mix."""
    for seed in range(5):
        assert {prompt.kind for prompt in pick(mixed, 8, seed)} == set(BUILTIN_KINDS)
