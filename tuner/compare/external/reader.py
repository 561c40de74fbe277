"""Result files of other benchmarks: which benchmark wrote one, and its measurements."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from tuner.compare.external import bench_serving, bench_speculative, specforge, vllm
from tuner.compare.external.fields import has
from tuner.compare.external.record import ForeignRecord, ForeignRun, pooled
from tuner.core.errors import NotComparable, UserError, printable
from tuner.core.json_items import Item, read_items

READ = (
    "sglang.bench_serving's JSONL, bench_speculative.py's JSONL, vllm bench's JSON or SpecForge's "
    "bench_eagle3.py results"
)
SUMMARY = "*/summary.json"
"""Result files in the folder of `vllm bench sweep serve`."""


def is_foreign(path: Path) -> bool:
    """Return True for a file, and for the folder of a vLLM sweep."""
    if path.is_dir():
        return not (path / "run.json").exists() and any(path.glob(SUMMARY))
    return path.is_file()


def read_foreign(path: Path) -> list[ForeignRun]:
    """Return a run for each workload in a file, in the file's order.

    Raises UserError with FILE:LINE for a broken file or an unknown format, and NotComparable with
    the reason if no measurement of the file can be compared with a run.
    """
    files = sorted(path.glob(SUMMARY)) if path.is_dir() else [path]
    items = [item for file in files for item in _read_objects(file)]
    reader = _reader(items)
    records, left_out = _records(items, reader)
    if not records:
        nothing = NotComparable("there is no measurement in it", items[0].where)
        raise left_out[0] if left_out else nothing
    by_workload: dict[str, list[ForeignRecord]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(record)
    notes = [*(f"left out: {error}" for error in left_out), *reader.NOTES]
    return [
        ForeignRun(path, reader.TOOL, workload, *_pool_repeats(group, notes))
        for workload, group in by_workload.items()
    ]


def _read_objects(path: Path) -> list[Item]:
    """Return the objects of a file, their texts printable. Raises UserError with FILE:LINE."""
    items = list(read_items(path, "give a run folder or a file", spread=True))
    for item in items:
        if not isinstance(item.value, dict):
            raise item.wrong(f"{str(item.value)[:40]!r} is not a JSON object. Remove it.")
    if not items:
        raise UserError("there is nothing in it, give a file with results", path)
    return [replace(item, value=_printable(item.value)) for item in items]


def _printable(value: Any) -> Any:
    """Return the value with characters that a terminal or a page must not get as escapes."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(entry) for entry in value]
    if isinstance(value, dict):
        return {printable(name): _printable(entry) for name, entry in value.items()}
    return value


class Reader(Protocol):
    """A module that reads the results of one benchmark."""

    @property
    def TOOL(self) -> str: ...  # noqa: N802
    @property
    def NOTES(self) -> tuple[str, ...]: ...  # noqa: N802

    def recognises(self, item: Item, /) -> bool: ...

    def read(self, item: Item, /) -> Iterable[ForeignRecord | NotComparable]:
        """Yield the measurements of one object, or the reason why one cannot be compared.

        Raises NotComparable with the reason if no measurement can be compared.
        """
        ...


READERS: tuple[Reader, ...] = (bench_serving, bench_speculative, vllm, specforge)


def _reader(items: Iterable[Item]) -> Reader:
    """Return the reader of the benchmark that wrote all items. Raises UserError."""
    readers: dict[str, tuple[Reader, Item]] = {}
    for item in items:
        reader = next((reader for reader in READERS if reader.recognises(item)), None)
        if reader is None:
            raise item.wrong(_describe_unknown(item))
        readers.setdefault(reader.TOOL, (reader, item))
    if len(readers) > 1:
        (one, _), (other, (_, item)), *_ = readers.items()
        raise item.wrong(f"this is of {other}, the lines before are of {one}: split them")
    return next(reader for reader, _ in readers.values())


def _describe_unknown(item: Item) -> str:
    if has(item, "trial", "role", "point"):
        return "this is a run's ledger, give the run's folder, results/NAME/RUN-ID"
    return f"this is none of the results that compare-report reads, give a run folder, {READ}"


def _records(
    items: Iterable[Item], reader: Reader
) -> tuple[list[ForeignRecord], list[NotComparable]]:
    records: list[ForeignRecord] = []
    left_out: list[NotComparable] = []
    for item in items:
        try:
            for found in reader.read(item):
                if isinstance(found, ForeignRecord):
                    records.append(found)
                else:
                    left_out.append(found)
        except NotComparable as error:
            left_out.append(error)
    return records, left_out


def _pool_repeats(
    records: Iterable[ForeignRecord], notes: Iterable[str]
) -> tuple[tuple[ForeignRecord, ...], tuple[str, ...]]:
    """Return one record for each configuration and concurrency, and the notes."""
    groups: dict[tuple[int, str], list[ForeignRecord]] = {}
    for record in records:
        groups.setdefault((record.concurrency, record.configuration), []).append(record)
    shown = list(notes)
    if any(len(group) > 1 for group in groups.values()):
        shown.append(
            "of several measurements of one configuration tokens and seconds are added up; "
            "their percentiles and acceptance cannot be"
        )
    return tuple(pooled(group) for group in groups.values()), tuple(shown)
