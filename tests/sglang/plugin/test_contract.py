"""Every release of SGLang has what the plug-in touches in it; a new one fails here first."""

import json
from pathlib import Path

import pytest

from tuner.sglang.flag_catalogue import releases
from tuner.sglang.plugin.specbench_sglang import contract, versions
from tuner.sglang.plugin.specbench_sglang.problems import NotPatched

FACTS = json.loads((Path(__file__).parent / "facts.json").read_text())


@pytest.mark.parametrize("release", FACTS)
def test_a_release_is_as_the_plugin_expects(release: str) -> None:
    """Otherwise its users meet a server that does not start."""
    found = FACTS[release]
    wanted = contract.all_expectations(versions.parse(release))
    problems = [e.mismatch(found[e.where]) for e in wanted]
    assert [problem for problem in problems if problem is not None] == []


def test_every_known_release_was_looked_at() -> None:
    """A release that specbench knows and the plug-in refuses is not left out by chance."""
    assert set(FACTS) == set(releases())


def test_a_renamed_parameter_is_noticed() -> None:
    """The tree's builder is called by position; another order would broadcast something else."""
    expected = contract.Expected("module", "function", ("self", "a"), ("b",))
    assert expected.mismatch(["self", "a", "b"]) is None
    assert expected.mismatch(None) == "module.function is missing"
    assert "takes (self, x, b)" in str(expected.mismatch(["self", "x", "b"]))
    assert expected.mismatch(["self", "a"]) == "module.function has no parameter b"


@pytest.mark.parametrize("text", ["0.5.7", "0.5.24", "0.6.0", "1.0.0", "main", "0.0.0.dev1"])
def test_an_unknown_release_fails_closed_and_names_the_proven_ones(text: str) -> None:
    """Half a patch would give wrong numbers in silence."""
    with pytest.raises(NotPatched, match=r"0\.5\.8 to 0\.5\.23$"):
        versions.parse(text)


def test_post_releases_and_local_builds_are_as_their_release() -> None:
    """0.5.15.post1 has the shape of 0.5.15."""
    assert versions.parse("0.5.15.post1+cu130").numbers == (0, 5, 15)
