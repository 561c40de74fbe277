"""What the load client costs, against other benchmarks' clients on the same streams.

    python -m benchmarks.client_overhead [--quick] [--json] [--out FILE]
    python -m benchmarks.client_overhead --own            specbench's alone: nothing to install
    python -m benchmarks.client_overhead --bound          from which CPU share on it is wrong

Two loads at each concurrency. *flood*: the server sends as fast as the client reads, which gives
the most tokens per second that it can take. *paced*: the first token after 50 ms, then one each
10 ms on every stream, in a write of its own, as from a fast server; what the client says is held
against what the server did. CPU seconds per million tokens come from both. A run of specbench
stands before each rival's, so that ratios are of neighbours in time.

`python -m benchmarks.client_overhead.install` puts the rivals into .venv-clients.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client_overhead.entrants import OURS, RIVALS, Entrant, Load, why_missing
from benchmarks.client_overhead.measure import Measured, Pace, RunFailed, cores, measure
from tuner.runs.machine import machine_facts

FLOOD, PACED = Pace(), Pace(first_ms=50.0, each_ms=10.0)
FLOOD_TOKENS, PACED_TOKENS = 256, 128
FULL = {1: (64, 6), 64: (512, 192), 256: (1024, 512)}
QUICK = {64: (256, 128)}
"""Requests of each load by concurrency: flood, paced."""
BOUND_MS = (20.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0)


def runs(rivals: Sequence[Entrant], sizes: dict[int, tuple[int, int]]) -> Iterator[Measured]:
    """All of them, ours between the others. A rival that fails is said and left out of the rest."""
    for concurrency, (flood, paced) in sizes.items():
        for pace, requests, tokens in ((FLOOD, flood, FLOOD_TOKENS), (PACED, paced, PACED_TOKENS)):
            load = Load(concurrency, requests, tokens)
            yield measure(OURS[1], load, pace)
            for rival in rivals or [None]:
                yield measure(OURS[0], load, pace)
                if rival is None:
                    continue
                try:
                    yield measure(rival, load, pace)
                except RunFailed as failure:
                    print(failure, file=sys.stderr)


def table(found: Sequence[Measured]) -> list[dict[str, Any]]:
    """A row for each client, load and concurrency: medians, and ratios to specbench's own run just
    before it."""
    groups: dict[tuple[int, bool, str], list[dict[str, Any]]] = {}
    ours: dict[str, Any] = {}
    for each in found:
        row = each.to_json()
        if each.client == OURS[0].name:
            ours = row
        same = ours and (each.concurrency, each.paced) == (ours["concurrency"], ours["paced"])
        if same:
            # A load of milliseconds can be over before the client's clock is first read.
            least = ours["cpu_s_per_million_tokens"]
            row["times_our_cpu"] = row["cpu_s_per_million_tokens"] / least if least else None
            row["times_our_speed"] = row["tok_s"] / ours["tok_s"]
        truth, told = row["server"], row["client_said"]
        for name in told:
            row[f"{name}_off"] = told[name] / truth[name] - 1 if truth[name] else None
        groups.setdefault((each.concurrency, each.paced, each.client), []).append(row)
    return [_row(*key, rows) for key, rows in groups.items()]


def _row(concurrency: int, paced: bool, client: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = ["tok_s", "cpu_s_per_million_tokens", "cpu_share", "times_our_cpu"]
    names += ["added_ttft_ms", "tok_s_off", "ttft_ms_off", "tpot_ms_off"] if paced else []
    names += [] if paced else ["times_our_speed"]
    load = "paced" if paced else "flood"
    middle: dict[str, Any] = {}
    for name in names:
        known = [row[name] for row in rows if row.get(name) is not None]
        middle[name] = median(known) if known else None
    head = {"client": client, "concurrency": concurrency, "load": load, "runs": len(rows)}
    return {**head, **middle}


def bound() -> list[dict[str, Any]]:
    """specbench's own client at ever shorter times between tokens, 256 streams."""
    found = []
    for each_ms in BOUND_MS:
        row = measure(OURS[0], Load(256, 512, 128), Pace(50.0, each_ms)).to_json()
        truth, told = row["server"], row["client_said"]
        # A server that keeps its pace needs this long a token; what it takes longer, it was held.
        off = {f"{name}_off": told[name] / truth[name] - 1 for name in told}
        off["server_tpot_off"] = truth["tpot_ms"] / each_ms - 1
        found.append({"pace_ms": each_ms, "tok_s": row["tok_s"], "share": row["cpu_share"], **off})
        print(_line(found[-1]), file=sys.stderr)
    return found


def _line(row: dict[str, Any]) -> str:
    def shown(name: str, value: Any) -> str:
        if value is None or isinstance(value, str | int):
            return f"{name} {value}"
        if name.endswith("_off"):
            return f"{name} {value:+.1%}"
        return f"{name} {value:.3g}" if abs(value) < 100 else f"{name} {value:.0f}"

    return ", ".join(shown(name, value) for name, value in row.items())


def main() -> None:
    """Exits 1 where specbench's own client fails."""
    reading = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m benchmarks.client_overhead"
    )
    reading.add_argument("--quick", action="store_true", help="concurrency 64 alone, short loads")
    reading.add_argument("--own", action="store_true", help="no other client")
    reading.add_argument("--bound", action="store_true", help="where a busy client goes wrong")
    reading.add_argument("--json", action="store_true", help="everything, on standard output")
    reading.add_argument("--out", type=Path, help="everything, into a file")
    wanted = reading.parse_args()
    versions = {each.name: each.version() for each in (*OURS, *RIVALS)}
    missing = {each.name: why_missing(each) for each in RIVALS if versions[each.name] is None}
    rivals = [each for each in RIVALS if versions[each.name] and not wanted.own]
    for name, why in missing.items():
        print(f"{name}: {why}", file=sys.stderr)
    report: dict[str, Any] = {
        "machine": {**machine_facts(), "load_average": os.getloadavg()[0]},
        "cores": {"server": cores()[0], "client": cores()[min(1, len(cores()) - 1)]},
        "versions": versions,
        "missing": missing,
    }
    try:
        if wanted.bound:
            report["bound"] = bound()
        else:
            found = []
            for each in runs(rivals, QUICK if wanted.quick else FULL):
                found.append(each)
                print(_line(table([each])[0]), file=sys.stderr)
            report |= {"table": table(found), "runs": [each.to_json() for each in found]}
    except RunFailed as failure:
        sys.exit(str(failure))
    text = json.dumps(report, indent=1) + "\n"
    if wanted.out:
        wanted.out.parent.mkdir(parents=True, exist_ok=True)
        wanted.out.write_text(text, encoding="utf-8")
    if wanted.json:
        print(text, end="")
    else:
        for row in report.get("table", report.get("bound", [])):
            print(_line(row))


if __name__ == "__main__":
    main()
