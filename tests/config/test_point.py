"""A point is the same point wherever it is looked up."""

import os
import pickle
import subprocess
import sys

from tuner.config.point import Point

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


def test_point_is_read_back_from_its_json() -> None:
    written = POINT.to_json()
    assert Point.from_json(written) == POINT
    assert Point.from_json({**written, "num_steps": 5}).num_steps == 5
