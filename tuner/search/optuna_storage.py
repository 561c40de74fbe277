"""Optuna storages: opened by a URL, with the database's own words where they cannot be."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage

from tuner.core.secrets import hidden

CONNECT_S = 10
"""For a database on the network to answer at all."""
SILENT_S = 30
"""For a database whose host is gone without a word (no power, no route) to be given up."""
_KEEPALIVE = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": (SILENT_S - 10) // 5,
    "tcp_user_timeout": 1000 * SILENT_S,
}  # fmt: skip
"""Of libpq, without which a call may wait for hours."""
WAIT_S = 60
"""For a SQLite file that somebody reads; a run must not lose its study to a long look at it."""
DERIVED_WAIT_S = 10
"""For a run's own study.db. Optuna tries five times to add a trial."""

GIVE_URL = "give an Optuna storage URL, such as sqlite:///study.db or postgresql://USER@HOST/NAME"
"""What would be right, for a refusal."""

Storage = RDBStorage
"""A database with studies in it."""


def _do_not_wait_for_the_disk(connection: Any, _: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


_IN_UTC = {"postgresql": "SET TIME ZONE 'UTC'", "mysql": "SET time_zone = '+00:00'"}
"""For a session. Optuna writes and compares heartbeats in the session's zone, which PGTZ or the
server decides: hosts of two zones, and an hour that is skipped in spring, make the living dead."""


def _in_utc(storage: RDBStorage) -> None:
    if (words := _IN_UTC.get(storage.engine.dialect.name)) is None:
        return

    def set_zone(connection: Any, _: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(words)
        connection.commit()

    sqlalchemy.event.listen(storage.engine, "connect", set_zone)
    storage.engine.dispose()  # connections made before


class StorageUnusable(Exception):
    """An Optuna storage could not be opened or written. str() is the reason, without the URL."""

    @property
    def is_of_url(self) -> bool:
        """Return True if the URL means nothing here or its driver is missing, so that another try
        has the same result."""
        return isinstance(self.__cause__, (sqlalchemy.exc.ArgumentError, ImportError, ValueError))


def sqlite_url(path: Path) -> str:
    """The Optuna storage URL of a SQLite file."""
    return f"sqlite:///{path}"


def _missing_driver(url: str) -> str | None:
    """What to install for a database of this URL, in a sentence; None where nothing is missing."""
    if not url.startswith("postgresql") or find_spec("psycopg") is not None:
        return None
    return "PostgreSQL needs psycopg: pip install 'sglang-specbench[postgres]'"


def _with_driver(url: str) -> str:
    """`postgresql://` and `postgres://` with the driver that the extra `postgres` installs."""
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return f"postgresql+psycopg://{url.removeprefix(plain)}"
    return url


def _connecting(url: str, sqlite_wait_s: float) -> dict[str, Any]:
    """For the driver, beside what the URL says. Raises what SQLAlchemy does of one that is none."""
    given = sqlalchemy.make_url(url)
    if given.get_backend_name() == "sqlite":
        return {"timeout": sqlite_wait_s}
    if not given.drivername.startswith("postgresql+psycopg"):  # others have words of their own
        return {}
    wanted = {"connect_timeout": CONNECT_S, **_KEEPALIVE}
    return {name: each for name, each in wanted.items() if name not in given.query}


def open_storage(
    url: str,
    *,
    is_derived: bool = False,
    heartbeat_s: int | None = None,
    grace_s: int | None = None,
) -> RDBStorage:
    """The storage behind a URL; its tables are made where there are none.

    `is_derived`: a SQLite file of a run's own, which does not wait for the disk: what a power cut
    breaks there is written anew. `heartbeat_s`: how often running trials are said to be alive;
    they are stale after `grace_s` of silence. Raises StorageUnusable.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = _with_driver(url)
    if (missing := _missing_driver(url)) is not None:
        raise StorageUnusable(missing) from ImportError(missing)
    try:
        # A server that was away is found again.
        wait_s = DERIVED_WAIT_S if is_derived else WAIT_S
        options = {"pool_pre_ping": True, "connect_args": _connecting(url, wait_s)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            storage = RDBStorage(
                url, engine_kwargs=options, heartbeat_interval=heartbeat_s, grace_period=grace_s
            )
        if heartbeat_s is not None:
            _in_utc(storage)
        if is_derived:
            sqlalchemy.event.listen(storage.engine, "connect", _do_not_wait_for_the_disk)
            storage.engine.dispose()  # connections made before
        return storage
    except Exception as error:  # whatever the database's driver raises, it is one answer here
        raise StorageUnusable(database_reason(error)) from error


def database_reason(error: Exception) -> str:
    """The database's own sentence, without Optuna's list of likely causes around it."""
    chain: list[BaseException] = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(inner)
    # The innermost that says something: some of SQLAlchemy's are "()".
    telling = (each for each in reversed(chain) if any(map(str.isalpha, str(each))))
    cause = next(telling, chain[-1])
    lines = [line for line in str(cause).splitlines() if any(map(str.isalpha, line))]
    told = hidden((lines or [type(cause).__name__])[0])
    if isinstance(cause, KeyError):  # as Optuna says of a study or a trial that somebody deleted
        return "what it had is gone from the database"
    return f"its driver is not installed: {told}" if isinstance(cause, ImportError) else told
