"""One prompt, whatever file it comes from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tuner.config.yaml_document import no_text
from tuner.core.errors import UserError


@dataclass(frozen=True)
class Prompt:
    """One prompt: a conversation of role and content pairs, the last one the user's."""

    id: str
    kind: str
    messages: tuple[tuple[str, str], ...]
    follows: bool = False
    """It goes on where the prompt before it ended: sent when that one has been answered."""

    @property
    def text(self) -> str:
        """The contents alone, for models without a chat template."""
        return "\n\n".join(content for _, content in self.messages)

    def checked(self) -> "Prompt":
        """Itself. Raises UserError, without a place, where it says nothing or cannot be sent."""
        if not any(content.strip() for _, content in self.messages):
            raise UserError("this prompt is empty")
        if not self.kind.strip() or not self.id.strip():
            raise UserError("id and kind are words, write some or leave them out")
        if any(len(each.splitlines()) > 1 for each in (self.id, self.kind)):
            raise UserError("id and kind are one line each, remove the line breaks")
        require_text(self.id, self.kind, *(content for _, content in self.messages))
        return self


def require_text(*texts: str) -> None:
    """Raises UserError, without a place, for what no request can hold."""
    for text in texts:
        if (why := no_text(text)) is not None:
            raise UserError(why)


Turns = Literal["first", "all"]


def first_turn(prompt: Prompt) -> Prompt:
    """A conversation up to its first user's turn, that included."""
    roles = [role for role, _ in prompt.messages]
    return replace(prompt, messages=prompt.messages[: roles.index("user") + 1])


def has_answers(prompt: Prompt, before: int | None = None) -> bool:
    """Whether every turn but the last is answered, or the one of that number, from 1."""
    roles = [role for role, _ in prompt.messages if role != "system"]
    asked = [place for place, role in enumerate(roles) if role == "user"]
    numbers = range(1, len(asked)) if before is None else [before] if before < len(asked) else []
    return all(roles[asked[n - 1] + 1] == "assistant" for n in numbers)


def without_answers(prompt: Prompt) -> list[tuple[str, str]]:
    """A conversation without its answers."""
    return [each for each in prompt.messages if each[0] != "assistant"]


def up_to_turn(prompt: Prompt, number: int) -> Prompt:
    """The conversation up to that turn of the user, from 1, under its own id."""
    asked = [place for place, (role, _) in enumerate(prompt.messages) if role == "user"]
    return replace(prompt, messages=prompt.messages[: asked[number - 1] + 1])


def with_answer(prompt: Prompt, number: int, text: str) -> Prompt:
    """The conversation with `text` as the answer to that turn, from 1."""
    upto = len(up_to_turn(prompt, number).messages)
    said = (*prompt.messages[:upto], ("assistant", text), *prompt.messages[upto:])
    return replace(prompt, messages=said)


def why_not_all(prompt: Prompt, answered: bool = True) -> str | None:
    """Why a conversation cannot be sent turn by turn; None where it can. Without `answered` its
    answers are still to be written."""
    before, turn = "", 0
    for role, content in prompt.messages:
        if role == "system":
            continue
        if role == "user":
            turn += 1
            if not content.strip():
                return f"turn {turn} is empty"
            if before == "user" and answered:
                return f"turn {turn} has no answer before it"
        before = role
    return None if turn else "nobody asks anything"


def to_send(
    picked: Sequence[Prompt], turns: Turns, requests: int, streams: int
) -> tuple[Prompt, ...]:
    """What one window sends of conversations in the order picked.

    `first`: as many prompts as `requests`, each as it is. `all`: each user's turn with what the
    file has before it, whole conversations, until there are both as many turns as `requests` and
    as many conversations as `streams`. What fewer requests take is how that of more begins.
    """
    if turns == "first":
        return tuple(picked[:requests])
    sent: list[Prompt] = []
    for count, prompt in enumerate(picked, start=1):
        sent += _each_turn(prompt)
        if len(sent) >= requests and count >= streams:
            break
    return tuple(sent)


def _each_turn(prompt: Prompt) -> Iterator[Prompt]:
    """A prompt for each user's turn, under ID#1, ID#2, ...; all but the first follow."""
    turn = 0
    for place, (role, _) in enumerate(prompt.messages, start=1):
        if role == "user":
            turn += 1
            yield replace(
                prompt,
                id=f"{prompt.id}#{turn}",
                messages=prompt.messages[:place],
                follows=turn > 1,
            )
