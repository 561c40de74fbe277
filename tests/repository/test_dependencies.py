"""What is installed: a range with an end for each dependency, and versions within it for CI."""

import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DECLARED = [Requirement(each) for each in [*PROJECT["dependencies"], *chain(*EXTRAS.values())]]
PINNED = [
    Requirement(line)
    for line in Path("requirements-ci.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
OF_CI = [Requirement(each) for extra in ("test", "docs", "ray") for each in EXTRAS[extra]]
OF_CI += map(Requirement, PROJECT["dependencies"])


@pytest.mark.parametrize("needed", DECLARED, ids=str)
def test_every_dependency_ends_before_the_next_major_version(needed: Requirement) -> None:
    """A major version that nobody has tried would else break every new installation in one day."""
    assert any(each.operator == "<" for each in needed.specifier), needed


@pytest.mark.parametrize("needed", OF_CI, ids=str)
def test_ci_installs_a_version_of_the_range(needed: Requirement) -> None:
    """Else `make test` cannot be installed, or tests what no user gets."""
    name = canonicalize_name(needed.name)
    pins = [each for each in PINNED if canonicalize_name(each.name) == name]
    assert pins, f"{name} is not in requirements-ci.txt: make requirements"
    for pin in pins:
        (exact,) = pin.specifier
        assert exact.operator == "=="
        assert exact.version in needed.specifier, pin
