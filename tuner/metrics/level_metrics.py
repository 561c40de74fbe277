"""Formulas of the metrics of one concurrency level, from its raw samples.

Counts are summed before they are divided; no figure is a mean of ratios. What was not measured is
None. Latencies, decode speed and cycle time are those of complete requests; tokens and throughput
count whatever arrived.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any

import numpy as np

from tuner.metrics.samples import GpuTrace, RequestSample, Window
from tuner.metrics.statistics import (
    Interval,
    decode_time,
    decode_tok_s,
)

PERCENTILES = (50, 90, 99)
LENGTHS = (0, 512, 2048, 8192, 32768)
"""Prompt tokens at which the parts of `by_length` begin."""


def by_kind(
    windows: Sequence[Window], num_steps: int | None = None, eagle_topk: int | None = None
) -> dict[str, dict[str, Any]]:
    """For each kind of prompt: its requests, decode speed of a stream and how well it is drafted
    for. Without the point's `num_steps` and `eagle_topk` there is no `accept_rate`."""
    kinds: dict[str, list[RequestSample]] = {}
    for window in windows:
        for sample in window.samples:
            kinds.setdefault(sample.kind, []).append(sample)
    return {kind: _of_some(kinds[kind], num_steps, eagle_topk) for kind in sorted(kinds)}


def by_length(
    windows: Sequence[Window], num_steps: int | None = None, eagle_topk: int | None = None
) -> dict[str, dict[str, Any]]:
    """The same by prompt tokens as the engine counts them, with `ttft_ms_p50`, the shorter first:
    `0-511`, `512-2047`, ..., `32768-`. Requests whose count is not known are left out."""
    parts: list[list[RequestSample]] = [[] for _ in LENGTHS]
    for window in windows:
        for sample in window.samples:
            if sample.prompt_tokens is not None:
                parts[bisect_right(LENGTHS, sample.prompt_tokens) - 1].append(sample)
    ends = [*(str(length - 1) for length in LENGTHS[1:]), ""]
    names = [f"{begin}-{end}" for begin, end in zip(LENGTHS, ends, strict=True)]
    return {
        name: {
            **_of_some(samples, num_steps, eagle_topk),
            "ttft_ms_p50": latencies([s for s in samples if s.error is None])["ttft_ms_p50"],
        }
        for name, samples in zip(names, parts, strict=True)
        if samples
    }


def _of_some(
    samples: Sequence[RequestSample], num_steps: int | None, eagle_topk: int | None
) -> dict[str, Any]:
    """What a part of the requests can tell by itself."""
    return {
        "requests": len(samples),
        "decode_tok_s": decode_tok_s([s for s in samples if s.error is None]),
        "accept_length": accept_length(samples),
        "accept_rate": accept_rate(samples, num_steps, eagle_topk),
        "accept_rate_first": accept_rate_first(samples),
    }


def accept_length(samples: Sequence[RequestSample]) -> float | None:
    """Tokens per verify, bonus included: 1 + correct drafts / verifies, from the counts."""
    verifies, correct = _verifies(samples), _correct(samples)
    return 1 + correct / verifies if verifies else None


def accept_rate(
    samples: Sequence[RequestSample], num_steps: int | None, eagle_topk: int | None
) -> float | None:
    """Accepted of all drafted tokens; None but for chains."""
    verifies = _verifies(samples)
    if not verifies or not num_steps or eagle_topk != 1:
        return None
    return _correct(samples) / (verifies * num_steps)


def accept_rate_first(samples: Sequence[RequestSample]) -> float | None:
    """Return the share of verifies that accepted one draft or more."""
    rates = rates_by_position(samples, None)
    return rates[0] if rates else None


def _verifies(samples: Iterable[RequestSample]) -> int:
    return sum(sample.spec.verify_ct for sample in samples if sample.spec)


def _correct(samples: Iterable[RequestSample]) -> int:
    return sum(sample.spec.correct_drafts for sample in samples if sample.spec)


def rates_by_position(
    samples: Sequence[RequestSample], num_steps: int | None
) -> list[float] | None:
    """P(accepted >= j) for j = 1..num_steps, or up to what was ever accepted without num_steps.

    None where one of the requests that speculated does not show its verifies one by one: a part
    of them would be a biased part.
    """
    counts: list[int] = []
    for sample in samples:
        if sample.spec is None or sample.spec.verify_ct == 0:
            continue
        histogram = accept_histogram(sample)
        if histogram is None:
            return None
        counts += [0] * (len(histogram) - len(counts))
        for accepted, times in enumerate(histogram):
            counts[accepted] += times
    if not sum(counts):
        return None
    last = num_steps if num_steps is not None else len(counts) - 1
    return [sum(counts[position:]) / sum(counts) for position in range(1, last + 1)]


