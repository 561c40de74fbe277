"""`specbench worker` where it cannot take part: one sentence, exit 2, nothing begun or shown."""

import time
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
import sqlalchemy

from tests.databases import PASSWORD, Postgres, running_postgres
from tests.sweeps import tiny_sweep
from tuner.cli import main
from tuner.search import optuna_storage
from tuner.search.optuna_storage import open_storage
from tuner.workers import joining

SECRET = "Zq8-written-by-a-user"
ESCAPED = "Zq8%40written%20by-a-user"
ODD = "Zq8/written by'a\"user<now>"
"""What SQLAlchemy takes as it is, and would end a URL in a sentence."""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return tiny_sweep(tmp_path).path


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for in real life is there or not at the first look here."""
    patient = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr(joining, "time", patient)


def refused(capfd: pytest.CaptureFixture[str], sweep: Path, *words: str) -> str:
    """What is said of a worker that is not to begin."""
    runs = sweep.parent / "runs"
    with pytest.raises(SystemExit) as ended:
        main(["worker", str(sweep), "--out", str(runs), *words])
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert out == "" and not runs.exists()
    assert len(err.splitlines()) == 1 and err.startswith("specbench: "), err
    for secret in (PASSWORD, SECRET, ESCAPED, "Zq8@written by-a-user", *ODD.split("/")):
        assert secret not in err
    return err


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense", "Could not parse"),
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db", "refused"),
        (f"postgresql://me:{ESCAPED}@127.0.0.1:1/db", "refused"),
        (f"postgresql://127.0.0.1:1/db?user=me&password={SECRET}", "refused"),
        (f"postgresql://127.0.0.1:1/db?user=me&sslpassword={SECRET}", "refused"),
        (f"postgresql://me:{ODD}@127.0.0.1:1/db", "refused"),
        (f"postgresql://me:{SECRET}@[::1/db", "cannot be used"),
        (f"mysql+pymysql://me:{SECRET}@127.0.0.1/db", "its driver is not installed"),
        (f"redis://:{SECRET}@127.0.0.1/0", "redis"),
    ],
)
def test_a_storage_that_is_none(
    sweep: Path, capfd: pytest.CaptureFixture[str], url: str, reason: str
) -> None:
    if url.startswith("postgresql") and optuna_storage._missing_driver(url) is not None:
        pytest.skip("no driver")
    said = refused(capfd, sweep, "--storage", url)
    assert reason in said and "give an Optuna storage URL, such as sqlite:///" in said


@pytest.mark.parametrize("name", ["", "two\nlines", "\x1b[31m", "x" * 600])
def test_a_name_that_no_study_can_have(
    sweep: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    said = refused(capfd, sweep, "--storage", "sqlite://", "--study", name)
    assert "is no name of a study" in said and len(said) < 200


@pytest.mark.parametrize("directions", [["minimize"], ["maximize", "maximize"]])
def test_a_study_of_somebody_else(
    sweep: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], directions: list[str]
) -> None:
    """Also before it has a trial: its owner's next one would be taken for a claim."""
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    optuna.create_study(storage=open_storage(url), study_name="mine", directions=directions)
    assert "no study of specbench workers" in refused(
        capfd, sweep, "--storage", url, "--study", "mine"
    )


def test_another_sweep_on_the_study(
    sweep: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    space = tiny_sweep(tmp_path).space
    joining.join(url, "tiny", {"the sweep file (its hash)": "0123"}, "one", space, 100).close()
    said = refused(capfd, sweep, "--storage", url)
    assert "is another search: its workers have the sweep file (its hash) 0123" in said


def test_an_endpoint_has_nothing_to_share(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "endpoint.yaml"
    file.write_text(
        'name: there\nengine: {kind: endpoint, url: "http://127.0.0.1:9"}\n'
        "model: {target: some/model, draft: some/draft, algorithm: EAGLE3}\n"
        "space: {}\n"
    )
    said = refused(capfd, file, "--storage", f"sqlite:///{tmp_path / 'shared.db'}")
    assert f"{file}:2" in said and "use specbench sweep" in said


def test_neither_a_sweep_nor_a_run(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["worker", "--storage", "sqlite://"])
    assert ended.value.code == 2
    assert "give a sweep file" in capfd.readouterr().err


server = pytest.fixture(scope="module")(running_postgres)


def test_a_user_without_rights(
    sweep: Path, server: Postgres, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither where the tables are to be made, nor where they are there and only to be read."""
    engine = sqlalchemy.create_engine(optuna_storage._with_driver(server.url))
    url = server.url.replace("postgres:", "reader:", 1)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE ROLE reader LOGIN"))
    assert "permission denied" in refused(capfd, sweep, "--storage", url)
    open_storage(server.url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"))
    assert "permission denied" in refused(capfd, sweep, "--storage", url)
    engine.dispose()
