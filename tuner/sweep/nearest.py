"""The word that was probably meant."""

from collections.abc import Sequence
from difflib import get_close_matches


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """`did you mean X?`, or the whole list where nothing is close."""
    if close := get_close_matches(word, known, n=1, cutoff=0.6):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(known)}" if known else "remove it"
