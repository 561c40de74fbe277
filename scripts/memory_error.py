"""The memory estimate of every launch of the committed runs beside what its log says.

    python scripts/memory_error.py [RUN ...]        default: all below results/ of known models

GiB on each GPU, estimate / log. The models are those of results/README.md, whose shapes lie in
this repository.
"""

import json
import sys
from pathlib import Path

from make_dummy_models import configs

from tuner.core.errors import UserError
from tuner.report.memory import launches_held, memory_table
from tuner.runs.run import Run
from tuner.sglang.memory.model_shape import ShapePair, read_shape

SMOLLM2 = {  # huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, config.json
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}
LLAMA = configs("llama-8b")
CONFIGS = {
    "models/llama8b-target": LLAMA["llama8b-target"],
    "models/llama8b-eagle3": LLAMA["llama8b-eagle3"],
    "models/smollm2/target": SMOLLM2,
    "models/smollm2/draft": json.loads(
        Path("tests/real_sglang/real_draft/config.json").read_text()
    ),
}


def main(folders: list[Path]) -> None:
    worst: dict[str, float] = {}
    for folder in folders or known_runs():
        run = Run.open(folder)
        pair = pair_of_run(run)
        print(f"**{folder.parent.name}**\n\n{memory_table(run, pair)}\n")
        for held in launches_held(run, pair):
            for name, (estimate, log) in held.compared().items():
                if estimate is not None and log is not None and name != "tokens":
                    worst[name] = max(worst.get(name, 0.0), abs(estimate - log))
    told = ", ".join(f"{name} {gib:.2f}" for name, gib in worst.items())
    print(f"Largest difference from a log, GiB: {told}")


def known_runs() -> list[Path]:
    """Of CONFIGS' models; a checkout in use has other runs, too."""
    every = sorted(path.parent for path in Path("results").glob("*/*/run.json"))
    return [each for each in every if Run.open(each).sweep().model.target in CONFIGS]


def pair_of_run(run: Run) -> ShapePair:
    model = run.sweep().model
    draft = None if model.draft is None else read_shape(CONFIGS[model.draft])
    return ShapePair(read_shape(CONFIGS[model.target]), draft)


if __name__ == "__main__":
    try:
        main([Path(each) for each in sys.argv[1:]])
    except UserError as error:
        sys.exit(str(error))
