"""What is printed of other people's texts: one line that does nothing to the terminal."""

import pytest

from tuner.core.errors import EngineFailure, Failure, UserError, one_line, printable

STEERING = [
    *("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\r", "\x08", "\u202e", "\u2066"),
    *("\x00", "\x85"),
]


@pytest.mark.parametrize("text", STEERING)
def test_an_error_s_message_steers_no_terminal(text: str) -> None:
    """A server's answer or a file's name could clear the screen, or set the title to a command."""
    failure = EngineFailure(Failure.CLIENT, f"it said {text}no", f"a\n\tb {text}c\n")
    refused = UserError(f"it is {text}no", f"a{text}b.yaml:1")
    assert str(failure).isprintable() and str(refused).isprintable()
    assert failure.log_tail.startswith("a\n\tb ")
    assert printable(failure.log_tail, but="\n\t") == failure.log_tail
    for again in (failure, refused):  # as another process makes it
        kind, words = again.__reduce__()
        assert str(kind(*words)) == str(again)  # type: ignore[operator, misc]


def test_words_of_any_language_stay() -> None:
    text = "日本語 é 🙂 \\ 'x' \"y\""
    assert one_line(f" {text}\n") == text
    assert printable("a\tb\nc", but="\n\t") == "a\tb\nc"
