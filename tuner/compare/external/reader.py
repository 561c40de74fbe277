"""Which benchmark wrote a file, and what is in it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tuner.compare.external import bench_serving, bench_speculative, specforge, vllm
from tuner.compare.external.documents import JsonDocument, read_documents
from tuner.compare.external.record import ForeignRecord, ForeignRun, pooled
from tuner.core.errors import NotComparable, UserError

READ = (
    "sglang.bench_serving's JSONL, bench_speculative.py's JSONL, vllm bench's JSON or SpecForge's "
    "bench_eagle3.py results"
)
SUMMARY = "*/summary.json"
"""Of a folder that `vllm bench sweep serve` wrote."""


def is_foreign(path: Path) -> bool:
    """Whether this is to be read here: a file, or a vLLM sweep's folder."""
    if path.is_dir():
        return not (path / "run.json").exists() and any(path.glob(SUMMARY))
    return path.is_file()


def read_foreign(path: Path) -> list[ForeignRun]:
    """A run for each workload in a file, in the file's order.

    Raises UserError with FILE:LINE for a file that is broken or of an unknown format, NotComparable
    with the reason where nothing in it can be held against a run.
    """
    files = sorted(path.glob(SUMMARY)) if path.is_dir() else [path]
    found = [document for file in files for document in read_documents(file)]
    reader = _reader(found)
    records, left_out = _records(found, reader)
    if not records:
        nothing = NotComparable("there is no measurement in it", found[0].where)
        raise left_out[0] if left_out else nothing
    by_workload: dict[str, list[ForeignRecord]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(record)
    told = [*(f"left out: {error}" for error in left_out), *reader.NOTES]
    return [
        ForeignRun(path, reader.TOOL, workload, *_once(each, told))
        for workload, each in by_workload.items()
    ]


class Reader(Protocol):
    """A module that reads the results of one benchmark."""

    @property
    def TOOL(self) -> str: ...  # noqa: N802
    @property
    def NOTES(self) -> tuple[str, ...]: ...  # noqa: N802

    def recognises(self, found: JsonDocument, /) -> bool: ...

    def read(self, found: JsonDocument, /) -> Iterable[ForeignRecord | NotComparable]:
        """The measurements of one object, or why one cannot be compared; that is raised where it
        holds for all of them."""
        ...


READERS: tuple[Reader, ...] = (bench_serving, bench_speculative, vllm, specforge)


def _reader(found: Iterable[JsonDocument]) -> Reader:
    """Of the benchmark that wrote all of the file."""
    readers: dict[str, tuple[Reader, str]] = {}
    for document in found:
        reader = next((each for each in READERS if each.recognises(document)), None)
        if reader is None:
            raise UserError(_unknown(document), document.where)
        readers.setdefault(reader.TOOL, (reader, document.where))
    if len(readers) > 1:
        (one, _), (other, (_, where)), *_ = readers.items()
        raise UserError(f"this is of {other}, the lines before are of {one}: split them", where)
    return next(reader for reader, _ in readers.values())


def _unknown(document: JsonDocument) -> str:
    if document.has("trial", "role", "point"):
        return "this is a run's ledger, give the run's folder, results/NAME/RUN-ID"
    return f"this is none of the results that compare-report reads, give a run folder, {READ}"


def _records(
    found: Iterable[JsonDocument], reader: Reader
) -> tuple[list[ForeignRecord], list[NotComparable]]:
    records: list[ForeignRecord] = []
    left_out: list[NotComparable] = []
    for document in found:
        try:
            for each in reader.read(document):
                if isinstance(each, ForeignRecord):
                    records.append(each)
                else:
                    left_out.append(each)
        except NotComparable as error:
            left_out.append(error)
    return records, left_out


def _once(
    records: Iterable[ForeignRecord], told: Iterable[str]
) -> tuple[tuple[ForeignRecord, ...], tuple[str, ...]]:
    """Repeats pooled, and the notes with a word of that."""
    groups: dict[tuple[int, str], list[ForeignRecord]] = {}
    for record in records:
        groups.setdefault((record.concurrency, record.configuration), []).append(record)
    notes = list(told)
    if any(len(each) > 1 for each in groups.values()):
        notes.append(
            "of several measurements of one configuration tokens and seconds are added up; "
            "their percentiles and acceptance cannot be"
        )
    return tuple(pooled(each) for each in groups.values()), tuple(notes)
