"""`python -m sglang.bench_serving --output-file`: JSONL, one line a measurement.

Format and definitions as in SGLang 0.5.17's and 0.5.23's sglang/benchmark/serving.py:
`output_throughput` is the tokens of successful requests by the wall time; TTFT and TPOT (time after
the first token by the tokens after it) are those of requests, in ms; `accept_length` is the
server's `avg_spec_accept_length`: tokens per verify, bonus included, since the server started.
"""

from collections.abc import Iterator
from dataclasses import replace

from tuner.compare.external.documents import JsonDocument
from tuner.compare.external.record import (
    NO_SPECULATION,
    UNSAID,
    ForeignRecord,
    Percentiles,
    name_configuration,
    prompt_lengths,
    read_window,
)
from tuner.core.errors import NotComparable

TOOL = "sglang.bench_serving"
NOTES = (
    "accept lengths are the server's since its start, warm-up and earlier measurements included",
)


def recognises(found: JsonDocument) -> bool:
    """Whether this is a line of it."""
    return found.has("backend", "dataset_name", "sharegpt_output_len", "max_concurrency")


def read(found: JsonDocument) -> Iterator[ForeignRecord]:
    """Raises NotComparable for an open loop, UserError for a broken line."""
    concurrency = closed_loop(found)
    info = _server_info(found)
    workload = _workload(found)
    speculates, configuration = _configuration(found, info)
    yield replace(
        measured(found, concurrency, workload),
        configuration=configuration,
        speculates=speculates,
        accept_length=found.number("accept_length") or None,
        model=info.text("model_path"),
        version=info.text("version"),
        simulated="simulated" in info,
    )


def measured(found: JsonDocument, concurrency: int, workload: str) -> ForeignRecord:
    """What `vllm bench` writes under the same names with the same definitions, too."""
    seconds = found.needed("duration")
    window = read_window(found, concurrency, seconds)
    return ForeignRecord(
        where=found.where,
        concurrency=concurrency,
        workload=workload,
        configuration=UNSAID,
        speculates=None,
        output_tok_s=throughput(found),
        tokens=found.whole("total_output_tokens"),
        seconds=seconds,
        ttft_ms=percentiles(found, "ttft"),
        tpot_ms=percentiles(found, "tpot"),
        windows=(window,) if window else (),
        prompts=prompt_lengths(window, workload),
    )


def closed_loop(found: JsonDocument) -> int:
    """How many requests were held open. Raises NotComparable where that was not held."""
    rate = found.fields.get("request_rate")
    if rate not in (None, "inf", float("inf")):
        raise NotComparable(
            f"this was sent at a request rate of {rate}; only measurements that hold N requests "
            "open compare: measure with --max-concurrency N and no --request-rate",
            found.where,
        )
    concurrency = found.whole("max_concurrency")
    if not concurrency:
        raise NotComparable(
            "max_concurrency is not set, so all requests were sent at once: measure with "
            "--max-concurrency N",
            found.where,
        )
    return concurrency


def throughput(found: JsonDocument) -> float:
    """tok/s. Raises NotComparable where nothing completed."""
    value = found.needed("output_throughput")
    if value == 0 or found.number("completed") == 0:
        raise NotComparable("no request completed, so there is nothing to compare", found.where)
    return value


def percentiles(found: JsonDocument, name: str) -> Percentiles:
    """p50, p90 and p99 of `ttft` or `tpot`, in ms."""
    keys = (f"median_{name}_ms", f"p90_{name}_ms", f"p99_{name}_ms")
    p50, p90, p99 = (found.number(key) for key in keys)
    return p50, p90, p99


def _server_info(found: JsonDocument) -> JsonDocument:
    """What the server said of itself; of a disaggregated one its first decode server."""
    info = found.inner("server_info")
    return info.objects("decode")[0] if info.fields.get("decode") else info


def _configuration(found: JsonDocument, info: JsonDocument) -> tuple[bool | None, str]:
    length = found.number("accept_length")
    if "speculative_algorithm" not in info:
        return (True, "speculating, settings not in the file") if length else (None, UNSAID)
    if (algorithm := info.text("speculative_algorithm")) is None:
        return False, NO_SPECULATION
    names = ("num_steps", "eagle_topk", "num_draft_tokens")
    numbers = [info.whole(f"speculative_{name}") for name in names]
    return True, f"{algorithm}, {name_configuration(*numbers)}"


def _workload(found: JsonDocument) -> str:
    dataset = found.text("dataset_name") or "unknown"
    names = []
    if dataset.startswith(("random", "generated", "image")):
        names = ["random_input_len", "random_output_len", "random_range_ratio"]
    elif dataset == "sharegpt":
        names = ["sharegpt_output_len"]
    said = [f"{n} {found.fields[n]}" for n in names if found.fields.get(n) is not None]
    return ", ".join([f"dataset {dataset}", *said])
