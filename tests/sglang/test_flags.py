"""SGLang's command line from a configuration."""

import pytest

from tuner.config.pinned_flags import pins
from tuner.config.point import Point
from tuner.config.reserved_flags import RESERVED
from tuner.config.schema import (
    BaselineSpec,
    EngineSpec,
    ModelSpec,
    ServerFlag,
    ServerSpec,
    SpaceSpec,
    Sweep,
)
from tuner.server.base import ServerConfig, server_config
from tuner.sglang import flags

MODEL = ModelSpec(target="t", draft="d", algorithm="EAGLE3", tp=2)
CHAIN = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp="target")


def words(
    point: Point | None, model: ModelSpec = MODEL, given: dict[str, ServerFlag] | None = None
) -> str:
    config = ServerConfig(model, point, given or {}, {}, frozenset())
    return " ".join(flags.server_arguments(config, 30000))


def test_a_point_is_spelled_in_full() -> None:
    """SGLang asserts where only some of the three numbers are given."""
    assert words(CHAIN) == (
        "--model-path t --host 127.0.0.1 --port 30000 --tp-size 2 --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path d --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4"
    )


def test_the_baseline_has_no_speculative_flag() -> None:
    """A draft model alone would already make SGLang speculate."""
    assert words(None) == "--model-path t --host 127.0.0.1 --port 30000 --tp-size 2"


def test_ngram_has_no_draft_and_no_steps() -> None:
    """SGLang works the others out of the number of tokens."""
    ngram = ModelSpec(target="t", algorithm="NGRAM")
    assert words(Point(num_draft_tokens=8), ngram).endswith(
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8"
    )
    assert words(Point(), ngram).endswith("--speculative-algorithm NGRAM")


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (True, "--x"),
        (0.88, "--x 0.88"),
        (-1, "--x -1"),
        ("auto", "--x auto"),
        ("--y", "--x=--y"),
        ([1, 2, 4], "--x 1 2 4"),
    ],
)
def test_flags_are_spelled_as_argparse_reads_them(value: ServerFlag, spelled: str) -> None:
    """A wrong spelling costs a launch, or sets something else."""
    assert words(None, given={"x": value}).endswith(f"--tp-size 2 {spelled}")


def test_every_word_that_is_written_is_reserved() -> None:
    """Otherwise a sweep file could set a flag twice, and the last one would win unseen."""
    config = ServerConfig(MODEL, CHAIN, {}, {}, frozenset())
    written = [w for w in flags.server_arguments(config, 1, 2) if w.startswith("--")]
    assert {word.removeprefix("--") for word in written} <= set(RESERVED)


def test_draft_tp_is_a_variable_and_only_where_it_moves_the_draft() -> None:
    """A patch must not be asked for where the draft stays with the target."""
    moved = Point(num_steps=3, eagle_topk=1, num_draft_tokens=4, draft_tp=1)
    for point, expected in ((moved, {"SPECBENCH_DRAFT_TP": "1"}), (CHAIN, {}), (None, {})):
        config = ServerConfig(MODEL, point, {}, {}, frozenset())
        assert flags.environment(config) == expected


def test_a_running_server_tells_its_point() -> None:
    """An endpoint's numbers are booked under what it runs with."""
    info = {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    }
    assert flags.running_point(info) == CHAIN
    assert flags.running_point({**info, "speculative_algorithm": None}) is None
    ngram = flags.running_point({**info, "speculative_algorithm": "NGRAM"})
    assert ngram == Point(num_draft_tokens=4)


def test_unset_takes_away_what_the_server_section_gives() -> None:
    """`unset` in the baseline's flags or variables means the same as in a dimension."""
    sweep = Sweep(
        name="s",
        engine=EngineSpec(kind="simulated"),
        model=MODEL,
        server=ServerSpec(flags={"a": 1, "b": True}, env={"V": "1"}),
        baseline=BaselineSpec(flags={"a": "unset", "b": False}, env={"V": "unset"}),
        space=SpaceSpec(num_steps=[1], env={"NCCL_PROTO": ["unset", "LL"]}),
    )
    config = server_config(sweep, None)
    assert (config.flags, config.env) == (pins(sweep), {})
    assert config.unset == {"V", "NCCL_PROTO"}
