"""Questions with known answers: a wrong number read is a wrong score."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.task_dataset import last_number, load_task, task_hash
from tuner.core.errors import UserError


def written(folder: Path, *lines: str) -> Path:
    (folder / "t.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_gsm8k_is_read_as_it_is_published(tmp_path: Path):
    line = r'{"question": "How many?", "answer": "48/2 = <<48/2=24>>24\n#### 1,072.50"}'
    (question,) = load_task("t.jsonl", written(tmp_path, line))
    assert (question.prompt.id, question.prompt.messages) == ("line-1", (("user", "How many?"),))
    assert question.answer == 1072.5


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 42.", 42),
        ("so $1,200 in all", 1200),
        ("#### -7", -7),
        ("10-4", 4),
        ("x = -4", -4),
        ("0.5%", 0.5),
        ("12, 13, and", 13),
        ("**18**", 18),
        ("no idea", None),
        ("", None),
    ],
)
def test_the_last_number_is_what_was_answered(text: str, number: float | None):
    assert last_number(text) == number


@given(st.integers(-(10**9), 10**9), st.text(alphabet="abc .:*$\n"))
def test_a_number_is_read_whatever_stands_around_it(number: int, around: str):
    assert last_number(f"{around} {number:,} {around}") == number


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"question": "a"}', "are texts"),
        ('{"question": "a", "answer": 3}', "are texts"),
        ('{"question": " ", "answer": "3"}', "empty"),
        ('{"question": "a", "answer": "three"}', "no number in this answer"),
        ('{"question": "a", "answer": "#### x 3 ####"}', "no number in this answer"),
        ('{"question": "a", "answer": "3", "level": "hard"}', "unknown key 'level'"),
        ('{"prompt": "def f", "test": "assert", "entry_point": "f"}', "runs none of that"),
        ("[1]", "not an object"),
        ("nothing", "not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str):
    """Otherwise a task is scored by the rest of it, and nobody knows."""
    good = '{"question": "a", "answer": "3"}'
    with pytest.raises(UserError, match=r"t\.jsonl:2: .*" + words):
        load_task("t.jsonl", written(tmp_path, good, line))


def test_a_missing_or_empty_file_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="No such file"):
        load_task("t.jsonl", tmp_path)
    with pytest.raises(UserError, match="no question in this file"):
        load_task("t.jsonl", written(tmp_path, ""))


def test_a_run_knows_its_task(tmp_path: Path):
    """Scores of two tasks in one run would be held against each other."""
    one, other = (
        load_task("t.jsonl", written(tmp_path, f'{{"question": "a", "answer": "{n}"}}'))
        for n in (3, 4)
    )
    assert task_hash(()) is None
    assert task_hash(one) == task_hash(one) != task_hash(other)
