"""A run keeps what its models are: where they are gone or others, its report needs that."""

import json
from pathlib import Path

import pytest

from tests.factories import make_settings
from tests.sglang.memory.configs import EAGLE3_DRAFT, LLAMA_8B
from tuner.core.errors import UserError
from tuner.runs.run import Run

TEXT = """\
name: trial
engine: {kind: sglang, python: /opt/sglang/bin/python}
model: {target: FOLDER/target, draft: FOLDER/draft, algorithm: EAGLE3}
space: {num_steps: [1, 3]}
"""


def begun(folder: Path, text: str = TEXT) -> Run:
    return Run.create(folder / "results", text.replace("FOLDER", str(folder)), make_settings())


def put(folder: Path, name: str, config: object) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "config.json").write_text(json.dumps(config))


def test_what_it_was_stays_whatever_becomes_of_the_files(tmp_path: Path) -> None:
    put(tmp_path, "target", LLAMA_8B | {"name": "\ud800"})  # no UTF-8, but JSON
    put(tmp_path, "draft", EAGLE3_DRAFT)
    run = begun(tmp_path)
    with run.locked():
        put(tmp_path, "target", LLAMA_8B | {"num_hidden_layers": 80})
    (tmp_path / "draft" / "config.json").unlink()
    with run.locked():
        pass
    found = Run.open(run.path).configs()
    assert found == {"target": LLAMA_8B | {"name": "\ud800"}, "draft": EAGLE3_DRAFT}


def test_a_model_that_a_server_fetched_is_kept_too(tmp_path: Path) -> None:
    put(tmp_path, "target", LLAMA_8B)
    run = begun(tmp_path)
    with pytest.raises(KeyboardInterrupt), run.locked():
        assert set(run.configs()) == {"target"}
        put(tmp_path, "draft", EAGLE3_DRAFT)
        raise KeyboardInterrupt
    assert run.configs() == {"target": LLAMA_8B, "draft": EAGLE3_DRAFT}


def test_a_run_without_known_models_has_no_such_file(tmp_path: Path) -> None:
    put(tmp_path, "target", LLAMA_8B)
    simulated = TEXT.replace("sglang, python: /opt/sglang/bin/python", "simulated")
    for run in (begun(tmp_path, simulated), begun(tmp_path / "elsewhere")):
        with run.locked():
            pass
        assert not run.models_file.exists()
        assert run.configs() == {}


@pytest.mark.parametrize("broken", ['{"target"', "[]", '{"target": 1}', "[" * 100_000])
def test_a_broken_file_is_named(tmp_path: Path, broken: str) -> None:
    run = begun(tmp_path)
    run.models_file.write_text(broken)
    with pytest.raises(UserError, match=r"models\.json: this is no.*, restore it or delete it"):
        run.configs()
