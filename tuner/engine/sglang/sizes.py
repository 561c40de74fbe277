"""Sizes that a server's log states, as values. SGLang's GB are 2^30 bytes, rounded to 0.01."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d((?: [A-Z]+\d+)*)\] ")
_FIRST = re.compile(r"(?: [A-Z]+0)*")
_WEIGHTS = re.compile(r"Load weight end\..*?type=(\w+).*?avail mem=([\d.]+) GB, mem usage=([\d.]+)")
_BEGIN = re.compile(r"Load weight begin\. avail mem=([\d.]+) GB")
_CACHE = re.compile(
    r"KV Cache is allocated\..*?#tokens: (\d+), K size: ([\d.]+) GB, V size: ([\d.]+) GB"
)
_LATENT = re.compile(r"KV Cache is allocated\..*?#tokens: (\d+), KV size: ([\d.]+) GB")
_CAPTURE = re.compile(r"Capture .*?end\..*?mem usage=([\d.]+) GB")
_BUILT = re.compile(r"Built adaptive runtime state steps=(\d+):.*?mem=([\d.]+)\s*GB")
_END = re.compile(
    r"max_total_num_tokens=(\d+),.*?(?:available_gpu_mem|avail(?:able)? mem)=([\d.]+) GB"
)
_OWN = 3
"""Captures of a launch for several lengths that are its own, the longest's: they come first."""


@dataclass(frozen=True)
class Cache:
    """One model's KV cache."""

    tokens: int
    gib: float


@dataclass(frozen=True)
class Sizes:
    """What the first rank of a launch said, in GiB; None and () for what it did not say."""

    before: float | None = None
    """Free before the target's weights."""
    target: float | None = None
    draft: float | None = None
    """Taken by loading the draft; None without one."""
    caches: tuple[Cache, ...] = ()
    """The target's, then the draft's."""
    captures: tuple[float, ...] = ()
    """Each capture of CUDA graphs, those of further chain lengths left out."""
    lengths: tuple[tuple[int, float], ...] = ()
    """(steps, GiB) of each further chain length of a launch for several."""
    tokens: int | None = None
    """max_total_num_tokens."""
    free: float | None = None
    """When the server was ready."""


def read_sizes(log: Path) -> Sizes:
    """The sizes in a launch's log. Raises OSError."""
    return sizes_of(log.read_text(encoding="utf-8", errors="replace").splitlines())


def sizes_of(lines: Iterable[str]) -> Sizes:
    """The sizes in a log's lines; of several ranks the first's."""
    before: float | None = None
    weights: list[float] = []
    caches: list[Cache] = []
    captures: list[float] = []
    lengths: list[tuple[int, float]] = []
    tokens: int | None = None
    free: float | None = None
    for line in map(_of_first_rank, lines):
        if before is None and (found := _BEGIN.search(line)):
            before = float(found[1])
        elif found := _WEIGHTS.search(line):
            weights.append(float(found[3]))
        elif found := _CACHE.search(line):
            caches.append(Cache(int(found[1]), float(found[2]) + float(found[3])))
        elif found := _LATENT.search(line):
            caches.append(Cache(int(found[1]), float(found[2])))
        elif found := _BUILT.search(line):
            lengths.append((int(found[1]), float(found[2])))
        elif found := _CAPTURE.search(line):
            captures.append(float(found[1]))
        elif found := _END.search(line):
            tokens, free = int(found[1]), float(found[2])
    return Sizes(
        before=before,
        target=weights[0] if weights else None,
        draft=weights[1] if len(weights) > 1 else None,
        caches=tuple(caches[:2]),
        captures=tuple(captures[:_OWN] if lengths else captures),
        lengths=tuple(lengths),
        tokens=tokens,
        free=free,
    )


def _of_first_rank(line: str) -> str:
    """What rank 0 said in the line, or a server of one rank; "" for others'.

    A progress bar may stand before the stamp.
    """
    stamps = list(_STAMP.finditer(line))
    if not stamps or not _FIRST.fullmatch(stamps[-1][1]):
        return ""
    return line[stamps[-1].end() :]
