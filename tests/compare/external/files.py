"""Results of other benchmarks, in their formats. The numbers are made up but for one file's.

bench_serving.jsonl beside this was written by SGLang 0.5.17's `sglang.bench_serving
--output-details` against `specbench simulate`; only the server's many settings and the answers
were taken out of it.
"""

import json
from pathlib import Path
from typing import Any

REAL = Path(__file__).parent / "bench_serving.jsonl"
LATENCIES = {
    "mean_ttft_ms": 31.0, "median_ttft_ms": 30.0, "std_ttft_ms": 2.0, "p99_ttft_ms": 45.0,
    "mean_tpot_ms": 5.1, "median_tpot_ms": 5.0, "std_tpot_ms": 0.2, "p99_tpot_ms": 6.0,
}  # fmt: skip


def jsonl(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects))
    return path


def bench_serving(speculates: bool | None = True, **changed: Any) -> dict[str, Any]:
    """A line as of SGLang 0.5.17, sglang/benchmark/serving.py, without --output-details.

    `speculates` None: the server's settings are not in the file.
    """
    info = {
        "model_path": "/models/example/target",
        "version": "0.5.17",
        "speculative_algorithm": "EAGLE3" if speculates else None,
        "speculative_num_steps": 3 if speculates else None,
        "speculative_eagle_topk": 1 if speculates else None,
        "speculative_num_draft_tokens": 4 if speculates else None,
    }
    return {
        "tag": None, "backend": "sglang", "dataset_name": "sharegpt",
        "request_rate": float("inf"), "max_concurrency": 1, "sharegpt_output_len": 100,
        "random_input_len": 1024, "random_output_len": 1024, "random_range_ratio": 0.0,
        "server_info": None if speculates is None else info,
        "duration": 10.0, "completed": 8, "total_input_tokens": 160, "total_output_tokens": 1000,
        "output_throughput": 100.0, **LATENCIES, "p90_ttft_ms": 40.0, "p90_tpot_ms": 5.5,
        "accept_length": 2.5 if speculates else None, "max_concurrent_requests": 1,
        **changed,
    }  # fmt: skip


def bench_speculative(steps: int = 3, **changed: Any) -> dict[str, Any]:
    """A line as of SGLang's scripts/playground/bench_speculative.py, commit 01d2a3d0d57b."""
    return {
        "batch_size": 1, "steps": steps, "topk": min(steps, 1),
        "num_draft_tokens": steps + 1 if steps else 0, "acc_length": 2.5 if steps else 1.0,
        "step_time": 0.0125, "speed": 200.0, "completion_tokens": 512.0, **changed,
    }  # fmt: skip


def vllm(speculates: bool = True, **changed: Any) -> dict[str, Any]:
    """As of vLLM's vllm/benchmarks/serve.py, commit 009e6d4a1cd6, without --save-detailed."""
    speculation = {
        "spec_decode_acceptance_rate": 50.0,
        "spec_decode_acceptance_length": 2.5,
        "spec_decode_num_drafts": 400,
        "spec_decode_draft_tokens": 1200,
        "spec_decode_accepted_tokens": 600,
        "spec_decode_per_position_acceptance_rates": [0.8, 0.5, 0.2],
    }
    return {
        "date": "20261129-170000", "endpoint_type": "vllm", "backend": "vllm", "label": None,
        "model_id": "example/target", "tokenizer_id": "example/target", "num_prompts": 8,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 1, "duration": 10.0,
        "completed": 8, "failed": 0, "total_input_tokens": 160, "total_output_tokens": 1000,
        "request_throughput": 0.8, "request_goodput": None, "output_throughput": 100.0,
        "total_token_throughput": 116.0, **(speculation if speculates else {}), **LATENCIES,
        **changed,
    }  # fmt: skip


def specforge(**changed: Any) -> dict[str, Any]:
    """As of SpecForge's benchmarks/bench_eagle3.py, commit 1d666725eff3."""

    def measured(steps: int, speed: float, length: float) -> dict[str, Any]:
        metrics = {
            "latency": 10.0, "output_throughput": speed, "accept_length": length,
            "accuracy": None, "num_questions": 80, "num_valid_predictions": 0,
            "categorical_performance": None,
        }  # fmt: skip
        return {
            "batch_size": 1, "steps": steps, "topk": min(steps, 1),
            "num_draft_tokens": steps + 1 if steps else 0, "metrics": [metrics], "num_samples": 80,
        }  # fmt: skip

    benchmark = [measured(0, 90.0, 1.0), measured(3, 120.0, 2.6)]
    return {"model": "example/draft", "mtbench": benchmark, **changed}
