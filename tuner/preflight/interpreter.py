"""Checks of the server's interpreter: what it has, which release that is, the draft-TP plug-in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.preflight.finding import Finding
from tuner.sglang.interpreter import Installed
from tuner.sglang.plugin.specbench_sglang.problems import NotPatched
from tuner.sglang.plugin.specbench_sglang.versions import PROVEN, PROVEN_ON_GPUS, parse
from tuner.sglang.releases import Release

ENTRY = "specbench_sglang"
"""The package that the plug-in's entry point names."""


@dataclass(frozen=True)
class Carrier:
    """The plug-in's files, and whether the server's interpreter finds it there."""

    folder: Path
    is_whole: bool
    is_seen: bool | None
    """None where the interpreter was not asked, or is of a release that looks for no plug-ins."""


def interpreter(python: str, found: Installed | None, *, needed: bool) -> Iterator[Finding]:
    """SGLang and torch by their metadata. Where none is needed, nothing is more than ok."""
    remedy = "set engine.python to the interpreter that has SGLang"
    if found is None:
        yield Finding("stop" if needed else "ok", "interpreter", f"{python} does not run",
                      remedy if needed else None)  # fmt: skip
        return
    yield Finding("ok", "interpreter", f"{python}, Python {found.python}")
    if found.sglang is None:
        if not needed:
            yield Finding("ok", "SGLang", "not here: a sweep names its own as engine.python")
        return  # the release's own finding says that it is not known
    if found.torch is None:
        yield Finding(
            "doubt", "torch", "the interpreter has no torch by its metadata",
            "SGLang runs on it: pip install torch there, if it is not another way's",
        )  # fmt: skip
    else:
        yield Finding("ok", "torch", found.torch)


def release(of: Release, installed: str | None) -> Finding:
    """Whether it is one of the table, and the one that the interpreter has."""
    if of.warning is not None:
        return Finding("doubt", "SGLang", of.warning, "docs/releases.md says what that means")
    if installed not in (None, of.asked):
        return Finding(
            "doubt", "SGLang", f"engine.release says {of.asked}, the interpreter has {installed}",
            "leave engine.release away: what the interpreter has is found out",
        )  # fmt: skip
    return Finding("ok", "SGLang", f"{of.asked}, a release that specbench knows")


def plugin(carrier: Carrier, of: Release) -> Finding:
    """The draft-TP plug-in, for a sweep that moves the draft."""
    if not carrier.is_whole:
        todo = "install specbench again"
        return Finding("stop", "plug-in", f"its files are not in {carrier.folder}", todo)
    if carrier.is_seen is False:
        return Finding(
            "doubt", "plug-in", f"the interpreter does not find it in {carrier.folder}",
            "PYTHONPATH must reach SGLang's interpreter; a server without it is NOT_PATCHED",
        )  # fmt: skip
    try:
        parse(of.asked)
    except NotPatched as error:
        return Finding("doubt", "plug-in", str(error), "leave draft_tp away, or use a known SGLang")
    on_gpus = f"on GPUs proven with {' and '.join(PROVEN_ON_GPUS)} only"
    if of.warning is not None or of.known not in PROVEN:
        read = f"read against SGLang {of.known}"
        read += ", never run on it" if of.warning is None else f", which {of.asked} is not"
        return Finding(
            "doubt", "plug-in", f"{read}; {on_gpus}",
            "look at the first launch with draft_tp: NOT_PATCHED says that it does not fit",
        )  # fmt: skip
    if of.known not in PROVEN_ON_GPUS:
        return Finding("ok", "plug-in", f"found, and run on SGLang {of.known} on a CPU; {on_gpus}")
    return Finding("ok", "plug-in", f"found, and run on SGLang {of.known} before")
