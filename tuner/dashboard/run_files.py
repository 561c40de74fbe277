"""Files of a run folder as artifacts of the dashboard. Nothing is copied."""

import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from optuna.artifacts import ArtifactMeta

_KINDS = {".png": "image/png"} | dict.fromkeys(
    (".log", ".json", ".jsonl", ".yaml", ".sh", ".md"), "text/plain; charset=utf-8"
)
"""Files that a browser may show. It saves others: HTML of a run folder must not run scripts on the
dashboard's address."""


def artifact_id(file: str) -> str:
    """Return the id of a path in the run folder, in hexadecimal, as the dashboard's URLs want."""
    return file.encode("utf-8").hex()


def link_files(files: Iterable[str]) -> dict[str, str]:
    """Return the system attributes that make files artifacts of a trial or a study.

    `optuna.artifacts.upload_artifact` writes the same attributes, but copies each file.
    """
    return {f"artifacts:{artifact_id(file)}": json.dumps(asdict(_meta(file))) for file in files}


def _meta(file: str) -> ArtifactMeta:
    kind = _KINDS.get(Path(file).suffix, "application/octet-stream")
    return ArtifactMeta(artifact_id(file), file, kind, None)


class RunFiles:
    """Read-only artifact store of Optuna over a run folder.

    An id is a path in the folder, so a study that somebody else made cannot name another file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open the file, or return a sentence if the folder does not have it."""
        try:
            file = bytes.fromhex(artifact_id).decode("utf-8")
            path = (self._folder / file).resolve()
            if path.is_relative_to(self._folder) and path.is_file():
                return path.open("rb")
        except (OSError, ValueError):
            pass
        return io.BytesIO(b"The run folder has no such file.\n")

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:  # noqa: ARG002
        """Raise PermissionError: only specbench writes to a run folder."""
        raise PermissionError("files cannot be added to a run folder")

    def remove(self, artifact_id: str) -> None:
        """Keep the file. The dashboard forgets its link."""
