"""The shapes that prompt files have in the field, told apart by an item's keys.

Each reads one JSON object as a prompt: a whole conversation, up to the last turn of the user. Keys
that say nothing of the prompt are not looked at, but in specbench's own shape, where a misspelt key
would go unnoticed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.config.conversation import Prompt
from tuner.config.yaml_document import shortened
from tuner.core.errors import UserError

Data = Mapping[str, Any]

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""What SPEED-Bench ships in place of texts that it may not pass on."""

_USER = ("human", "user")
_ASSISTANT = ("gpt", "chatgpt", "assistant", "model", "bing", "bard", "claude")


class LeftOutError(Exception):
    """An item that is no mistake of the user's and no prompt either; the message says why."""


@dataclass(frozen=True)
class DatasetShape:
    """A shape of prompt files."""

    name: str
    right: str
    """An item of it, for messages."""
    read: Callable[[Data, str], Prompt]
    """An item's prompt; the text is its id where it has none. Raises UserError without a place,
    LeftOutError."""
    ids_repeat: bool = False
    """Published files have some ids twice."""
    asks_only: bool = False
    """Its items have no answers; `workload.turns: all` has them written by a server."""
    kinds: str = ""
    """What is said where an item has a `kind` all the same; "" where that is what is read."""
    in_turns: bool = True
    """An item is a conversation, of which `workload.turns: first` takes the first turn."""


def detect_shape(data: Data) -> DatasetShape:
    """The shape of a file whose first item this is. Raises UserError, without a place, for none."""
    if "conversations" in data or "conversation" in data:
        return SHAREGPT
    if "turns" in data:
        return SPEED_BENCH if {"sub_category", "src_id", "multiturn"} & set(data) else MT_BENCH
    if "prompt" in data or "messages" in data:
        return HUMAN_EVAL if "task_id" in data else OWN
    if "question" in data:
        return GSM8K
    known = ", ".join(f"{each.right} ({each.name})" for each in SHAPES)
    raise UserError(f"no prompt is found in this, write {known}")


def _text(data: Data, key: str, right: str) -> str:
    """A text of an item. Raises UserError without a place."""
    if not isinstance(data.get(key), str):
        raise UserError(f"'{key}' is {_kind_of(data, key)}, write {right}")
    return str(data[key])


def _kind_of(data: Data, key: str) -> str:
    return "missing" if key not in data else "no text"


def _identity(data: Data, key: str, name: str) -> str:
    """An item's id: a text or a whole number. Raises UserError without a place."""
    found = data.get(key, name)
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise UserError(f"'{key}' is no text and no whole number, put it in quotes")
    return str(found)


def _own(data: Data, name: str) -> Prompt:
    shape = f"write {OWN.right} or " + '{"messages": [{"role": "user", "content": "..."}]}'
    if unknown := sorted(set(data) - {"id", "kind", "prompt", "messages"}):
        wrong = shortened(unknown[0])
        raise UserError(f"unknown key '{wrong}', {shape}, with id and kind if you like")
    identity, kind = data.get("id", name), data.get("kind", "other")
    if not isinstance(identity, str) or not isinstance(kind, str):
        raise UserError("id and kind are texts, put them in quotes")
    messages = data.get("messages", [{"role": "user", "content": data.get("prompt")}])
    if ("prompt" in data) == ("messages" in data) or not isinstance(messages, list) or not messages:
        raise UserError(f"a prompt has either prompt or messages, {shape}")
    pairs = []
    for message in messages:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise UserError(f"a message has role and content, {shape}")
        role, content = message["role"], message["content"]
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise UserError(f"role is system, user or assistant, content is text, {shape}")
        pairs.append((role, content))
    return Prompt(identity, kind, tuple(pairs)).checked()


