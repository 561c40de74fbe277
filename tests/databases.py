"""A PostgreSQL of the tests' own, and the URL of a SQLite file beside it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

PASSWORD = "Kx7-never-shown-9q"
"""The server trusts everybody; the URL has it to be hidden."""


def missing_postgres() -> str | None:
    """Why there can be no PostgreSQL here; None where there can."""
    if _programs() is None:
        return "no PostgreSQL: apt-get install postgresql"
    if find_spec("psycopg") is None:
        return "no driver: pip install '.[postgres]'"
    return None


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).parent


@dataclass(frozen=True)
class Postgres:
    """A server that listens on a socket in its own folder."""

    folder: Path
    programs: Path

    @property
    def url(self) -> str:
        """As a user writes it."""
        return f"postgresql://postgres:{PASSWORD}@/postgres?host={self.folder}"

    def start(self) -> None:
        options = f"-c listen_addresses='' -c fsync=off -k {self.folder}"
        self._run("pg_ctl", "-D", self._data, "-w", "-o", options, "-l", self._log, "start")

    def stop(self) -> None:
        """At once, as a host that loses its power."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def make(self) -> None:
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync")

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def _log(self) -> str:
        return str(self.folder / "log")

    def _run(self, program: str, *words: str) -> None:
        """As nobody where we are root, whom PostgreSQL refuses."""
        command = [str(self.programs / program), *words]
        if os.geteuid() == 0:
            as_nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            command = [*as_nobody, *command]
        done = subprocess.run(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def running_postgres() -> Iterator[Postgres]:
    """For `pytest.fixture(scope="module")`: a server for a whole file of tests, which are skipped
    where there can be none."""
    if (why := missing_postgres()) is not None:
        pytest.skip(why)
    with postgres() as running:
        yield running


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A new, empty server, until the block is through."""
    programs = _programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="specbench-pg-"))  # a socket's path is short
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        server = Postgres(folder, programs)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
