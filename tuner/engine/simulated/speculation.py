"""The speculative arguments, by SGLang's rules: what a server of them speculates with. Pure."""

from collections.abc import Mapping
from typing import Any

from tuner.engine.sglang.releases import FIRST_SWITCHED, Release
from tuner.engine.simulated.performance import Speculation


def speculation_of(values: dict[str, Any], environment: Mapping[str, str]) -> Speculation | None:
    """SGLang's rules and adjustments; writes the adjusted values back, as SGLang does."""
    algorithm = values["speculative_algorithm"]
    if algorithm is None:
        return None
    algorithm = values["speculative_algorithm"] = algorithm.upper()
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    steps, topk, tokens = (values[name] for name in names)
    if algorithm == "NGRAM":
        tokens = tokens or 12
        values.update(zip(names, (tokens // 10, 10, tokens), strict=True))
        return Speculation(algorithm, max(1, tokens - 1), 1, tokens, values["tp_size"])
    if steps is None:
        if topk is not None or tokens is not None:
            raise ValueError(
                "speculative_eagle_topk and num_draft_tokens need speculative_num_steps"
            )
        steps, topk, tokens = 3, 1, 4
    if topk is None or tokens is None:
        raise ValueError("speculative_num_steps needs eagle_topk and num_draft_tokens")
    if topk == 1:
        tokens = steps + 1
    values.update(zip(names, (steps, topk, tokens), strict=True))
    return Speculation(algorithm, steps, topk, tokens, _draft_tp(values["tp_size"], environment))


def _draft_tp(tp: int, environment: Mapping[str, str]) -> int:
    text = environment.get("SPECBENCH_DRAFT_TP", "target")
    if text == "target":
        return tp
    if not text.isdecimal() or int(text) < 1 or tp % int(text):
        raise ValueError(f"SPECBENCH_DRAFT_TP={text} does not divide the target's TP size {tp}")
    return int(text)


def warm_steps_of(
    values: Mapping[str, Any],
    speculation: Speculation | None,
    release: Release,
    environment: Mapping[str, str],
) -> tuple[int, ...]:
    """What the step switch prepares. Raises ValueError where the plug-in would stop the server."""
    if environment.get("SPECBENCH_STEP_SWITCH") != "1":
        return ()
    refused = "specbench: step switching refused: "
    if not values["speculative_adaptive"] or speculation is None or speculation.topk != 1:
        raise ValueError(f"{refused}it needs --speculative-adaptive and a chain")
    if not release.at_least(FIRST_SWITCHED):
        raise ValueError(f"{refused}SGLang {release.known} is older than {FIRST_SWITCHED}")
    words = environment.get("SPECBENCH_STEPS", "").split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"{refused}SPECBENCH_STEPS lists chain lengths, such as 1,3,5,7")
    steps = tuple(sorted({int(word) for word in words}))
    if speculation.steps != steps[-1]:
        raise ValueError(
            f"{refused}start with the longest chain: --speculative-num-steps {steps[-1]}"
        )
    return steps
