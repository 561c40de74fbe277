"""Damaged input to everything that is read from outside: taken or refused in a line, never worse.

`make fuzz` plays fifty thousand inputs; here a few for each reader.
"""

import json
from pathlib import Path

import pytest

from tests.fuzz.__main__ import HangError, fuzz, shares
from tests.fuzz.targets import Silent, Target
from tuner.core.errors import EngineFailure, Failure, UserError
from tuner.loadgen.stream_parser import TokenStream

INPUTS = 600


@pytest.mark.parametrize("target", shares(INPUTS), ids=lambda target: target.__name__)
def test_damaged_input_is_taken_or_refused(target: Target, tmp_path: Path) -> None:
    """A traceback in the morning, or a figure from a broken file."""
    found = fuzz(target, range(shares(INPUTS)[target]), tmp_path)
    assert not found.faults, found.faults[0][1]
    assert found.counts.total() == shares(INPUTS)[target]


@pytest.mark.parametrize("raised", [Silent("taken"), HangError(), KeyError("x")])
def test_a_fault_of_a_reader_is_seen(raised: BaseException, tmp_path: Path) -> None:
    """Else the fuzzing would pass whatever is read."""

    def broken(draw: object, folder: Path) -> None:
        raise raised

    assert len(fuzz(broken, range(2), tmp_path).faults) == 2


def test_messages_are_one_line_whatever_a_file_puts_into_them() -> None:
    """A key with a line break in it would break the message, and hide the rest of it."""
    said = str(UserError("no key 'a\u2028b\nc'", "x.yaml:1"))
    assert said == "x.yaml:1: no key 'a\\u2028b\\nc'"
    assert EngineFailure(Failure.CRASH, "a\nb\n").message == "a\\nb"


def test_a_count_that_samples_could_not_hold_is_none() -> None:
    """Else a baseline's samples would be written, not be read again, and the run be lost."""
    stream = TokenStream()
    meta = {"completion_tokens": 10**400, "spec_verify_ct": 10**400, "prompt_tokens": 10**400}
    stream.feed(b"data: " + json.dumps({"meta_info": meta}).encode() + b"\n\n", 0.1)
    assert (stream.engine_tokens, stream.prompt_tokens, stream.spec) == (None, None, None)
    assert stream.tokens == 0
