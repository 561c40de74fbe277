"""Doubts about speeds: too little measured, noise, a busy client, overload, cold starts."""

import math
from collections.abc import Iterator

import numpy as np

from tuner.core.formatting import short
from tuner.metrics import request_rate
from tuner.metrics.request_rate import client_lateness, is_overloaded
from tuner.metrics.statistics import complete, output_tok_s
from tuner.metrics.warnings.warning import CheckResult, Level

MIN_TOKENS = 1000
MAX_HALF_WIDTH = 0.03
MAX_CLIENT_CPU_SHARE = 0.7
MIN_LATENESS_MS, MAX_LATENESS = 5.0, 0.1
"""Of the 90th percentile; the second as a share of the median TTFT."""
MAX_COLD_DIFFERENCE = 0.10
MAX_PREFILL = 0.5


def too_few_tokens(level: Level) -> Iterator[CheckResult]:
    """Less than any speed can be told from."""
    tokens = level.metrics["completion_tokens"]
    if tokens < MIN_TOKENS:
        yield CheckResult(
            "too few tokens",
            "note",
            f"{tokens} tokens are few to judge by",
            "raise workload.requests, workload.output_tokens or measure.repeats until there are "
            f"{MIN_TOKENS} and more",
        )


def noisy(level: Level) -> Iterator[CheckResult]:
    """One window does not show noise: its interval is the spread between prompts."""
    value, low, high = (level.metrics[f"output_tok_s{end}"] for end in ("", "_low", "_high"))
    if len(level.windows) < 2 or not value or low is None or high is None:
        return
    half_width = (high - low) / 2 / value
    if half_width > MAX_HALF_WIDTH:
        yield CheckResult(
            "noisy",
            "doubt",
            f"the 95 % interval of output_tok_s is ±{half_width:.1%} wide over "
            f"{len(level.windows)} windows",
            "raise measure.repeats, make windows longer, and see that nothing else uses the GPUs "
            "or the client's CPU",
        )


def client_bound(level: Level) -> Iterator[CheckResult]:
    """The load client's one thread is busy."""
    share, what = level.metrics["client_cpu_share"], "concurrency"
    if level.context.request_rate is not None:
        what = "rate"
    if share is not None and share > MAX_CLIENT_CPU_SHARE:
        yield CheckResult(
            "client-bound",
            "doubt",
            f"the load client used {share:.0%} of the one core it can use, so it may be what is "
            "measured",
            f"lower the {what} or run specbench on a faster or idle CPU",
        )


def late_client(level: Level) -> Iterator[CheckResult]:
    """Requests at a rate that a busy client sends too late, which a mean CPU share hides."""
    late, first = client_lateness(level.windows), level.metrics["ttft_ms_p50"]
    if not late or not first:
        return
    worst = 1000 * float(np.percentile(late, 90))
    if worst > MIN_LATENESS_MS and worst > MAX_LATENESS * first:
        yield CheckResult(
            "late client",
            "doubt",
            f"a tenth of the requests for which a stream was free were sent {worst:.0f} ms and "
            f"more after they came, beside a time to the first token of {first:.0f} ms: the load "
            "client was busy",
            "lower the rate or run specbench on a faster or idle CPU",
        )


def overloaded(level: Level) -> Iterator[CheckResult]:
    """Requests come faster than the server answers them."""
    asked = level.context.request_rate
    if asked is None or not is_overloaded(level.metrics):
        return
    came, served, growth = (level.metrics[name] for name in request_rate.NAMES)
    if level.context.served >= came:
        return
    at_cap = request_rate.reached_cap(level.metrics)
    turns = level.metrics[request_rate.TURNS] or 1.0
    what = "requests" if turns == 1 else f"conversations (of {turns:.3g} requests)"
    yield CheckResult(
        "overload",
        "doubt",
        f"{short(asked)} {what} a second were asked for, {short(came)} came and {short(served)} "
        f"were answered: the queue grew, the last third took {growth:.1f} times as long as the "
        "first, so latencies depend on how long the window was, and decode speed is that of a full "
        "server",
        f"{'raise workload.concurrency, at which most of the waiting was, or ' if at_cap else ''}"
        f"ask for less than {short(served, 3)} a second (workload.request_rate)",
    )


def few_arrivals(level: Level) -> Iterator[CheckResult]:
    """Too few to see a queue grow: then nothing is said of an overload."""
    if level.context.request_rate is None or level.metrics[request_rate.CAME] is not None:
        return
    turns = level.metrics[request_rate.TURNS] or 1.0
    what = "requests" if turns == 1 else "conversations"
    most = max((sum(s.due is not None for s in each.samples) for each in level.windows), default=0)
    if most < request_rate.MIN_ARRIVALS:
        yield CheckResult(
            "few arrivals",
            "note",
            f"{most} {what} came in a window: too few to tell whether the server kept up",
            f"raise workload.requests to {math.ceil(request_rate.MIN_ARRIVALS * turns)} and more",
        )


def cold_cache(level: Level) -> Iterator[CheckResult]:
    """The first window against the others: against each of them, since another odd one is noise."""
    speeds = [speed for each in level.windows if (speed := output_tok_s([each])) is not None]
    rest = output_tok_s(level.windows[1:])
    if rest is None or len(speeds) < len(level.windows):
        return
    first, *others = speeds
    difference = first / rest - 1
    if first / min(others) - 1 < -MAX_COLD_DIFFERENCE:
        yield CheckResult(
            "cold cache",
            "note",
            f"the first window was {-difference:.0%} slower than the others: kernels and caches "
            "were not warm before it",
            "raise measure.warmup_requests",
        )
    elif first / max(others) - 1 > MAX_COLD_DIFFERENCE:
        yield CheckResult(
            "slowing down",
            "note",
            f"the first window was {difference:.0%} faster than the others: something else uses "
            "the machine, or it gets warm",
            "see the checks of GPU clocks, and measure again on an idle machine",
        )


def prefill_bound(level: Level) -> Iterator[CheckResult]:
    """Most of the time goes by before the first token, which speculation does not touch."""
    whole = [sample for sample in complete(level.windows) if sample.chunk_times]
    total = sum(sample.ended - sample.sent for sample in whole)
    waiting = sum(sample.chunk_times[0] - sample.sent for sample in whole)
    if total > 0 and waiting / total > MAX_PREFILL:
        yield CheckResult(
            "mostly prefill",
            "note",
            f"{waiting / total:.0%} of the requests' time is before their first token (prefill and "
            "queueing), so output_tok_s hardly tells of decoding",
            "raise workload.output_tokens, or look at decode_tok_s (search.objective.metric)",
        )
