"""A point is the same point wherever it is looked up."""

import os
import pickle
import subprocess
import sys

from tuner.config.point import Point, PointJson

POINT = Point(2, 1, 3, "target", (("NCCL_PROTO", "LL"),), (("a", True),))
READ = "import pickle, sys; p = pickle.load(sys.stdin.buffer); print(p in {p, type(p)(*%r)})"


def test_a_point_that_another_process_gets_is_found_among_its_own() -> None:
    """Texts have other hashes there, and jobs for other places are pickled."""
    hash(POINT)
    shape = (2, 1, 3, "target", POINT.env, POINT.flags)
    code = READ % (shape,) + f"\nprint(len({{p, type(p)(*{shape!r})}}))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=pickle.dumps(POINT),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        assert done.stdout.split() == [b"True", b"1"]


def test_what_a_line_says_of_a_point_is_the_point() -> None:
    """Also where it was read with the point beside it, and where somebody has changed a copy."""
    told = POINT.to_json()
    kept = PointJson(POINT, told["env"], told["flags"])
    assert kept == told and list(kept) == list(told)
    assert Point.from_json(kept) == Point.from_json(told) == POINT
    assert Point.from_json({**kept, "num_steps": 5}).num_steps == 5
    assert Point.from_json(pickle.loads(pickle.dumps(kept))) == POINT
