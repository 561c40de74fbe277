"""specbench's client as an entrant: one window, its figures as one line of JSON.

python -m benchmarks.client_overhead.own URL CONCURRENCY REQUESTS TOKENS
"""

import json
import sys
from statistics import mean

from benchmarks.client_overhead.entrants import PROMPT_TOKENS
from tuner.loadgen.client import Load, run_window
from tuner.metrics.samples import Request
from tuner.metrics.statistics import complete, decode_time, output_tok_s


def main() -> None:
    """Exits with what is wrong where a request failed."""
    url, concurrency, count, tokens = sys.argv[1], *map(int, sys.argv[2:])
    words = [f"w{index}" for index in range(PROMPT_TOKENS)]
    requests = [Request(f"p{i}", "chat", text=" ".join([*words, str(i)])) for i in range(count)]
    window = run_window(url, requests, Load(concurrency, tokens, keep="ids and text"))
    whole = complete([window])
    if len(whole) < count:
        sys.exit(next(sample.error for sample in window.samples if sample.error) or "failed")
    decoding = [decode_time(sample) for sample in whole]
    said = {
        "tok_s": output_tok_s([window]),
        "ttft_ms": 1000 * mean(sample.chunk_times[0] - sample.sent for sample in whole),
        # Where all of an answer came in one read there is no time between its tokens.
        "tpot_ms": 1000 * mean(s / t if t else 0.0 for t, s in decoding),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
