"""`specbench doctor`: gathers the facts and asks every check that applies."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tuner.config.loader import LoadedSweep
from tuner.config.schema import Sweep
from tuner.core.errors import EngineFailure, UserError
from tuner.engines import make_engine
from tuner.preflight import interpreter, machine, servers
from tuner.preflight.finding import Finding
from tuner.runner.observations import refuse_missing_library
from tuner.runs.gpu_lock import OWN_FOLDER, gpus_used, holders, why_not_known
from tuner.runs.machine import inherited_variables
from tuner.server.gpu import visible_gpus
from tuner.server.memory import without_misfits
from tuner.server.ports import free_port
from tuner.sglang.interpreter import installed_packages
from tuner.sglang.server_settings import Launches


def examine_machine(results: Path) -> Iterator[Finding]:
    """What can be said without a sweep."""
    yield from interpreter.interpreter(
        sys.executable, installed_packages(sys.executable), needed=False
    )
    found = visible_gpus(os.environ)
    yield from machine.gpus(found, None)
    yield from machine.links(found)
    yield from _common(results, frozenset())


def examine_sweep(loaded: LoadedSweep, results: Path) -> Iterator[Finding]:
    """All that can be said of a sweep before it runs; launches nothing."""
    yield from _refusals(loaded)
    sweep = loaded.sweep
    yield machine.storage(sweep.search.storage)
    if sweep.engine.is_simulated:
        yield Finding("ok", sweep.engine.kind, "interpreter, GPUs and models are not looked at")
        yield from _common(results, frozenset(sweep.server.env) | frozenset(sweep.space.env))
    elif not sweep.engine.launches_servers:
        yield Finding("ok", sweep.engine.kind, "what it runs with is not looked at")
        yield _disk(results)
    else:
        launches = Launches(sweep, os.environ)
        yield from servers.examine(launches)
        yield from find_locks(sweep, os.environ)
        yield from _common(results, launches.settled)


def find_locks(sweep: Sweep, inherited: Mapping[str, str]) -> Iterator[Finding]:
    """Runs that have the GPUs of the sweep, and where that cannot be told."""
    for taken in holders(sweep, inherited):
        yield machine.taken(taken)
    if (why := why_not_known(gpus_used(sweep, inherited), inherited)) is not None:
        yield Finding("doubt", "GPUs", why, OWN_FOLDER)


def _refusals(loaded: LoadedSweep) -> Iterator[Finding]:
    """What the sweep itself would refuse, in its own words and order."""
    try:
        engine = make_engine(loaded.sweep)
        checked = engine.check(loaded)
        engine.refuse(checked.loaded)
        refuse_missing_library(loaded)
        meant = engine.estimate_memory(loaded.sweep)
        fitting = without_misfits(checked, meant)
    except UserError as error:
        yield Finding("stop", "sweep", str(error))
        return
    yield Finding("ok", "sweep", f"{loaded.path}: {len(loaded.space.points)} points")
    if meant is not None:
        yield from machine.fits(checked, fitting, meant)


def _common(results: Path, settled: frozenset[str]) -> Iterator[Finding]:
    try:
        free_port()
        yield machine.ports(None)
    except EngineFailure as error:
        yield machine.ports(error.message)
    yield _disk(results)
    yield machine.variables(inherited_variables(os.environ), settled)


def _disk(results: Path) -> Finding:
    folder = results.absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return machine.disk(machine.Disk(folder, free, os.access(folder, os.W_OK | os.X_OK)))