def _sharegpt(data: Data, name: str) -> Prompt:
    right = f"write {SHAREGPT.right}"
    said = data.get("conversations", data.get("conversation"))
    if not isinstance(said, list):
        raise UserError(f"'conversations' is no list, {right}")
    messages = [_message(each, right) for each in said]
    while messages and messages[-1][0] != "user":
        messages.pop()  # no request comes after the last answer
    if not messages:
        raise LeftOutError("nobody asks anything")
    if any(not role for role, _ in messages):
        raise LeftOutError("a role before the last question is none that is known")
    roles = [role for role, _ in messages if role != "system"]
    if roles[0] == "assistant":
        raise LeftOutError("an answer comes first")
    if not dict(reversed(messages))["user"].strip():
        raise LeftOutError("the first turn is empty")
    prompt = Prompt(_identity(data, "id", name), "chat", tuple(messages))
    try:
        return prompt.checked()
    except UserError as error:
        raise LeftOutError(error.message) from error


def _message(data: Any, right: str) -> tuple[str, str]:
    """Role and content; the role is "" where it is none of the three."""
    if not isinstance(data, dict):
        raise UserError(f"a turn of 'conversations' is no object, {right}")
    who, what = data.get("from", data.get("role")), data.get("value", data.get("content"))
    if not isinstance(who, str) or not isinstance(what, str):
        raise UserError(f"a turn of 'conversations' has no 'from' or no 'value' as text, {right}")
    who = who.lower()
    roles = {**dict.fromkeys(_USER, "user"), **dict.fromkeys(_ASSISTANT, "assistant")}
    return roles.get(who, "system" if who == "system" else ""), what


def _turns(data: Data, name: str) -> Prompt:
    right = f"write {MT_BENCH.right}"
    turns = data.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(x, str) for x in turns):
        raise UserError(f"'turns' is no list of texts, {right}")
    if any(turn.startswith(PLACEHOLDER) for turn in turns):
        raise LeftOutError(
            "the text is not in this file, SPEED-Bench's own script (prepare_data.py of "
            "specdec_bench) puts it there"
        )
    kind = data.get("category") or "chat"
    if not isinstance(kind, str):
        raise UserError(f"'category' is no text, {right}")
    if not turns[0].strip():
        raise UserError(f"the first turn is empty, {right}")
    asked = tuple(("user", turn) for turn in turns)  # the file has no answers
    return Prompt(_identity(data, "question_id", name), kind, asked).checked()


def _gsm8k(data: Data, name: str) -> Prompt:
    question = _text(data, "question", GSM8K.right)
    return Prompt(_identity(data, "id", name), "math", (("user", question),)).checked()


def _human_eval(data: Data, name: str) -> Prompt:
    prompt = _text(data, "prompt", HUMAN_EVAL.right)
    return Prompt(_identity(data, "task_id", name), "code", (("user", prompt),)).checked()


NO_KINDS = "this shape has no kinds, write specbench's with messages and kind"
BY_CATEGORY = "the kind of this shape is its 'category'"
OWN = DatasetShape("specbench", '{"prompt": "..."}', _own, in_turns=False)
SHAREGPT = DatasetShape(
    "ShareGPT",
    '{"conversations": [{"from": "human", "value": "..."}]}',
    _sharegpt,
    ids_repeat=True,
    kinds=NO_KINDS,
)
MT_BENCH = DatasetShape(
    "MT-Bench",
    '{"question_id": 81, "category": "writing", "turns": ["..."]}',
    _turns,
    asks_only=True,
    kinds=BY_CATEGORY,
)
SPEED_BENCH = DatasetShape("SPEED-Bench", MT_BENCH.right, _turns, asks_only=True, kinds=BY_CATEGORY)
GSM8K = DatasetShape("GSM8K", '{"question": "..."}', _gsm8k, kinds=NO_KINDS, in_turns=False)
HUMAN_EVAL = DatasetShape(
    "HumanEval",
    '{"task_id": "...", "prompt": "..."}',
    _human_eval,
    kinds=NO_KINDS,
    in_turns=False,
)
SHAPES = (OWN, SHAREGPT, MT_BENCH, GSM8K, HUMAN_EVAL)
"""Those that are shown; SPEED-Bench's items are MT-Bench's."""
