"""A task whose answers are known: questions with a number each, in GSM8K's shape."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config.conversation import Prompt, require_text
from tuner.config.datasets import GSM8K
from tuner.config.prompts import content_hash
from tuner.config.yaml_document import shortened
from tuner.core.errors import UserError
from tuner.core.json_items import read_items

SHAPE = 'write {"question": "...", "answer": "... #### 42"}'
MARK = "####"
"""What GSM8K writes in front of an answer's number."""
_NUMBER = re.compile(r"(?:(?<!\w)-)?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class Question:
    """A prompt and the number that is right."""

    prompt: Prompt
    answer: float


def last_number(text: str) -> float | None:
    """The last number of a text, by which answers are scored; None where there is none."""
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "")) if found else None


def load_task(name: str, beside: Path) -> tuple[Question, ...]:
    """The questions of a JSONL file or a JSON list, relative to the folder `beside`.

    Raises UserError: with FILE:LINE for what is in the file, without a place where the name itself
    is wrong.
    """
    path, questions, seen = beside / name, list[Question](), set[str]()
    for item in read_items(path, "use a JSONL file of questions"):
        try:
            question = _question(item.value, item.name)
            if question.prompt.id in seen:
                raise UserError(f"id '{shortened(question.prompt.id)}' is there twice")
        except UserError as error:
            raise item.wrong(error.message) from error
        seen.add(question.prompt.id)
        questions.append(question)
    if not questions:
        raise UserError(f"there is no question in this file, {SHAPE}", f"{path}:1")
    return tuple(questions)


def _question(data: object, name: str) -> Question:
    """A question of an item; `name` is its id without one. Raises UserError without a place."""
    if not isinstance(data, dict):
        raise UserError(f"this line is not an object, {SHAPE}")
    if {"prompt", "test"} <= set(data):
        raise UserError(
            "this is HumanEval's shape, which is scored by running what the model writes; "
            f"specbench runs none of that, {SHAPE}"
        )
    if unknown := sorted(set(data) - {"id", "question", "answer"}):
        raise UserError(f"unknown key '{shortened(unknown[0])}', {SHAPE}, with id if you like")
    answer = data.get("answer")
    if not (isinstance(data.get("question"), str) and isinstance(answer, str)):
        raise UserError(f"id, question and answer are texts, {SHAPE}")
    prompt = replace(GSM8K.read(data, name), kind="task")
    require_text(answer)
    right = last_number(answer.rpartition(MARK)[2])
    if right is None:
        raise UserError(f"there is no number in this answer, {SHAPE}")
    return Question(prompt, right)


def task_hash(task: Sequence[Question]) -> str | None:
    """A hash of what is asked and what is right; None without a task."""
    if not task:
        return None
    asked = [each.prompt for each in task]
    right = Prompt("answers", "task", tuple(("right", repr(each.answer)) for each in task))
    return content_hash([*asked, right])
