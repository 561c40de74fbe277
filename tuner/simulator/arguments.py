"""The command line: SGLang's flags in SGLang's spelling, and the simulation's own."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import UserError
from tuner.sglang.releases import FIRST_SWITCHED, Release, parse_version
from tuner.simulator.faults import FAULTS, Faults
from tuner.simulator.performance import NCCL_VARIABLES, Performance, Speculation
from tuner.simulator.presets import load_preset, preset_names

PLAYS_VERSION = "0.5.17"
DEFAULT_PRESET = "quickstart"

_INTEGERS: Mapping[str, int | None] = {
    "--port": 30000,
    "--max-running-requests": None,
    "--nccl-port": None,
    "--random-seed": 42,
    "--stream-interval": 1,
    "--decode-log-interval": 40,
    "--context-length": None,
    "--chunked-prefill-size": 8192,
    "--max-prefill-tokens": 16384,
    "--max-total-tokens": None,
    "--page-size": 1,
    "--base-gpu-id": 0,
    "--watchdog-timeout": 300,
    "--dp-size": 1,
    "--pp-size": 1,
    "--nnodes": 1,
    "--node-rank": 0,
    "--cuda-graph-max-bs-decode": None,
    "--speculative-num-steps": None,
    "--speculative-eagle-topk": None,
    "--speculative-num-draft-tokens": None,
}
_TEXTS: Mapping[str, str | None] = {
    "--served-model-name": None,
    "--host": "127.0.0.1",
    "--tokenizer-path": None,
    "--load-format": "auto",
    "--dtype": "auto",
    "--quantization": None,
    "--kv-cache-dtype": "auto",
    "--schedule-policy": "fcfs",
    "--attention-backend": None,
    "--sampling-backend": None,
    "--speculative-algorithm": None,
    "--speculative-draft-model-revision": None,
    "--speculative-attention-mode": "prefill",
    "--speculative-adaptive-config": None,
    "--log-level": "info",
    "--dist-init-addr": None,
    "--api-key": None,
    "--admin-api-key": None,
}
_SWITCHES = (
    "--trust-remote-code",
    "--disable-radix-cache",
    "--disable-cuda-graph",
    "--disable-cuda-graph-padding",
    "--disable-overlap-schedule",
    "--disable-custom-all-reduce",
    "--enable-mscclpp",
    "--enable-nccl-nvls",
    "--enable-symm-mem",
    "--enable-metrics",
    "--incremental-streaming-output",
    "--skip-server-warmup",
    "--skip-tokenizer-init",
    "--speculative-adaptive",
)


@dataclass(frozen=True)
class Arguments:
    """A command line and environment, read."""

    release: Release
    """The SGLang that is played."""
    server_args: Mapping[str, Any]
    """SGLang's arguments by its own attribute names, defaults and unknown flags included."""
    performance: Performance
    startup_scale: float
    faults: Faults
    outlives_parent: bool
    warm_steps: tuple[int, ...] = ()
    """Chain lengths between which it can be switched; (): it stays with the launch's."""

    @property
    def max_running_requests(self) -> int:
        """What was asked for, or SGLang's default: 48 with speculation, 2048 without."""
        asked = self.server_args["max_running_requests"]
        default = 2048 if self.performance.speculation is None else 48
        return default if asked is None else int(asked)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specbench simulate",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="An HTTP server that answers as SGLang does, from a performance model.",
        epilog="SGLang's other flags are accepted and shown in /server_info.\n\nfaults:\n"
        + "\n".join(f"  {name:16}{text}" for name, text in FAULTS.items()),
    )
    own = parser.add_argument_group("the simulation")
    own.add_argument("--preset", default=DEFAULT_PRESET, help=f"one of {', '.join(preset_names())}")
    own.add_argument(
        "--sglang-version",
        metavar="VERSION",
        help=f"the release that is played, with its flags only; default: {PLAYS_VERSION} with any",
    )
    own.add_argument(
        "--startup-scale", type=float, default=0.001, help="real seconds per model second"
    )
    own.add_argument(
        "--override", nargs="+", action="extend", default=[], metavar="NAME=JSON",
        help="a number of the preset to change, such as acceptance=0.19",
    )  # fmt: skip
    own.add_argument(
        "--fault", nargs="+", action="extend", default=[], metavar="KIND[=VALUE]",
        help="what goes wrong on purpose",
    )  # fmt: skip
    own.add_argument(
        "--outlive-parent",
        action="store_true",
        help="go on when the process that started this ends",
    )
    played = parser.add_argument_group("SGLang's")
    played.add_argument("--model-path", "--model", default="simulated/target")
    played.add_argument("--tp-size", "--tp", "--tensor-parallel-size", type=int, default=None)
    played.add_argument("--mem-fraction-static", type=float, default=None)
    played.add_argument("--speculative-draft-model-path", "--speculative-draft-model", default=None)
    for flag, number in _INTEGERS.items():
        names = (flag, "--cuda-graph-max-bs") if flag == "--cuda-graph-max-bs-decode" else (flag,)
        played.add_argument(*names, type=int, default=number, dest=_attribute(flag))
    for flag, text in _TEXTS.items():
        played.add_argument(flag, default=text)
    for flag in _SWITCHES:
        played.add_argument(flag, action="store_true")
    return parser


