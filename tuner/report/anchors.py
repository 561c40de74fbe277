"""Names that the parts of a page are linked by."""

import re


class Anchors:
    """Gives each heading an id that no other has; `taken` are those of the page itself."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)

    def new(self, heading: str) -> str:
        """`where-a-cycle-goes`; a number behind it where it is taken."""
        words = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        anchor, again = words, 2
        while anchor in self._taken:
            anchor, again = f"{words}-{again}", again + 1
        self._taken.add(anchor)
        return anchor
