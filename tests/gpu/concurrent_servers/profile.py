"""What the GPU does in some cycles of a server: SGLang's own profiler, its kernels added up."""

import gzip
import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import requests

STEPS = 20
"""Forward passes of the target that are profiled."""
TOKENS = 400
SHOWN = 25
"""Kernels that are named, those that take longest."""
ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
WAIT_S = 60.0

Event = Mapping[str, Any]


def profile(url: str, prompt: Mapping[str, Any]) -> dict[str, Any]:
    """Kernel times of the first rank while it answers `prompt`; see `kernels`.

    The profiler slows the host, so gaps between kernels are longer than without it. Raises
    TimeoutError where SGLang leaves no trace.
    """
    sampling = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    body = {**prompt, "sampling_params": sampling}
    with TemporaryDirectory() as folder:
        answering = threading.Thread(
            target=requests.post, args=(f"{url}/generate",), kwargs={"json": body, "timeout": 120}
        )
        answering.start()
        time.sleep(0.15)  # past the prefill
        asked = {"output_dir": folder, "num_steps": STEPS, "activities": ["CPU", "GPU"]}
        requests.post(f"{url}/start_profile", json=asked, timeout=60).raise_for_status()
        answering.join()
        return kernels(_events(Path(folder)))


def _events(folder: Path) -> list[Event]:
    """Of the first rank's trace, once it is written to its end."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for trace in sorted(folder.rglob("*.gz"))[:1]:
            try:
                return list(json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"])
            except (EOFError, gzip.BadGzipFile, ValueError):
                pass  # it is being written
        time.sleep(0.5)
    raise TimeoutError(f"no trace in {folder} after {WAIT_S:g} s")


def kernels(events: Iterable[Event]) -> dict[str, Any]:
    """Microseconds: the span from first to last kernel, how much of it any ran, sums by name."""
    ran = sorted(
        (event["ts"], event["ts"] + event["dur"], str(event["name"]))
        for event in events
        if event.get("cat") in ON_GPU
    )
    if not ran:
        return {"steps": STEPS, "span_us": 0.0, "busy_us": 0.0, "kernels": []}
    busy, reach = 0.0, ran[0][0]
    sums: dict[str, list[float]] = {}
    for start, end, name in ran:
        busy += max(0.0, end - max(start, reach))
        reach = max(reach, end)
        known = sums.setdefault(name[:90], [0, 0.0])
        known[0] += 1
        known[1] += end - start
    longest = sorted(sums.items(), key=lambda item: -item[1][1])[:SHOWN]
    shown = [{"name": name, "calls": calls, "us": round(us)} for name, (calls, us) in longest]
    return {
        "steps": STEPS,
        "span_us": round(reach - ran[0][0]),
        "busy_us": round(busy),
        "kernels": shown,
    }
