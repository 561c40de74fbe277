"""The requests of a file, one by one, as samples: what an interval needs."""

import hashlib

from tuner.errors import UserError
from tuner.foreign.documents import Document
from tuner.measure.samples import RequestSample, Window
from tuner.measure.statistics import output_tok_s

DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
"""What `--output-details` (SGLang) and `--save-detailed` (vLLM) add; seconds and tokens."""

_ROUNDING = 0.01
"""Share by which a file's throughput may differ from that of its requests."""


def window_of(found: Document, concurrency: int, seconds: float) -> Window | None:
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


def prompts_of(window: Window | None, workload: str) -> str | None:
    """Equal for prompts of the same lengths in the same order; None where they are not listed."""
    if window is None:
        return None
    ids = " ".join(sample.prompt_id for sample in window.samples)
    return hashlib.sha256(f"{workload}\n{ids}".encode()).hexdigest()[:16]
