"""What a file of another benchmark says, in specbench's units and definitions."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.compare.external.documents import JsonDocument
from tuner.config.point import Point
from tuner.core.errors import UserError
from tuner.metrics.samples import RequestSample, Window
from tuner.metrics.statistics import output_tok_s

NO_SPECULATION = "no speculation"
UNSAID = "as served (the file does not say whether it speculates)"

Percentiles = tuple[float | None, float | None, float | None]
"""p50, p90 and p99, ms; None for one that the file lacks."""
NONE: Percentiles = (None, None, None)


@dataclass(frozen=True)
class ForeignRecord:
    """One measurement: a server's configuration at one concurrency. None: not in the file, or
    there under another definition."""

    where: str
    """FILE:LINE."""
    concurrency: int
    workload: str
    """What was sent, as far as the file says."""
    configuration: str
    speculates: bool | None
    """None where the file does not say."""
    output_tok_s: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    """Of the whole measurement; with `tokens` what `output_tok_s` is made of."""
    ttft_ms: Percentiles = NONE
    tpot_ms: Percentiles = NONE
    accept_length: float | None = None
    accept_rate: float | None = None
    accept_rate_by_position: tuple[float, ...] | None = None
    windows: tuple[Window, ...] = ()
    """The requests one by one, where the file has them."""
    prompts: str | None = None
    """Equal for two records that sent prompts of the same lengths in the same order."""
    model: str | None = None
    version: str | None = None
    simulated: bool = False
    """The server said that it plays one."""


@dataclass(frozen=True)
class ForeignRun:
    """The records of one workload in one file. At most one of each configuration a concurrency."""

    path: Path
    tool: str
    workload: str
    records: tuple[ForeignRecord, ...]
    notes: tuple[str, ...]
    """What was left out of the file, and what has another definition there."""

    @property
    def levels(self) -> list[int]:
        """Concurrencies that were measured."""
        return sorted({each.concurrency for each in self.records})

    @property
    def model(self) -> str | None:
        """The target as the file names it."""
        return next((each.model for each in self.records if each.model), None)


def name_configuration(steps: int | None, topk: int | None, tokens: int | None) -> str:
    """As specbench's own tables name it."""
    if not steps and not tokens:
        return NO_SPECULATION
    return Point(steps or None, topk or None, tokens or None).label()


def pooled(records: Sequence[ForeignRecord]) -> ForeignRecord:
    """Repeats of one measurement as one: tokens and seconds are added up.

    Percentiles and rates cannot be pooled without the requests, so they are given up.
    """
    last = records[-1]
    if len(records) == 1:
        return last
    tokens = [each.tokens for each in records if each.tokens is not None]
    seconds = [each.seconds for each in records if each.seconds is not None]
    whole = len(tokens) == len(seconds) == len(records)
    windows = [each.windows for each in records]
    same = len({each.prompts for each in records}) == 1
    return replace(
        last,
        where=f"{records[0].where} and {len(records) - 1} more",
        output_tok_s=sum(tokens) / sum(seconds) if whole and sum(seconds) > 0 else None,
        tokens=sum(tokens) if whole else None,
        seconds=sum(seconds) if whole else None,
        ttft_ms=NONE,
        tpot_ms=NONE,
        accept_rate=None,
        accept_rate_by_position=None,
        accept_length=None,
        windows=tuple(w for each in windows for w in each) if same and all(windows) else (),
    )


DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
"""What `--output-details` (SGLang) and `--save-detailed` (vLLM) add; seconds and tokens."""

_ROUNDING = 0.01
"""Share by which a file's throughput may differ from that of its requests."""


def read_window(found: JsonDocument, concurrency: int, seconds: float) -> Window | None:
    """The measurement with its requests; None where the file has none, or others than those that
    its `output_throughput` is of: an interval would then be around another figure.

    A request's chunks are told as two: the first token, and the rest at the end. Requests are told
    apart by their place in the file, the order in which they were sent.
    """
    if not found.has(*DETAILS):
        return None
    columns = [found.numbers(name) for name in ("input_lens", "output_lens", "ttfts")]
    gaps, errors = found.lists_of_numbers("itls"), found.fields["errors"]
    if not isinstance(errors, list) or len({len(errors), len(gaps), *map(len, columns)}) != 1:
        raise UserError(f"{', '.join(DETAILS)} differ in length: restore the file", found.where)
    samples = tuple(
        _sample(place, int(sent), int(tokens), ttft, sum(each), str(error or ""))
        for place, (sent, tokens, ttft, each, error) in enumerate(
            zip(*columns, gaps, errors, strict=True)
        )
    )
    window = Window(concurrency, seconds, 0.0, samples)
    made, said = output_tok_s([window]), found.number("output_throughput")
    if made is None or said is None or abs(made - said) > _ROUNDING * said:
        return None
    return window


def _sample(
    place: int, prompt: int, tokens: int, ttft: float, rest: float, error: str
) -> RequestSample:
    failed = error or ("" if tokens else "no tokens")
    return RequestSample(
        prompt_id=f"{place}:{prompt}",
        kind="",
        sent=0.0,
        chunk_times=() if failed else (ttft, ttft + rest)[: min(tokens, 2)],
        chunk_tokens=() if failed else (1, tokens - 1)[: min(tokens, 2)],
        ended=ttft + rest,
        finish_reason=None,
        error=failed or None,
        timed_out=False,
        prompt_tokens=prompt,
        engine_tokens=None,
        requested_tokens=tokens,
        spec=None,
    )


def prompt_lengths(window: Window | None, workload: str) -> str | None:
    """Equal for prompts of the same lengths in the same order; None where they are not listed."""
    if window is None:
        return None
    ids = " ".join(sample.prompt_id for sample in window.samples)
    return hashlib.sha256(f"{workload}\n{ids}".encode()).hexdigest()[:16]