def parse(argv: list[str] | None, environment: Mapping[str, str] = os.environ) -> Arguments:
    """Read a command line. Ends the process as argparse does (status 2, usage) if it is wrong.

    Raises ValueError for what SGLang itself only refuses after parsing (exit status 1 there).
    """
    parser = _parser()
    namespace, rest = parser.parse_known_args(argv)
    values = vars(namespace)
    unknown = _unknown_flags(parser, rest)
    preset, scale = values.pop("preset"), values.pop("startup_scale")
    overrides, fault_words = values.pop("override"), values.pop("fault")
    outlives_parent, played = values.pop("outlive_parent"), values.pop("sglang_version")
    try:
        machine = load_preset(preset, dict(_override(word) for word in overrides))
        faults = Faults.parse(fault_words)
        release = parse_version(played or PLAYS_VERSION)
    except (UserError, ValueError) as error:
        parser.error(str(error))
    if played is not None:
        _refuse_foreign_flags(parser, argv, release)
    if scale < 0:
        parser.error(f"argument --startup-scale: it is not negative, {scale} is")
    if faults.has("bad-args"):
        parser.error("unrecognized arguments: --no-such-flag")
    values["tp_size"] = machine.tp if values["tp_size"] is None else values["tp_size"]
    if values["nnodes"] > 1 and values["dist_init_addr"] is None:
        parser.error("argument --nnodes: several hosts need --dist-init-addr HOST:PORT")
    for name in ("tp_size", "max_running_requests", "nnodes"):
        if values[name] is not None and values[name] < 1:
            parser.error(f"argument --{name.replace('_', '-')}: {values[name]} is below 1")
    values["tokenizer_path"] = values["tokenizer_path"] or values["model_path"]
    values["served_model_name"] = values["served_model_name"] or values["model_path"]
    speculation = resolve_speculation(values, environment)
    length = float(environment.get("SGLANG_SIMULATE_ACC_LEN", "-1"))
    return Arguments(
        release=release,
        server_args={**values, **unknown},
        performance=Performance(
            machine=machine,
            tp=values["tp_size"],
            speculation=speculation,
            nccl={name: environment[name] for name in NCCL_VARIABLES if name in environment},
            disable_custom_all_reduce=values["disable_custom_all_reduce"],
            simulated_length=length if length > 0 else None,
        ),
        startup_scale=scale,
        faults=faults,
        outlives_parent=outlives_parent,
        warm_steps=resolve_warm_steps(values, speculation, release, environment),
    )


def _refuse_foreign_flags(
    parser: argparse.ArgumentParser, argv: list[str] | None, release: Release
) -> None:
    """Ends the process as the release's own argparse does for a flag that it does not have.

    argparse takes the beginning of a name for the name, where just one begins so.
    """
    own = ("preset", "sglang-version", "startup-scale", "override", "fault", "outlive-parent")
    for word in sys.argv[1:] if argv is None else argv:
        name = word.removeprefix("--").partition("=")[0]
        if not word.startswith("--") or name in own or name in release.arguments:
            continue
        begun = [f"--{known}" for known in release.arguments if known.startswith(name)]
        if len(begun) > 1:
            parser.error(f"ambiguous option: --{name} could match {', '.join(begun)}")
        if not begun:
            parser.error(f"unrecognized arguments: {word}")


def _attribute(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _override(word: str) -> tuple[str, Any]:
    name, equals, text = word.partition("=")
    if not equals:
        raise ValueError(f"--override takes NAME=JSON, such as acceptance=0.19, not '{word}'")
    try:
        return name, json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the value of --override {name} is not JSON: {text}") from error


def _unknown_flags(parser: argparse.ArgumentParser, words: list[str]) -> dict[str, Any]:
    """The flags that only SGLang knows: alone true, with one value that, with more a list."""
    found: dict[str, list[Any]] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            flag, equals, text = word.partition("=")
            name = _attribute(flag)
            found[name] = [_value(text)] if equals else []
        elif name is None:
            parser.error(f"unrecognized arguments: {word}")
        else:
            found[name].append(_value(word))
    return {
        name: True if not values else values[0] if len(values) == 1 else values
        for name, values in found.items()
    }


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def resolve_speculation(
    values: dict[str, Any], environment: Mapping[str, str]
) -> Speculation | None:
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


def resolve_warm_steps(
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
