"""Doubts from holding the client's figures against what the engine itself counted."""

from collections.abc import Iterator

from tuner.metrics.level_metrics import accept_length
from tuner.metrics.samples import Window
from tuner.metrics.statistics import decode_time
from tuner.metrics.warnings.warning import CheckResult, Level

MAX_REQUEST_DIFFERENCE = 0.02
"""Of a figure that the engine sends with each request, from the same counts."""
MAX_SERVER_DIFFERENCE = 0.10
"""Of the server's own average, which misses up to `--decode-log-interval` (40) steps."""
MIN_STEPS = 400
"""Verify steps of a window, from which on the missing ones are a tenth at most."""
FASTER = 1.5
"""Of the engine's last steps, whose prompts may be easy, against as many streams as were open, each
as fast as the client's fastest."""


def disagreement(level: Level) -> Iterator[CheckResult]:
    """The first way in which engine and client differ by more than their definitions do."""
    found = _requests(level) or next(filter(None, map(_window, level.windows)), None)
    found = found or _throughput(level)
    if found is not None:
        words, remedy = found
        yield CheckResult("engine and client disagree", "doubt", words, remedy)


def _requests(level: Level) -> tuple[str, str] | None:
    """SGLang's `spec_accept_length` is a request's tokens by its verifies."""
    said: float = 0.0
    tokens = verifies = 0
    for sample in level.samples:
        figure = sample.engine_figures.get("spec_accept_length")
        if sample.spec and sample.spec.verify_ct and isinstance(figure, int | float):
            said += figure * sample.spec.verify_ct
            tokens += sample.tokens
            verifies += sample.spec.verify_ct
    if not tokens or abs(said / tokens - 1) <= MAX_REQUEST_DIFFERENCE:
        return None
    return (
        f"by its spec_accept_length the engine made {said / verifies:.2f} tokens a verify, the "
        f"client received {tokens / verifies:.2f}: tokens were lost, or counted twice",
        "see the check `token counts` and the server's log; trust neither figure before they agree",
    )


def _window(window: Window) -> tuple[str, str] | None:
    """The server's average since the window began; of one rank, as ranks have no weights."""
    said = () if window.engine is None else window.engine.accept_lengths
    client = accept_length(window.samples)
    verifies = sum(sample.spec.verify_ct for sample in window.samples if sample.spec)
    if len(said) != 1 or said[0] is None or client is None:
        return None
    if verifies < MIN_STEPS * window.concurrency:
        return None
    if abs(said[0] / client - 1) <= MAX_SERVER_DIFFERENCE:
        return None
    return (
        f"the server's own accept length is {said[0]:.2f} over a window, by the counts of its "
        f"requests it is {client:.2f}: others may have sent requests meanwhile",
        "see that nobody else uses the server, and look at the accept len of its log",
    )


def _throughput(level: Level) -> tuple[str, str] | None:
    """Streams that arrive slower than the engine decodes; the other way round proves nothing."""
    speeds = (decode_time(sample) for sample in level.samples if sample.error is None)
    fastest = max((tokens / seconds for tokens, seconds in speeds if seconds > 0), default=0.0)
    if not fastest:
        return None
    for window in level.windows:
        known = [each for each in (window.engine.throughputs if window.engine else ()) if each]
        most = fastest * min(window.concurrency, len(window.samples))
        if sum(known) > FASTER * most:
            return (
                f"the engine's last steps made {sum(known):.0f} tok/s, at most {most:.0f} tok/s "
                "can have reached the client: something between them holds tokens back",
                "see the check `client-bound`, --stream-interval and proxies between the two",
            )
    return None


def silent_ranks(level: Level) -> Iterator[CheckResult]:
    """Data-parallel ranks whose counters the server leaves out."""
    for window in level.windows:
        counters = window.engine
        if counters is None or counters.ranks < 2:
            continue
        telling = counters.throughputs
        if level.context.num_steps is not None:
            telling = counters.accept_lengths
        silent = counters.ranks - sum(each is not None for each in telling)
        if silent > 0:
            yield CheckResult(
                "silent ranks",
                "note",
                f"{silent} of {counters.ranks} data-parallel ranks have no counters after a window "
                "(too few requests or steps came to them), so the server's own averages are those "
                "of a part; specbench's are of all requests",
                "measure at a concurrency that gives each rank requests, and for longer",
            )
            return
