"""Log lines in SGLang's shape."""

import sys
import time


def log(message: str, rank: int | None = None) -> None:
    """Write a line to stderr as SGLang does; with `rank`, as the scheduler of that rank does."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    who = "" if rank is None else f" TP{rank}"
    sys.stderr.write(f"[{stamp}{who}] {message}\n")
    sys.stderr.flush()


def access(client: str, method: str, path: str, status: int, reason: str) -> None:
    """Write a line for a request as uvicorn does."""
    log(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {reason}')
