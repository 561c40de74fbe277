"""Why a search ends: a reader decides by it whether to go on."""

import math

from tuner.config.point import Point
from tuner.metrics.statistics import Interval
from tuner.search.forecast import Observations
from tuner.search.observation import LevelFigures, Observation
from tuner.search.staged import MARGIN, no_more

PLAIN = {1: LevelFigures(10.0)}
POINT = Point(2, 1, 3, "target")


def known(value: float) -> Observations:
    figures = LevelFigures(10.0, 2.0, (0.7, 0.3), value)
    return Observations(PLAIN, {POINT: Observation("ok", value, levels={1: figures})})


def test_it_says_what_the_share_is_and_how_near_the_nearest_comes() -> None:
    words = no_more(known(0.9), 0.0, 0.049, 1, Interval(0.70, 0.57, 0.86), 1)
    assert words == (
        "the one unmeasured point cannot beat the baseline by more than 4.9 % (twice a launch's "
        "standard deviation), even at its best; 0.70 (0.57 to 0.86) times the baseline is expected "
        "of the nearest; 1 check found nothing else"
    )
    least = no_more(known(0.9), 0.0, MARGIN, 9, None, 2)
    assert least == (
        "none of 9 unmeasured points can beat the baseline by more than 1.0 % (the least that is "
        "worth a launch), even at its best; 2 checks found nothing else"
    )


def test_the_best_so_far_is_the_one_that_the_screen_has() -> None:
    words = no_more(known(1.053), math.log(1.049), MARGIN, 9, None, 0)
    assert "the best so far (1.053 times the baseline, 1.049 by all launches together)" in words
    words = no_more(known(1.053), math.log(1.053), MARGIN, 9, None, 0)
    assert "the best so far (1.053 times the baseline)" in words
