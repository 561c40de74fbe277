"""Prompt files as the field publishes them: read as they are, wrong ones named by their place."""

import json
from pathlib import Path

import pytest

from tests.config.conftest import BASE, Load
from tuner.config.conversation import Turns
from tuner.config.datasets import PLACEHOLDER
from tuner.config.prompts import Prompts, content_hash, read_prompts
from tuner.config.task_dataset import load_task
from tuner.core.errors import UserError


def said(*turns: str) -> dict[str, object]:
    """ShareGPT's item of a conversation: human, gpt, human, ..."""
    who = ("human", "gpt")
    return {"conversations": [{"from": who[n % 2], "value": x} for n, x in enumerate(turns)]}


def read(folder: Path, *items: object, as_list: bool = False) -> Prompts:
    lines = [json.dumps(item) for item in items]
    text = "[" + ",\n".join(lines) + "]" if as_list else "\n".join(lines) + "\n"
    (folder / "p.json").write_text(text, encoding="utf-8")
    return read_prompts("p.json", folder)


MT_BENCH = {"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": ["r"]}
SPEED_BENCH = {
    "question_id": "4f", "category": "rag", "sub_category": None, "turns": ["a"], "source": "s",
    "src_id": "7", "difficulty": None, "multiturn": False,
}  # fmt: skip
HUMAN_EVAL = {
    "task_id": "HumanEval/0", "prompt": "def f():", "canonical_solution": "", "test": "",
    "entry_point": "f",
}  # fmt: skip

SHAPES = [
    ({"id": "x", **said("a", "b", "c")}, "ShareGPT", ("x", "chat", "a")),
    (
        {"conversation": [{"role": "user", "content": "a"}]},
        "ShareGPT",
        ("line-1", "chat", "a"),
    ),
    (MT_BENCH, "MT-Bench", ("81", "writing", "a")),
    (SPEED_BENCH, "SPEED-Bench", ("4f", "rag", "a")),
    ({"question": "a", "answer": "b #### 3"}, "GSM8K", ("line-1", "math", "a")),
    (HUMAN_EVAL, "HumanEval", ("HumanEval/0", "code", "def f():")),
    ({"prompt": "a", "kind": "k"}, "specbench", ("line-1", "k", "a")),
]


@pytest.mark.parametrize(("item", "shape", "prompt"), SHAPES, ids=[f"{s[1]}" for s in SHAPES])
def test_a_published_file_is_read_as_it_is(
    tmp_path: Path, item: dict[str, object], shape: str, prompt: tuple[str, str, str]
) -> None:
    """Otherwise users convert files before they can measure what they know."""
    found = read(tmp_path, item)
    assert found.read_as is not None
    assert found.read_as.startswith(f"{shape}: 1 prompt ({prompt[1]} 1)")
    (only,) = found.prompts
    assert (only.id, only.kind, only.text) == prompt
    assert read(tmp_path, item, as_list=True).prompts[0].messages == only.messages


