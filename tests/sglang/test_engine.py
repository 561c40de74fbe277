"""What the real engine refuses before it starts anything."""

import sys
from pathlib import Path

import pytest

from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import UserError
from tuner.engines import make_engine


def loaded(folder: Path, python: str, site: Path | None = None) -> LoadedSweep:
    """A sweep for this interpreter, which finds what is in `site`."""
    path = folder / "s.yaml"
    path.write_text(
        f"name: s\nengine:\n  kind: sglang\n  python: {python}\n"
        "model: {target: t, draft: d, algorithm: EAGLE3, tp: 2}\n"
        + (f"server: {{env: {{PYTHONPATH: {site}}}}}\n" if site else "")
        + "space: {num_steps: [1]}\n"
    )
    return load_sweep(path)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with something that can be found as sglang, and breaks when it is imported."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("raise RuntimeError('imported')")
    return tmp_path


def test_an_interpreter_with_sglang_is_accepted_without_importing_it(
    site: Path, tmp_path: Path
) -> None:
    """Importing SGLang takes half a minute and opens the GPU."""
    given = loaded(tmp_path, sys.executable, site)
    make_engine(given.sweep).refuse(given)


@pytest.mark.parametrize("python", ["/no/such/python", sys.executable])
def test_an_interpreter_without_sglang_is_refused_with_the_remedy(
    tmp_path: Path, python: str
) -> None:
    """Otherwise the first launch fails after the user has gone home."""
    given = loaded(tmp_path, python)
    with pytest.raises(UserError, match=r"s\.yaml:4: engine\.python: .*set engine\.python"):
        make_engine(given.sweep).refuse(given)


def test_a_folder_called_sglang_is_not_sglang(tmp_path: Path) -> None:
    """A checkout beside the sweep file makes an empty namespace package."""
    (tmp_path / "sglang").mkdir()
    given = loaded(tmp_path, sys.executable, tmp_path)
    with pytest.raises(UserError, match="has no sglang"):
        make_engine(given.sweep).refuse(given)


def test_a_virtual_environment_in_the_interpreters_place_is_told_apart(tmp_path: Path) -> None:
    """`Permission denied` sends people to chmod."""
    given = loaded(tmp_path, str(tmp_path))
    inside = f"{tmp_path} is a folder, write the interpreter in it, as {tmp_path}/bin/python"
    with pytest.raises(UserError, match=inside):
        make_engine(given.sweep).refuse(given)
    notes = make_engine(given.sweep).check(given).notes
    assert any(f"no SGLang found in {tmp_path}: planned for 0." in each for each in notes), notes
