"""One prompt, whatever file it comes from."""

from dataclasses import dataclass

from tuner.errors import UserError
from tuner.sweep.shown import no_text


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
