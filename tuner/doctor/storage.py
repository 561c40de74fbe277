"""The check of `search.storage`."""

from pathlib import Path

from tuner.doctor.finding import Finding

_SQLITE = "sqlite:///"


def storage(url: str | None) -> Finding:
    """Opens the storage as a sweep does, but makes no SQLite file that is not there."""
    from tuner.search.storages import StorageUnusable, open_storage

    if url is None:
        return Finding("ok", "storage", "study.db in the run folder")
    if url.startswith(f"{_SQLITE}file:") or "?" in url:
        return Finding("ok", "storage", "not looked at: its URL has options")
    if url.startswith(_SQLITE) and not (file := Path(url.removeprefix(_SQLITE))).exists():
        if file.parent.is_dir():
            return Finding("ok", "storage", f"{file} will be made")
        todo = f"make the folder {file.parent}"
        return Finding("stop", "storage", f"there is no folder for {file}", todo)
    try:
        open_storage(url)
    except StorageUnusable as error:
        todo = "give an Optuna storage URL as search.storage"
        return Finding("stop", "storage", f"it cannot be used ({error})", todo)
    return Finding("ok", "storage", "it opens")
