"""Puts the rivals' load clients into environments of their own, in .venv-clients of the checkout.

    python -m benchmarks.client_overhead.install [NAME ...]      guidellm, aiperf, vllm, sglang

guidellm and aiperf come with all that they require. vLLM and SGLang require CUDA builds of torch
that their clients do not use, so these come with a CPU build and only what their clients import
(SGLang: the environment of `make test-sglang`). What could not be installed leaves a NAME.log with
pip's words, and the benchmark says so.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.client_overhead.entrants import CHECKOUT, CLIENTS, TOKENIZER

GUIDELLM, AIPERF, VLLM = "guidellm==0.8.1", "aiperf==0.13.0", "vllm==0.33.0"
BUILD = CHECKOUT / "tests" / "sglang" / "build.py"
PACKAGES = BUILD.with_name("requirements.txt")
ON_TOP = ("cachetools", "cbor2", "cloudpickle", "llguidance", "psutil", "py-cpuinfo", "watchfiles")
"""What vLLM's client imports beside the packages of SGLang's."""


def main() -> None:
    """Exits 1 where one could not be installed."""
    write_tokenizer()
    names = sys.argv[1:] or list(INSTALLERS)
    failed = [name for name in names if not installed(name)]
    if failed:
        sys.exit(f"not installed: {', '.join(failed)}; pip's words are in {CLIENTS}/NAME.log")


def installed(name: str) -> bool:
    """Whether it is there in the end."""
    print(f"installing {name}", flush=True)
    with (CLIENTS / f"{name}.log").open("w") as log:

        def run(*words: str | Path) -> None:
            subprocess.run(
                [str(word) for word in words], stdout=log, stderr=subprocess.STDOUT, check=True
            )

        try:
            INSTALLERS[name](run)
        except subprocess.CalledProcessError:
            return False
    return True


Run = Callable[..., None]


def whole(name: str, requirement: str) -> Callable[[Run], None]:
    """A package with all that it requires."""

    def install(run: Run) -> None:
        run(sys.executable, "-m", "venv", CLIENTS / name)
        run(CLIENTS / name / "bin" / "pip", "install", "--quiet", requirement)

    return install


def vllm(run: Run) -> None:
    """Without CUDA. torchvision's build for CUDA does not load beside a CPU torch."""
    run(sys.executable, "-m", "venv", CLIENTS / "vllm")
    pip = CLIENTS / "vllm" / "bin" / "pip"
    run(pip, "install", "--quiet", "--no-deps", "--requirement", PACKAGES)
    run(pip, "uninstall", "--quiet", "--yes", "torchvision")
    run(pip, "install", "--quiet", "--no-deps", VLLM, *ON_TOP)


def sglang(run: Run) -> None:
    """The environment of `make test-sglang`."""
    run(sys.executable, BUILD)


INSTALLERS: dict[str, Callable[[Run], None]] = {
    "guidellm": whole("guidellm", GUIDELLM),
    "aiperf": whole("aiperf", AIPERF),
    "vllm": vllm,
    "sglang": sglang,
}


def write_tokenizer() -> None:
    """A tokenizer that knows the server's words, so that each client counts its tokens alike."""
    TOKENIZER.mkdir(parents=True, exist_ok=True)
    words = ["<unk>", "<s>", "</s>", *(f"w{index}" for index in range(1000))]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": 1_000_000,
    }
    files = {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": config,
        "config.json": {"model_type": "llama", "vocab_size": len(words)},
    }
    for name, content in files.items():
        (TOKENIZER / name).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
