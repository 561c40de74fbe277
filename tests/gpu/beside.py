"""Servers that stand beside each other on the same GPUs."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tuner.server.base import Server


@contextmanager
def beside_each_other(
    launches: Sequence[Callable[[], Server]],
) -> Iterator[list[Future[Server]]]:
    """Launched at once; those that started are stopped in the end.

    At once, too: each waits for the memory that was free before its launch.
    """
    with ThreadPoolExecutor(len(launches)) as threads:
        launching = [threads.submit(launch) for launch in launches]
        try:
            yield launching
        finally:
            started = [each.result() for each in launching if each.exception() is None]
            list(threads.map(lambda server: server.stop(), started))