def accept_histogram(sample: RequestSample) -> tuple[int, ...] | None:
    """Verifies by accepted drafts, as reported or from the chunks; None where neither shows it."""
    if sample.spec is None:
        return None
    return sample.spec.histogram or _histogram_from_chunks(sample)


def _histogram_from_chunks(sample: RequestSample) -> tuple[int, ...] | None:
    """Verifies by accepted drafts, for releases that do not report it (0.5.8).

    Works where each chunk after the first token's is one verify. The last one may have been cut
    at the length asked for; what it accepted follows from the sum.
    """
    spec = sample.spec
    if spec is None or len(sample.chunk_tokens) - 1 != spec.verify_ct or spec.verify_ct == 0:
        return None
    accepted = [tokens - 1 for tokens in sample.chunk_tokens[1:-1]]
    accepted.append(spec.correct_drafts - sum(accepted))
    if sample.chunk_tokens[0] != 1 or accepted[-1] < sample.chunk_tokens[-1] - 1:
        return None
    return tuple(accepted.count(k) for k in range(max(accepted) + 1))


def cycle_ms(whole: Sequence[RequestSample], num_steps: int | None) -> float | None:
    """Mean time of a draft-verify cycle; of a token without speculation.

    A first chunk of more than one token holds verifies from before the clock starts; they are
    taken off in proportion to its tokens.
    """
    speculating = [sample for sample in whole if sample.spec and sample.spec.verify_ct]
    if num_steps is not None and not speculating:
        return None
    seconds = cycles = 0.0
    for sample in speculating or whole:
        tokens, time = decode_time(sample)
        if tokens == 0:
            continue
        seconds += time
        if sample.spec and speculating:
            cycles += sample.spec.verify_ct * tokens / (sample.tokens - 1)
        else:
            cycles += tokens
    return seconds / cycles * 1000 if cycles and seconds > 0 else None


def latencies(whole: Sequence[RequestSample]) -> dict[str, float | None]:
    """TTFT, TPOT, ITL, end to end and the wait to be sent. ITL: a chunk's gap, shared evenly by its
    tokens. Of requests that come at a rate, TTFT and end to end begin when they came."""
    decodes = [decode_time(sample) for sample in whole]
    gaps = [np.diff(np.array(sample.chunk_times)) for sample in whole]
    tokens = [np.array(sample.chunk_tokens[1:], dtype=int) for sample in whole]
    per_token = [np.repeat(gap / count, count) for gap, count in zip(gaps, tokens, strict=True)]
    figures: dict[str, list[float] | np.ndarray[Any, np.dtype[np.float64]]] = {
        "ttft": [s.chunk_times[0] - s.began for s in whole if s.chunk_times],
        "tpot": [time / count for count, time in decodes if count],
        "itl": np.concatenate([np.zeros(0), *per_token]),
        "e2e": [sample.ended - sample.began for sample in whole],
        "queue": [sample.sent - sample.due for sample in whole if sample.due is not None],
    }
    metrics: dict[str, float | None] = {}
    for name, values in figures.items():
        known = len(values) > 0
        ranks = np.percentile(values, PERCENTILES) * 1000 if known else [None] * len(PERCENTILES)
        for percent, value in zip(PERCENTILES, ranks, strict=True):
            metrics[f"{name}_ms_p{percent}"] = None if value is None else float(value)
    return metrics


def engine_figure(samples: Sequence[RequestSample], name: str) -> float | None:
    """The engine's own ratio, weighted by verifies, which its counts are divided by."""
    pairs = [
        (sample.spec.verify_ct, float(sample.engine_figures[name]))
        for sample in samples
        if sample.spec and isinstance(sample.engine_figures.get(name), int | float)
    ]
    verifies = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / verifies if verifies else None


def goodput(
    whole: Sequence[RequestSample], wall: float, limits: Mapping[str, float]
) -> float | None:
    """Requests a second that each kept every limit by itself, whatever its percentile.

    ITL's limits are no request's own and are left out; None without others.
    """
    asked = {name: limit for name, limit in limits.items() if not name.startswith("itl")}
    if not asked or wall <= 0:
        return None

    def keeps(sample: RequestSample, name: str, limit: float) -> bool:
        count, time = decode_time(sample)
        seconds = {
            "ttft": sample.chunk_times[0] - sample.began if sample.chunk_times else math.inf,
            "tpot": time / count if count else 0.0,
            "e2e": sample.ended - sample.began,
        }
        return seconds[name.partition("_")[0]] * 1000 <= limit

    good = sum(all(keeps(each, *pair) for pair in asked.items()) for each in whole)
    return good / wall


