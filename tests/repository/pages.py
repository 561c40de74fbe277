"""The pages that users read, taken apart: YAML blocks and commands, each with its place."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

PAGES = (Path("README.md"), Path("CONTRIBUTING.md"), *sorted(Path("docs").glob("*.md")))
PROGRAMS = ("specbench", "make", "python", "python3", "git", "eval", "pip", "pytest")
"""First words of a line that is a command; `.venv/bin/` is left out."""
_BEFORE = re.compile(r"^(?:[A-Z_]+=\S+\s+)+|^\.venv/bin/")
_SUBSTITUTION = re.compile(r"\$\(([^()]+)\)")


@dataclass(frozen=True)
class Code:
    """A block of code, or words between backticks."""

    page: Path
    line: int
    language: str
    text: str
    inline: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command as a page has it."""

    code: Code
    text: str

    @property
    def words(self) -> list[str]:
        """Split as a shell does, comment, redirection and settings before it left out."""
        text = re.split(r"\s(?:\||&&|>)\s", self.text)[0]
        return shlex.split(_BEFORE.sub("", text), comments=True)

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


def codes(page: Path) -> Iterator[Code]:
    """Every piece of code of a page."""
    parser = MarkdownIt("commonmark").enable("table")
    for token in parser.parse(page.read_text(encoding="utf-8")):
        line = (token.map or [0])[0] + 1
        if token.type in ("fence", "code_block"):
            yield Code(page, line, token.info.strip(), token.content)
        for child in token.children or ():
            if child.type == "code_inline":
                yield Code(page, line, "", child.content, inline=True)


def commands() -> list[Command]:
    """Every command of every page, in order; those in `$(...)` by themselves."""
    found = []
    for page in PAGES:
        for code in codes(page):
            if code.language in ("", "bash", "sh", "console"):
                found += [Command(code, text) for text in _commands_of(code)]
    return found


def yaml_blocks() -> list[Code]:
    """Fenced YAML, and indented blocks that begin with a section of a sweep file."""
    found = []
    for page in PAGES:
        for code in codes(page):
            section = re.match(r"(engine|model|server|space|workload|search|measure):", code.text)
            if code.language == "yaml" or (section and not code.language and not code.inline):
                found.append(code)
    return found


def _commands_of(code: Code) -> Iterator[str]:
    text = code.text.replace("\\\n", " ")
    for line in text.splitlines():
        stripped = line.strip()
        yield from _SUBSTITUTION.findall(stripped)
        first = _BEFORE.sub("", stripped).split(" ")[0]
        alone = code.inline and " " not in _BEFORE.sub("", stripped)
        if first in PROGRAMS and not alone and "=" not in first:
            yield stripped
