"""The words of a launch: the only place that writes SGLang's flags on a command line.

The flags that are written here have the same names in SGLang 0.5.8 to 0.5.23, which
tests/sglang/test_argument_contract.py holds against every release; the sweep file's own are put
into the release's spelling before (flag_spelling.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.config.dimensions import DIMENSIONS
from tuner.config.field_types import FlagValue
from tuner.config.point import Point
from tuner.config.schema import ServerFlag
from tuner.server.base import HOST, Command, Identity, Rank, ServerConfig

LAUNCHER = ("-m", "sglang.launch_server")
PORT = "PORT"
"""Stands for the port in commands that are shown."""
RANK_0 = "RANK0:DIST_PORT"
"""Stands for where rank 0 waits for the others, in the same."""
STEPS_STATE = "specbench_steps"
"""What the plug-in that switches chain lengths adds to internal_states."""
OWN_VARIABLES = frozenset(d.variable for d in DIMENSIONS if d.variable is not None)
"""Variables that set a dimension for which SGLang has no flag. The plug-in reads them."""


def identity(config: ServerConfig, nonce: str, port: int) -> Identity:
    """A name made up for this launch; where the user's flags set the name, other signs."""
    if "served-model-name" not in config.flags:
        return Identity(("--served-model-name", nonce), {"served_model_name": nonce})
    expected: dict[str, Any] = {"port": port, "model_path": config.model.target}
    seed = config.flags.get("random-seed")
    if isinstance(seed, int):
        expected["random_seed"] = seed
    return Identity((), expected)


def shown_command(program: Sequence[str], config: ServerConfig) -> Command:
    """The launch as a person would type it, with PORT for the port; rank 0's of several, with
    RANK_0 for where it waits for the others."""
    if config.rank is None and config.flags.get("nnodes", 1) != 1:
        config = replace(config, rank=Rank(0, RANK_0))
    argv = (*program, *server_arguments(config, PORT))
    return Command(argv, environment(config), config.unset)


def environment(config: ServerConfig) -> dict[str, str]:
    """The variables to set."""
    if config.point is None:
        return dict(config.env)
    tp = config.model.tp
    own = {
        dimension.variable: str(value)
        for dimension in DIMENSIONS
        if dimension.variable is not None
        and (value := getattr(config.point, dimension.name)) is not None
        and dimension.canonical(value, tp) != dimension.default
    }
    return {**config.env, **own}


def server_arguments(
    config: ServerConfig, port: int | str, nccl_port: int | None = None
) -> list[str]:
    """The words after the program. SGLang chooses the NCCL port itself where none is given."""
    words = ["--model-path", config.model.target, "--host", HOST, "--port", str(port)]
    words += ["--tp-size", str(config.model.tp)]
    if nccl_port is not None and config.rank is None:  # hosts meet at the address instead
        words += ["--nccl-port", str(nccl_port)]
    if config.point is not None:
        words += _speculative_arguments(config, config.point)
    for name, value in config.flags.items():
        words += _flag_arguments(name, value)
    if config.rank is not None:
        words += ["--node-rank", str(config.rank.number), "--dist-init-addr", config.rank.address]
    return words


def _speculative_arguments(config: ServerConfig, point: Point) -> list[str]:
    values = {
        "speculative-algorithm": config.model.algorithm,
        "speculative-draft-model-path": config.model.draft,
        **{
            dimension.argument: getattr(point, dimension.name)
            for dimension in DIMENSIONS
            if dimension.argument is not None
        },
    }
    return [
        word
        for name, value in values.items()
        if value is not None
        for word in (f"--{name}", str(value))
    ]


def _flag_arguments(name: str, value: ServerFlag) -> list[str]:
    if value is True:
        return [f"--{name}"]
    if isinstance(value, list):
        return [f"--{name}", *map(_spell, value)]
    text = _spell(value)
    # argparse takes a word that begins with a dash for a flag, except negative numbers.
    if text.startswith("-") and isinstance(value, str):
        return [f"--{name}={text}"]
    return [f"--{name}", text]


def _spell(value: FlagValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pinned(info: Mapping[str, Any]) -> int | None:
    """The chain length that was switched to on a server with the plug-in; None without it.

    Outside of internal_states stands what the server was launched with.
    """
    states = info.get("internal_states")
    for state in states if isinstance(states, list) else ():
        mine = state.get(STEPS_STATE) if isinstance(state, dict) else None
        if isinstance(mine, dict) and isinstance(mine.get("pinned"), int):
            return int(mine["pinned"])
    return None


def running_point(info: Mapping[str, Any]) -> Point | None:
    """The point that a running server plays, from its server_info; None: no speculation.

    Variables and flags are not in server_info in a form that could be compared; they stay empty.
    """
    algorithm = info.get("speculative_algorithm")
    if not algorithm:
        return None
    tokens, steps = info.get("speculative_num_draft_tokens"), info.get("speculative_num_steps")
    if algorithm == "NGRAM":
        return Point(num_draft_tokens=tokens)
    pinned = _pinned(info)
    if pinned is not None:
        steps, tokens = pinned, pinned + 1
    if pinned == 0:
        return None
    return Point(
        num_steps=steps,
        eagle_topk=info.get("speculative_eagle_topk"),
        num_draft_tokens=tokens,
        draft_tp="target",
    )
