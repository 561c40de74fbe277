"""Log lines in SGLang's shape."""

import sys
import time


def log(message: str, rank: int | None = None) -> None:
    """One line to stderr, as a process of SGLang or, with `rank`, one of its schedulers writes."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    who = "" if rank is None else f" TP{rank}"
    sys.stderr.write(f"[{stamp}{who}] {message}\n")
    sys.stderr.flush()


def access(client: str, method: str, path: str, status: int, reason: str) -> None:
    """One line for a request, as uvicorn writes it."""
    log(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {reason}')
