"""`specbench comm`: which communication settings are worth launching servers for."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tuner.cli.terminal import end_on_signals
from tuner.config.field_types import parse_duration
from tuner.config.loader import LoadedSweep, load_sweep
from tuner.core.errors import UserError
from tuner.core.formatting import interval, number
from tuner.engines import make_engine
from tuner.runs.gpu_lock import claimed, gpus_used, visible_gpus
from tuner.server.all_reduce import CommResults, Setting, SettingResult, TimingOptions
from tuner.sglang.nccl.benchmark import job_by_hand, run_job
from tuner.sglang.nccl.messages import BYTES
from tuner.sglang.nccl.screening import Screened, screened

UNIT = "microseconds of one all-reduce; in brackets 95 % intervals over the rounds"
OF_A_PRESET = "microseconds of all all-reduces of one verify pass together, as the preset has them"
UNLIMITED = 10_000
"""A width that no table reaches."""


def parse_setting(text: str) -> Setting:
    """`NCCL_PROTO=LL,NCCL_ALGO=Ring`, or `unset`. Raises UserError."""
    if text.strip() == "unset":
        return Setting()
    pairs = [part.strip().partition("=") for part in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise UserError(
            f"--setting {text} is no setting, write NCCL_PROTO=LL,NCCL_ALGO=Ring or unset"
        )
    return Setting(tuple(sorted((name, value) for name, _, value in pairs)))


def parse_tokens(text: str) -> tuple[int, ...]:
    """`1,4,8`. Raises UserError."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= 10**6 for word in words):
        raise UserError(f"--tokens {text} is no list of token counts, write 1,4,8")
    return tuple(int(word) for word in words)


def read_options(options: Mapping[str, Any]) -> TimingOptions:
    """The command line's options as values. Raises UserError."""
    tokens, limit = options["tokens"], options["limit"]
    try:
        limit_s = parse_duration(limit)
    except ValueError as error:
        raise UserError(f"--limit: {error}") from error
    if limit_s <= 0:
        raise UserError(f"--limit {limit} leaves no time, write 60s")
    return TimingOptions(
        hidden=options["hidden"],
        dtype=_dtype(options["dtype"]),
        tokens=None if tokens is None else parse_tokens(tokens),
        tp=options["tp"],
        python=options["python"],
        device=options["device"],
        settings=tuple(dict.fromkeys(parse_setting(each) for each in options["setting"])),
        rounds=options["rounds"],
        limit_s=limit_s,
        at_once=options["at_once"],
    )


def _dtype(given: str | None) -> str | None:
    if given is not None and given not in BYTES:
        raise UserError(f"--dtype {given} is not known, write {' or '.join(BYTES)}")
    return given


def run_comm(
    file: Path | None,
    engine: str | None,
    wanted: TimingOptions,
    out: Path | None,
    as_json: bool,
    *,
    share_gpus: bool,
) -> None:
    """Measure, print, and write the file. Raises UserError and EngineFailure."""
    if out is not None and not out.parent.is_dir():
        raise UserError(
            "there is no such folder, give --out a file in one that is there", out.parent
        )
    end_on_signals()
    results = _measure(file, engine, wanted, share_gpus=share_gpus)
    decided = screened(results)
    text = json.dumps({**results.to_json(), "screened": decided.to_json()}, indent=2)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
    else:
        _show(results, decided, out)


def _measure(
    file: Path | None, engine: str | None, wanted: TimingOptions, *, share_gpus: bool
) -> CommResults:
    if file is None and engine is not None:
        raise UserError("--engine is for a sweep file, give one")
    loaded = None if file is None else load_sweep(file, engine=engine)
    job = job_by_hand(wanted, os.environ) if loaded is None else None
    with claimed(_gpus(loaded, wanted), os.environ, share=share_gpus) as claims:
        for note in claims.notes:
            _say(note)
        if job is not None:
            return run_job(job, _say)
        assert loaded is not None
        return make_engine(loaded.sweep).screen_communication(loaded, wanted, os.environ, _say)


def _gpus(loaded: LoadedSweep | None, wanted: TimingOptions) -> Mapping[str, str]:
    """UUIDs by name of the GPUs that are timed."""
    if wanted.device == "cpu":
        return {}
    used = None if loaded is None else gpus_used(loaded.sweep, os.environ)
    if used is not None and (wanted.tp is None or not used):
        return used
    return dict(islice(visible_gpus(os.environ).items(), wanted.tp))


def _say(line: str) -> None:
    click.echo(f"specbench: {line}", err=True)


def _show(results: CommResults, decided: Screened, out: Path | None) -> None:
    title = f"all-reduce over {results.tp} ranks, {results.backend}, {results.device}"
    console = Console(highlight=False, markup=False, soft_wrap=False)
    shown = _shown(results, decided)
    table = _table(title, results, decided, shown)
    if console.measure(table, options=console.options.update(width=UNLIMITED)).minimum <= (
        console.width
    ):
        console.print(table)
    else:  # a table that does not fit would lose digits
        _show_lines(title, results, decided, shown)
    if (more := len(results.measured) - len(shown)) > 0:
        click.echo(f"{more} more, none worth a server: {out or '--out FILE or --json'} has all")
    for note in results.notes:
        click.echo(f"note: {note}")
    names = ", then ".join(each.setting.label() for each in decided.keep)
    click.echo(f"worth a server: {names}")


def _unit(results: CommResults) -> str:
    return OF_A_PRESET if results.simulated else UNIT


def _table(
    title: str, results: CommResults, decided: Screened, shown: Sequence[SettingResult]
) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption=_unit(results),
        caption_justify="left",
    )
    table.add_column("setting", overflow="fold", min_width=20)
    for message in results.messages:
        table.add_column(message.label(), justify="right", no_wrap=False, min_width=11)
    table.add_column("verdict", overflow="fold", min_width=24)
    for each in shown:
        cells = [_cell(each, index) for index in range(len(results.messages))]
        table.add_row(each.setting.label(), *cells, decided.verdict(each.setting))
    return table


def _show_lines(
    title: str, results: CommResults, decided: Screened, shown: Sequence[SettingResult]
) -> None:
    click.echo(f"{title}; {_unit(results)}")
    kept = {each.setting for each in decided.keep}
    for each in shown:
        click.echo(f"{each.setting.label()}: {decided.verdict(each.setting)}")
        if each.setting in kept:
            for index, message in enumerate(results.messages):
                click.echo(f"  {message.label()}: {_cell(each, index)}")


def _shown(results: CommResults, decided: Screened) -> list[SettingResult]:
    found = {each.setting: each for each in results.measured}
    return [found[setting] for setting in decided.shown]


def _cell(each: SettingResult, index: int) -> str:
    if each.failure is not None:
        return "-"
    us = each.latency(index)
    if us.low == us.high:
        return number(us.value, 1, inf)
    return interval(us.value, us.low, us.high, 1, inf)
