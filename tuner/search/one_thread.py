"""Linear algebra in one thread: matrices here are small, and threads that wait for each other spin
on CPUs that a server and its load client are measured on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_thread() -> Iterator[None]:
    """Numpy's BLAS has one thread within. Also a decorator."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@cache
def _controller() -> ThreadpoolController:
    """Of the libraries that are loaded, numpy's among them; to find them takes milliseconds."""
    return ThreadpoolController()
