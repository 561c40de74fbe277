"""A run folder's own files as artifacts of the dashboard: nothing is copied."""

import io
import json
from pathlib import Path
from typing import BinaryIO

PREFIX = "artifacts:"
"""Of the system attribute that optuna-dashboard knows an artifact by."""

_KINDS = {".png": "image/png"} | dict.fromkeys(
    (".log", ".json", ".jsonl", ".yaml", ".sh", ".md"), "text/plain; charset=utf-8"
)
"""What a browser may show. The rest it saves: a page of a run folder must not run its scripts
here, where the dashboard answers."""


def artifact_id(file: str) -> str:
    """Of a file, by its path in the run folder: hexadecimal, as the dashboard's addresses are."""
    return file.encode("utf-8").hex()


def linked(files: tuple[str, ...]) -> dict[str, str]:
    """The system attributes that make files artifacts of a trial or a study."""
    return {PREFIX + artifact_id(file): json.dumps(_described(file)) for file in files}


def _described(file: str) -> dict[str, str | None]:
    kind = _KINDS.get(Path(file).suffix, "application/octet-stream")
    name = {"artifact_id": artifact_id(file), "filename": file}
    return {**name, "mimetype": kind, "encoding": None}


class RunFiles:
    """Optuna's ArtifactStore over a run folder, to read only.

    An id is a path in the folder, so a study that was rebuilt, or made by somebody else, can name
    no file outside of it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """The file; a sentence in its place where the folder has it no more."""
        try:
            file = bytes.fromhex(artifact_id).decode("utf-8")
            path = (self._folder / file).resolve()
            if path.is_relative_to(self._folder) and path.is_file():
                return path.open("rb")
        except (OSError, ValueError):
            pass
        return io.BytesIO(b"The run folder has no such file.\n")

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:  # noqa: ARG002
        """Raises PermissionError: a run folder holds what specbench wrote."""
        raise PermissionError("files cannot be added to a run folder")

    def remove(self, artifact_id: str) -> None:
        """Nothing: the dashboard then forgets its link, and the run keeps its file."""