def test_the_system_text_goes_along(tmp_path: Path) -> None:
    item = {"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}]}
    assert read(tmp_path, item).prompts[0].messages == (("system", "s"), ("user", "a"))


def test_what_published_conversations_hold_besides_is_counted_not_refused(tmp_path: Path) -> None:
    """ShareGPT as it is published has empty and cut conversations and repeated ids; a refusal
    would make each user mend 90,000 items."""
    items = [
        {"id": "x", **said("a", "b")},
        {"id": "x", **said("c")},
        {"id": "y", **said()},
        {"id": "z", "conversations": [{"from": "gpt", "value": "b"}, *_human("c")]},
        {"id": "v", "conversations": [{"from": "tool", "value": "b"}, *_human("c")]},
        {"id": "u", **said("a\0b")},
        {"id": "w", **said(" ", "b", "c")},
    ]
    found = read(tmp_path, *items, as_list=True)
    assert [prompt.id for prompt in found.prompts] == ["x", "x (item-2)"]
    assert found.read_as is not None
    assert found.read_as.split("; ")[1:] == [
        "1 left out, nobody asks anything (item-3)",
        "1 left out, an answer comes first (item-4)",
        "1 left out, a role before the last question is none that is known (item-5)",
        "1 left out, a text cannot hold the character NUL (\\0), remove it (item-6)",
        "1 left out, the first turn is empty (item-7)",
        "1 repeated id is made unique, ID (PLACE)",
    ]


def test_who_looks_for_what_was_left_out_finds_it(tmp_path: Path) -> None:
    """`90 left out` of a file of 90,000 lines is nothing that anybody can mend."""
    found = read(tmp_path, said("a"), *[said()] * 2, {"id": 1, **said("b")})
    assert "2 left out, nobody asks anything (line-2, line-3)" in (found.read_as or "")
    found = read(tmp_path, *[said()] * 5, said("a"))
    words = "5 left out, nobody asks anything (line-1, line-2, line-3, ...)"
    assert (found.read_as or "").endswith(words)


@pytest.mark.parametrize("turns", ["first", "all"])
@pytest.mark.parametrize(
    ("after", "is_kept"),
    [
        (["gpt", "tool"], True),
        (["tool"], True),
        (["gpt", "tool", "human"], False),
        (["assistant", "user", "claude"], True),
    ],
)
def test_a_role_that_no_request_carries_costs_no_conversation(
    tmp_path: Path, turns: Turns, after: list[str], is_kept: bool
) -> None:
    """A tool's output after the last question is sent to nobody; before it, it would be missed."""
    (tmp_path / "p.json").write_text(
        json.dumps(
            [said("a"), {"conversations": [{"from": f, "value": "b"} for f in ["human", *after]]}]
        )
    )
    found = read_prompts("p.json", tmp_path, turns)
    assert len(found.prompts) == 1 + is_kept
    assert ("left out" in (found.read_as or "")) != is_kept


def _human(text: str) -> list[dict[str, str]]:
    return [{"from": "human", "value": text}]


def test_prompts_without_their_text_are_left_out(tmp_path: Path) -> None:
    """SPEED-Bench is published with a placeholder for over half of its prompts: all alike, they
    would be accepted as nothing real is, and averaged in."""
    masked = {**SPEED_BENCH, "question_id": "5", "turns": [PLACEHOLDER + " FROM THE SOURCE"]}
    found = read(tmp_path, SPEED_BENCH, masked)
    assert len(found.prompts) == 1
    assert "1 left out, the text is not in this file" in (found.read_as or "")
    with pytest.raises(UserError, match=r"p\.json:1: there is no prompt in this file: the text is"):
        read(tmp_path, masked)


WRONG = [
    (MT_BENCH, {"question_id": 82, "turns": "a"}, "'turns' is no list of texts"),
    (MT_BENCH, {"question_id": 82, "turns": []}, "'turns' is no list of texts"),
    (MT_BENCH, {"question_id": 82, "turns": [" "]}, "the first turn is empty"),
    (MT_BENCH, {"question_id": 82, "category": 3, "turns": ["a"]}, "'category' is no text"),
    (MT_BENCH, {"question_id": None, "turns": ["a"]}, "'question_id' is no text and no whole"),
    (MT_BENCH, MT_BENCH, "id '81' is there twice"),
    (said("a"), {"conversations": {}}, "'conversations' is no list"),
    (said("a"), {"conversations": [{"from": "human"}]}, "a turn of 'conversations' has no"),
    (said("a"), {"conversations": ["a"]}, "a turn of 'conversations' is no object"),
    (said("a"), MT_BENCH, "this item has another shape (MT-Bench's) than the first (ShareGPT's)"),
    (said("a"), {"prompt": "b"}, "this item has another shape (specbench's) than the first (Share"),
    ({"prompt": "b"}, said("a"), "this item has another shape (ShareGPT's) than the first (spec"),
    ({"prompt": "b"}, {"question": "a"}, "this item has another shape (GSM8K's) than the first ("),
    (MT_BENCH, {**SPEED_BENCH, "question_id": 81}, "id '81' is there twice"),
    ({"question": "a"}, {"answer": "b"}, "'question' is missing"),
    (HUMAN_EVAL, {"task_id": "x", "prompt": 3}, "'prompt' is no text"),
    ({"prompt": "a"}, 3, "this item is not an object"),
]


@pytest.mark.parametrize(("good", "wrong", "words"), WRONG, ids=[each[2] for each in WRONG])
def test_a_wrong_item_is_named_by_its_line_and_number(
    tmp_path: Path, good: object, wrong: object, words: str
) -> None:
    """A list has its items where they happen to be: the line alone would not find it."""
    with pytest.raises(UserError) as caught:
        read(tmp_path, good, wrong, as_list=True)
    assert str(caught.value).startswith(f"{tmp_path}/p.json:2: item 2: {words}")
    with pytest.raises(UserError) as caught:
        read(tmp_path, good, wrong)
    words = words.replace("this item", "this line")
    assert str(caught.value).startswith(f"{tmp_path}/p.json:2: {words}")


LISTS = [
    ("[\n\n", ":3: item 1: this is not JSON"),
    ('[\n{"prompt": "a"}', ":2: item 1: there is no comma"),
    ('[\n{"prompt": "a"},\n]', ":3: item 2: this is not JSON"),
    ('[{"prompt": "a"}\n{"prompt": "b"}]', ":2: item 1: there is no comma"),
    ('[{"prompt": "a"}]\n{"prompt": "b"}', ":2: there is more after"),
    ("[]", ":1: there is no prompt"),
    ('[{"prompt": "a",\n"prompt": "b"}]', ":1: item 1: key 'prompt' is there twice"),
    ("[" * 100_000, ":1: item 1: this is not JSON"),
    ('[{"instruction": "a"}]', ":1: item 1: no prompt is found in this"),
]


@pytest.mark.parametrize(("text", "words"), LISTS, ids=[each[1] for each in LISTS])
def test_a_broken_list_is_named_by_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(UserError) as caught:
        read_prompts("p.json", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/p.json{words}")


def test_a_run_knows_its_prompts_whatever_file_held_them(tmp_path: Path) -> None:
    """A resumed run with other prompts must be refused; the same ones as a list are the same."""
    ours = {"id": "81", "kind": "writing", "prompt": "a"}
    hashes = {content_hash(read(tmp_path, item).prompts) for item in (MT_BENCH, ours)}
    hashes.add(content_hash(read(tmp_path, MT_BENCH, as_list=True).prompts))
    assert len(hashes) == 1
    assert content_hash(read(tmp_path, {**MT_BENCH, "category": "k"}).prompts) not in hashes


def test_the_sweep_says_how_its_prompts_were_read(load: Load, tmp_path: Path) -> None:
    """Otherwise a file that was taken for another shape is found out after the run."""
    read(tmp_path, MT_BENCH)
    loaded = load(BASE + "workload: {prompts: p.json}\n")
    assert loaded.prompts_read == "MT-Bench: 1 prompt (writing 1), the first turn of each"
    assert load().prompts_read is None


def test_questions_may_be_a_list_too(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[{"question": "a", "answer": "3"},\n{"question": "b"}]')
    with pytest.raises(UserError, match=r"t\.json:2: item 2: id, question and answer are texts"):
        load_task("t.json", tmp_path)


def test_a_kind_that_a_shape_does_not_have_is_not_silently_ignored(tmp_path: Path) -> None:
    """Somebody who sorted conversations by kind waits for a table by kind."""
    sorted_out = {"kind": "support", **said("a")}
    found = read(tmp_path, {**said("b"), "id": "x"}, sorted_out)
    assert found.read_as is not None
    assert found.read_as.endswith(
        "'kind' is ignored in 1 of them: this shape has no kinds, write specbench's with messages "
        "and kind"
    )
    found = read(tmp_path, {**MT_BENCH, "kind": "support"})
    assert found.read_as is not None and "the kind of this shape is its" in found.read_as
    own = read(tmp_path, {"prompt": "a", "kind": "support"})
    assert own.read_as is not None and "ignored" not in own.read_as
