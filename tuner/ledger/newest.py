"""Run folders below a folder, the newest first: run ids are times, so by name."""

from pathlib import Path

RESULTS = Path("results")
"""Where runs are, where nobody says otherwise."""


def newest_runs(below: Path = RESULTS) -> list[Path]:
    """Runs in a sweep's folder, or in the folders of several sweeps; the newest first."""
    found = [file.parent for deep in ("*", "*/*") for file in below.glob(f"{deep}/run.json")]
    return sorted(found, key=_age, reverse=True)


def no_run_words(path: Path) -> str:
    """What is wrong with a path that is given as a run and is none, and what would be right."""
    inside = newest_runs(path)
    right = f"its newest run is {inside[0]}" if inside else "give results/NAME/RUN-ID"
    return f"this is no run folder (it has no run.json), {right}"


def _age(path: Path) -> tuple[str, int, str, str]:
    """`20261130-135237-10` came after `20261130-135237-2` of the same second."""
    name = path.name
    return name[:15], len(name), name, str(path)