def cached_share(samples: Sequence[RequestSample]) -> float | None:
    """Prompt tokens that the prefix cache had; None where the engine does not say."""
    told = [
        (each.cached_tokens, each.prompt_tokens)
        for each in samples
        if each.cached_tokens is not None and each.prompt_tokens
    ]
    prompts = sum(whole for _, whole in told)
    return sum(cached for cached, _ in told) / prompts if prompts else None


def sum_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


IDLE = 0x1
"""nvml.h, nvmlClocksEventReasonGpuIdle: the GPU has nothing to do, whatever its clock."""
REASONS = {
    "gpu_power_cap_share": 0x4,  # SwPowerCap: normal under load
    "gpu_hw_slowdown_share": 0x8,  # HwSlowdown: any of the next two, or another
    "gpu_sw_thermal_share": 0x20,
    "gpu_hw_thermal_share": 0x40,
    "gpu_power_brake_share": 0x80,  # the power supply's signal
}
"""Metric -> bit of nvml.h, nvmlClocksEventReasons, whose share of the readings it is."""


def gpu_figures(windows: Sequence[Window]) -> dict[str, float | int | None]:
    """A level's metrics from its windows' traces; every one None where nothing was read.

    Clocks in MHz, temperature in °C. Shares are of readings under load, of all GPUs together.
    `gpu_power_w`, `gpu_energy_j` and `energy_j_per_token` (J per completion token) are sums over
    the server's GPUs; energy is None unless every window and GPU has it.
    """
    traces = [trace for window in windows for trace in window.gpus or ()]
    busy = [clock for trace in traces for clock in _busy_clocks(trace)]
    warm = [each for trace in traces for each in trace.temperature_c if each is not None]
    energy = _energy(windows)
    tokens = sum(sample.tokens for window in windows for sample in window.samples)
    return {
        "gpus": max((len(window.gpus or ()) for window in windows), default=0) or None,
        "gpu_clock_mhz": median(busy) if busy else None,
        "gpu_clock_mhz_min": min(busy, default=None),
        "gpu_temperature_c_max": max(warm, default=None),
        "gpu_power_w": _power(windows),
        **_shares(traces),
        "gpu_energy_j": energy,
        "energy_j_per_token": energy / tokens if energy is not None and tokens else None,
    }


def clocks_by_gpu(windows: Sequence[Window]) -> dict[str, float]:
    """Each GPU's median SM clock under load, MHz; without those that were not read."""
    busy: dict[str, list[int]] = {}
    for trace in (trace for window in windows for trace in window.gpus or ()):
        busy.setdefault(trace.gpu, []).extend(_busy_clocks(trace))
    return {gpu: median(clocks) for gpu, clocks in busy.items() if clocks}


def _busy_clocks(trace: GpuTrace) -> Iterator[int]:
    for index in trace.loaded:
        clock, reasons = trace.sm_mhz[index], trace.reasons[index]
        if clock is not None and not (reasons or 0) & IDLE:
            yield clock


def _shares(traces: Sequence[GpuTrace]) -> dict[str, float | None]:
    known = [
        bits
        for trace in traces
        for index in trace.loaded
        if (bits := trace.reasons[index]) is not None
    ]
    return {
        name: sum(bool(bits & bit) for bits in known) / len(known) if known else None
        for name, bit in REASONS.items()
    }


def _power(windows: Sequence[Window]) -> float | None:
    """Watts of all GPUs together, the mean over windows."""
    sums = []
    for window in windows:
        each = [
            [watts for index in trace.loaded if (watts := trace.power_w[index]) is not None]
            for trace in window.gpus or ()
        ]
        if each and all(each):
            sums.append(sum(map(mean, each)))
    return mean(sums) if sums else None


def _energy(windows: Sequence[Window]) -> float | None:
    spent = [trace.energy for window in windows for trace in window.gpus or ()]
    known = [joules for joules in spent if joules is not None]
    whole = bool(windows) and all(window.gpus for window in windows) and len(known) == len(spent)
    return sum(known) if whole else None


def speedup_figures(ratio: Interval | None) -> dict[str, float | None]:
    """Return the metrics of a speed-up: its value and the ends of its 95 % interval."""
    value, low, high = (None,) * 3 if ratio is None else (ratio.value, ratio.low, ratio.high)
    return {"speedup": value, "speedup_low": low, "speedup_high": high}
