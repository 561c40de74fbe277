"""A server that spans hosts: rank 0 serves, the others join it over TCP and end with it.

As in SGLang, rank 0 loads when all are there, and a rank that is lost leaves it waiting in its next
forward, alive and silent.
"""

import asyncio
from contextlib import suppress
from typing import NoReturn

from tuner.simulator import startup
from tuner.simulator.arguments import Arguments
from tuner.simulator.faults import kill_self
from tuner.simulator.log import log
from tuner.simulator.scheduler import Scheduler

_PAUSE_S = 0.02


class Others:
    """Ranks that have joined rank 0."""

    def __init__(self) -> None:
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._joined = asyncio.Event()
        self._server: asyncio.Server | None = None

    @classmethod
    async def gathered(cls, arguments: Arguments) -> "Others | None":
        """Wait for all other ranks. Returns None if the server has one host."""
        wanted = arguments.server_args["nnodes"] - 1
        if wanted < 1:
            return None
        others = cls()
        host, port = rank_address(arguments)
        others._server = await asyncio.start_server(others._join, host, port)
        while len(others._streams) < wanted:
            others._joined.clear()
            await others._joined.wait()
        return others

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.append((reader, writer))
        self._joined.set()

    async def led(self, scheduler: Scheduler) -> None:
        """Send the number of tokens to the other ranks. Stop the scheduler when a rank is lost."""
        lost = [asyncio.ensure_future(reader.read()) for reader, _ in self._streams]
        while not any(stream.done() for stream in lost):
            for _, writer in self._streams:
                writer.write(b"%d\n" % scheduler.generated)
            await asyncio.sleep(_PAUSE_S)
        scheduler.is_stuck = True
        await asyncio.Event().wait()


async def follow(arguments: Arguments) -> NoReturn:
    """Run a rank other than 0, with its faults."""
    reader, _writer = await _joined(arguments)  # both: a writer that nobody holds is closed
    await startup.play(arguments)
    log(f"node_rank {arguments.server_args['node_rank']} is up")
    while line := await reader.readline():
        arguments.faults.strike(int(line), arguments.performance.tp)
    log("the store of rank 0 is gone: Connection was closed by the peer")
    kill_self()


async def _joined(arguments: Arguments) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to rank 0. Its host may start later than this one."""
    host, port = rank_address(arguments)
    while True:
        with suppress(OSError):
            return await asyncio.open_connection(host, port)
        await asyncio.sleep(_PAUSE_S)


def rank_address(arguments: Arguments) -> tuple[str, int]:
    """Return host and port at which rank 0 waits for the other ranks."""
    host, _, port = str(arguments.server_args["dist_init_addr"]).rpartition(":")
    return host, int(port)
