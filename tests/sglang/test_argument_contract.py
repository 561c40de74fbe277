"""Every word that specbench writes by itself, held against every release's own arguments."""

import json
from pathlib import Path

import pytest

from tuner.config.pinned_flags import pins
from tuner.config.point import Point
from tuner.config.reserved_flags import RESERVED
from tuner.config.schema import ALGORITHMS, EngineSpec, ModelSpec, SpaceSpec, Sweep
from tuner.server.base import server_config
from tuner.sglang.flag_catalogue import Argument, arguments, releases
from tuner.sglang.flag_spelling import spelled_config
from tuner.sglang.flags import identity, server_arguments
from tuner.sglang.releases import parse_version

SNAPSHOT = Path(__file__).parents[2] / "tuner/sglang/data/arguments.json"


def sweep(algorithm: str) -> Sweep:
    draft = None if algorithm == "NGRAM" else "some/draft"
    return Sweep(
        name="s",
        engine=EngineSpec(kind="sglang"),
        model=ModelSpec(target="some/model", draft=draft, algorithm=algorithm, tp=2),  # type: ignore[arg-type]
        space=SpaceSpec(num_steps=[3]),
    )


def point(algorithm: str) -> Point:
    if algorithm == "NGRAM":
        return Point(num_draft_tokens=8)
    return Point(num_steps=3, eagle_topk=2, num_draft_tokens=8, draft_tp="target")


def refusals(words: list[str], known: dict[str, Argument]) -> list[str]:
    """What the release's argparse would say to the words, empty where it takes them."""
    wrong: list[str] = []
    flag = None
    for word in words:
        if word.startswith("--"):
            flag = known.get(word[2:])
            if flag is None:
                wrong.append(f"no {word}")
        elif flag is not None and (misfit := flag.misfit(word)):
            wrong.append(f"--{flag.name} {misfit}")
    return wrong


@pytest.mark.parametrize("release", releases())
@pytest.mark.parametrize("algorithm", [None, *ALGORITHMS])
def test_every_release_takes_what_specbench_writes(release: str, algorithm: str | None) -> None:
    """A word that one release lacks costs its users every launch, exit status 2."""
    given = sweep(algorithm or "EAGLE3")
    config = server_config(given, None if algorithm is None else point(algorithm))
    assert set(pins(given)) <= set(config.flags)
    spelled = spelled_config(config, parse_version(release))
    words = server_arguments(spelled, 30000, 30001)
    words += identity(spelled, "specbench-0", 30000).words
    assert refusals(words, dict(arguments(release))) == []


@pytest.mark.parametrize("release", releases())
def test_reserved_names_are_the_releases_names(release: str) -> None:
    """An alias that is not reserved would be given twice, and the later one would win."""
    known = arguments(release)
    for name in RESERVED:
        if name in ("tp",):  # argparse's abbreviation of tp-size
            continue
        assert name in known, name
        assert set(known[name].aliases) <= set(RESERVED)


def test_0_5_20_has_no_cuda_graph_max_bs() -> None:
    """The contract would be worth nothing if it could not tell releases apart."""
    assert refusals(["--cuda-graph-max-bs", "4"], dict(arguments("0.5.19"))) == []
    assert refusals(["--cuda-graph-max-bs", "4"], dict(arguments("0.5.20"))) == [
        "no --cuda-graph-max-bs"
    ]
    wrong = refusals(["--attention-backend", "fa9", "--tp-size", "x"], dict(arguments("0.5.8")))
    assert len(wrong) == 2


def test_the_snapshot_is_facts_only_and_small() -> None:
    """Help texts are SGLang's prose; names, types, choices and defaults are facts."""
    assert SNAPSHOT.stat().st_size < 300_000
    stored = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    assert stored["releases"][0] == "0.5.8"
    allowed = {"first", "last", "kind", "type", "choices", "default", "aliases"}
    allowed |= {"deprecated", "replaced_by"}
    for spans in stored["flags"].values():
        assert all(set(span) <= allowed for span in spans)
