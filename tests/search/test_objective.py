"""A wrong objective picks a wrong winner."""

import pytest

from tuner.config.schema import ObjectiveSpec
from tuner.search.objective import objective


def test_geomean_weighs_every_level_alike():
    assert objective({1: 2.0, 64: 0.5}, ObjectiveSpec()) == pytest.approx(1.0)


def test_min_is_the_worst_level():
    assert objective({1: 1.4, 64: 0.9}, ObjectiveSpec(over="min")) == 0.9


def test_one_level_ignores_the_others():
    assert objective({1: 1.4, 64: 0.9}, ObjectiveSpec(over=64)) == 0.9


def test_a_level_without_throughput_is_worth_nothing():
    assert objective({1: 1.4, 64: 0.0}, ObjectiveSpec()) == 0.0
