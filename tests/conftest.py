"""Fixtures of all tests."""

import signal
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.seals import SEAL
from tests.server.launching import processes_with

settings.register_profile("untimed", deadline=None)  # a busy machine is no fault of an example
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Restore Ctrl-C: background jobs of a shell ignore SIGINT, and child processes inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def seal(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A value in this process's environment that everything started here inherits."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(SEAL, value)
    yield value
    for process in processes_with(SEAL, value):
        process.kill()
