"""The load clients that are held against each other: how each is told the load, and what it says.

Each speaks to its own server in the form it is made for, and is left as it comes, but for what
makes the loads equal: a closed loop with the same streams, requests and tokens, and no warm-up.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
CLIENTS = CHECKOUT / ".venv-clients"
SGLANG = CHECKOUT / ".venv-sglang" / "python-0.5.23"
TOKENIZER = CLIENTS / "tokenizer"
PROMPT_TOKENS = 16
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "VLLM_NO_USAGE_STATS": "1"}


@dataclass(frozen=True)
class Load:
    """A closed loop."""

    concurrency: int
    requests: int
    tokens: int
    """Of each answer."""


@dataclass(frozen=True)
class Figures:
    """What a client says of a load. Means over requests; TPOT is without the first token."""

    tok_s: float
    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True)
class Entrant:
    """A client."""

    name: str
    route: str
    program: Path
    package: str
    command: Callable[[str, Load, Path], list[str]]
    """Its words after the program, for a URL, a load and an empty folder for what it writes."""
    read: Callable[[Path], Figures]
    """Its figures, from what it left in that folder; standard output is `stdout` there."""
    incremental: bool = False
    """The server sends only what is new."""
    env: dict[str, str] = field(default_factory=dict)

    def version(self) -> str | None:
        """The package's version; None where it is not installed."""
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        if not self.program.exists():
            return None
        done = subprocess.run(
            [str(self.python), "-c", code], capture_output=True, text=True, check=False
        )
        return done.stdout.split()[-1] if done.returncode == 0 else None

    @property
    def python(self) -> Path:
        beside = self.program.parent / "python"
        return beside if beside.exists() else self.program


def own(incremental: bool) -> Entrant:
    """specbench's client, as `tuner.loadgen.client` has it."""

    def command(url: str, load: Load, _: Path) -> list[str]:
        words = [url, str(load.concurrency), str(load.requests), str(load.tokens)]
        return ["-m", "benchmarks.client_overhead.own", *words]

    def read(folder: Path) -> Figures:
        return Figures(**json.loads((folder / "stdout").read_text()))

    name = "specbench, incremental" if incremental else "specbench"
    env = {"PYTHONPATH": str(CHECKOUT)}
    python = Path(sys.executable)
    return Entrant(name, "/generate", python, "sglang-specbench", command, read, incremental, env)


def bench_serving(backend: str, route: str) -> Entrant:
    """SGLang's bench_serving."""

    def command(url: str, load: Load, folder: Path) -> list[str]:
        return [
            *("-m", "sglang.benchmark.serving", "--backend", backend, "--base-url", url),
            *("--model", "played", "--tokenizer", str(TOKENIZER), "--dataset-name", "random-ids"),
            *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(load.tokens)),
            *("--random-range-ratio", "1", "--num-prompts", str(load.requests)),
            *("--max-concurrency", str(load.concurrency), "--warmup-requests", "0"),
            *("--disable-tqdm", "--output-file", str(folder / "result.json")),
        ]

    def read(folder: Path) -> Figures:
        said = json.loads((folder / "result.json").read_text().splitlines()[-1])
        return Figures(said["output_throughput"], said["mean_ttft_ms"], said["mean_tpot_ms"])

    return Entrant(f"bench_serving {backend}", route, SGLANG, "sglang", command, read, env=QUIET)


def vllm() -> Entrant:
    """`vllm bench serve`."""

    def command(url: str, load: Load, folder: Path) -> list[str]:
        return [
            *("-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai"),
            *("--base-url", url, "--endpoint", "/v1/completions", "--model", "played"),
            *("--tokenizer", str(TOKENIZER), "--dataset-name", "random", "--ignore-eos"),
            *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(load.tokens)),
            *("--num-prompts", str(load.requests), "--max-concurrency", str(load.concurrency)),
            *("--ready-check-timeout-sec", "0", "--disable-tqdm", "--save-result"),
            *("--result-dir", str(folder), "--result-filename", "result.json"),
        ]

    def read(folder: Path) -> Figures:
        said = json.loads((folder / "result.json").read_text())
        return Figures(said["output_throughput"], said["mean_ttft_ms"], said["mean_tpot_ms"])

    python = CLIENTS / "vllm" / "bin" / "python"
    return Entrant("vllm bench serve", "/v1/completions", python, "vllm", command, read, env=QUIET)


