"""The command line: SGLang's flags in SGLang's spelling, and the simulation's own."""

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.core.errors import UserError
from tuner.sglang.flag_catalogue import Argument
from tuner.sglang.releases import FIRST_SWITCHED, Release, parse_version
from tuner.simulator.faults import FAULTS, Faults
from tuner.simulator.performance import NCCL_VARIABLES, Performance, Speculation
from tuner.simulator.presets import load_preset, preset_names

PLAYS_VERSION = "0.5.17"
"""The release that is played unless the sweep file or the command line names one."""
DEFAULT_PRESET = "quickstart"

_PROGRAM = "specbench simulate"
_DEFAULTS: Mapping[str, Any] = {
    "model_path": "simulated/target",
    "random_seed": 42,
    # Releases before 0.5.10 and 0.5.11 do not have these.
    "incremental_streaming_output": False,
    "speculative_adaptive": False,
}
"""Values where SGLang wants one, computes one, or has no such argument."""


@dataclass(frozen=True)
class Arguments:
    """The parsed command line and environment of one server."""

    release: Release
    """The SGLang release that the server plays."""
    server_args: Mapping[str, Any]
    """SGLang's arguments by its own attribute names, defaults and unknown flags included."""
    performance: Performance
    startup_scale: float
    faults: Faults
    outlives_parent: bool
    warm_steps: tuple[int, ...] = ()
    """Chain lengths between which the server can switch; (): it keeps the launch's."""

    @property
    def max_running_requests(self) -> int:
        """The flag's value, or SGLang's default: 48 with speculation, 2048 without."""
        asked = self.server_args["max_running_requests"]
        default = 2048 if self.performance.speculation is None else 48
        return default if asked is None else int(asked)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="An HTTP server that answers as SGLang does, from a performance model.",
        epilog="SGLang's flags, such as --port and --model-path, are accepted and shown in "
        "/server_info.\n\nfaults:\n"
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
    return parser


def parse(argv: list[str] | None, environment: Mapping[str, str] = os.environ) -> Arguments:
    """Parse a command line. Ends the process as argparse does (status 2, usage) if it is wrong.

    Raises ValueError for what SGLang itself only refuses after parsing (exit status 1 there).
    """
    parser = _parser()
    own, words = parser.parse_known_args(argv)
    try:
        machine = load_preset(own.preset, dict(_override(word) for word in own.override))
        faults = Faults.parse(own.fault)
        release = parse_version(own.sglang_version or PLAYS_VERSION)
    except (UserError, ValueError) as error:
        parser.error(str(error))
    if own.startup_scale < 0:
        parser.error(f"argument --startup-scale: must not be negative, got {own.startup_scale}")
    if faults.has("bad-args"):
        parser.error("unrecognized arguments: --no-such-flag")
    parsed = _server_args(parser, words, release, accepts_any=own.sglang_version is None)
    values = {**_defaults(release), "tp_size": machine.tp, **parsed}
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
        server_args=values,
        performance=Performance(
            machine=machine,
            tp=values["tp_size"],
            speculation=speculation,
            nccl={name: environment[name] for name in NCCL_VARIABLES if name in environment},
            disable_custom_all_reduce=values["disable_custom_all_reduce"],
            simulated_length=length if length > 0 else None,
        ),
        startup_scale=own.startup_scale,
        faults=faults,
        outlives_parent=own.outlive_parent,
        warm_steps=resolve_warm_steps(values, speculation, release, environment),
    )


def _defaults(release: Release) -> dict[str, Any]:
    """Return the default of each argument of the release. The model is first, as in SGLang."""
    values: dict[str, Any] = {"model_path": None}
    for argument in release.arguments.values():
        is_switch = argument.kind == "switch"
        values[_attribute(argument.name)] = (
            bool(argument.default) if is_switch else argument.default
        )
    return {**values, **_DEFAULTS}


def _server_args(
    own: argparse.ArgumentParser, words: list[str], release: Release, accepts_any: bool
) -> dict[str, Any]:
    """Return the values of SGLang's flags in `words`, read as the release reads them.

    Reports errors through the parser `own`. Flags of other releases are errors, too, unless
    `accepts_any`.
    """
    spellings: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--") and (full := _full_name(own, word, release, accepts_any)):
            spellings.setdefault(full, []).append(word.partition("=")[0])
    # Only the arguments in use: adding all 470 takes argparse 8 ms.
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, usage=f"{_PROGRAM} [--preset PRESET] ... [flags of SGLang]", add_help=False,
        allow_abbrev=False, argument_default=argparse.SUPPRESS,
    )  # fmt: skip
    for full, used in spellings.items():
        _add(parser, release.arguments[full], used)
    namespace, rest = parser.parse_known_args(words)
    return {**vars(namespace), **_unknown_flags(own, rest)}


def _full_name(
    parser: argparse.ArgumentParser, word: str, release: Release, accepts_any: bool
) -> str | None:
    """Return the name of the argument that `word` gives, or None if the release has none.

    As argparse does, takes the beginning of a name for the name if just one begins so. Ends the
    process otherwise, unless `accepts_any`.
    """
    known, name = release.arguments, word.removeprefix("--").partition("=")[0]
    begun = [name] if name in known else [full for full in known if full.startswith(name)]
    if len(begun) == 1:
        argument = known[begun[0]]
        replaced_by = (argument.replaced_by or "").removeprefix("--")
        return replaced_by if replaced_by in known else argument.name
    if not accepts_any and begun:
        names = ", ".join(f"--{full}" for full in begun)
        parser.error(f"ambiguous option: --{name} could match {names}")
    if not accepts_any:
        parser.error(f"unrecognized arguments: {word}")
    return None


def _add(parser: argparse.ArgumentParser, argument: Argument, used: list[str]) -> None:
    """Add an argument of SGLang, with the spellings in use beside its own."""
    name, negated = f"--{argument.name}", f"--no-{argument.name}"
    names = list(dict.fromkeys((name, *used, *(f"--{alias}" for alias in argument.aliases))))
    reader = {"int": int, "float": float, "str": str}.get(argument.type or "", _value)
    if argument.kind == "switch" and negated in names:
        names.remove(negated)
        parser.add_argument(*names, action=argparse.BooleanOptionalAction)
    elif argument.kind == "switch":
        parser.add_argument(*names, action="store_true")
    elif argument.kind == "optional":
        parser.add_argument(*names, type=reader, nargs="?", const=True)
    elif argument.kind == "list":
        parser.add_argument(*names, type=reader, nargs="+")
    else:
        parser.add_argument(*names, type=reader)


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
    """Return flags that the release does not have: true without a value, a list with several."""
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
    """Apply SGLang's rules. Writes the adjusted values back to `values`, as SGLang does."""
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
    """Return the chain lengths to prepare. Raises ValueError if the plug-in would refuse them."""
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