def guidellm() -> Entrant:
    """guidellm, whose TPOT counts the first token in: its inter-token latency is what others call
    TPOT."""

    def command(url: str, load: Load, folder: Path) -> list[str]:
        prompts = folder / "prompts.jsonl"
        with prompts.open("w") as file:
            for index in range(load.requests):
                words = " ".join(f"w{(index + at) % 1000}" for at in range(PROMPT_TOKENS))
                line = {"prompt": words, "output_tokens_count": load.tokens}
                file.write(json.dumps(line) + "\n")
        backend = f"kind=openai_http,target={url},model=played,request_format=/v1/completions"
        return [
            *("run", "--backend", backend, "--disable-console-interactive"),
            *("--profile", f"kind=concurrent,streams={load.concurrency}"),
            *("--constraint", f"kind=max_requests,count={load.requests}"),
            *("--tokenizer", f"kind=hf_auto,model={TOKENIZER}"),
            *("--data", f"kind=json_file,path={prompts}"),
            *("--output", f"kind=json,path={folder / 'result.json'}"),
        ]

    def read(folder: Path) -> Figures:
        (run,) = json.loads((folder / "result.json").read_text())["benchmarks"]

        def mean(name: str) -> float:
            return float(run["metrics"][name]["successful"]["mean"])

        speed = mean("output_tokens_per_second")
        return Figures(speed, mean("time_to_first_token_ms"), mean("inter_token_latency_ms"))

    program = CLIENTS / "guidellm" / "bin" / "guidellm"
    return Entrant("guidellm", "/v1/completions", program, "guidellm", command, read, env=QUIET)


def aiperf() -> Entrant:
    """NVIDIA's aiperf, which is several processes."""

    def command(url: str, load: Load, folder: Path) -> list[str]:
        return [
            *("profile", "-m", "played", "--tokenizer", str(TOKENIZER), "--url", url),
            *("--endpoint-type", "completions", "--streaming", "--use-server-token-count"),
            *("--concurrency", str(load.concurrency), "--request-count", str(load.requests)),
            *("--isl", str(PROMPT_TOKENS), "--osl", str(load.tokens), "--ui", "none"),
            *("--extra-inputs", "ignore_eos:true", "--output-artifact-dir", str(folder)),
        ]

    def read(folder: Path) -> Figures:
        said = json.loads((folder / "profile_export_aiperf.json").read_text())
        names = ("output_token_throughput", "time_to_first_token", "inter_token_latency")
        return Figures(*(said[name]["avg"] for name in names))

    program = CLIENTS / "aiperf" / "bin" / "aiperf"
    return Entrant("aiperf", "/v1/completions", program, "aiperf", command, read)


OURS = (own(False), own(True))
RIVALS = (
    bench_serving("sglang", "/generate"),
    bench_serving("sglang-oai", "/v1/completions"),
    vllm(),
    guidellm(),
    aiperf(),
)


def why_missing(entrant: Entrant) -> str:
    """What to say of a rival that is not there."""
    log = CLIENTS / f"{entrant.package}.log"
    if not log.exists():
        return "not installed: python -m benchmarks.client_overhead.install"
    words: list[Any] = [line for line in log.read_text().splitlines() if "ERROR" in line]
    return "could not be installed: " + (str(words[-1]) if words else f"see {log.name}")


def environment(entrant: Entrant) -> dict[str, str]:
    """Of its process. Proxies are for the world outside."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, **entrant.env, "NO_PROXY": "127.0.0.1"}
