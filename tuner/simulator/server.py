"""Run one server: load, open the socket, warm up, serve, and end as SGLang ends."""

import asyncio
import os
import signal
import socket
from contextlib import suppress

from aiohttp import web

from tuner.simulator import multi_node, openai_routes, routes, startup
from tuner.simulator.arguments import Arguments
from tuner.simulator.faults import die_warming, kill_self, start_orphan
from tuner.simulator.log import log
from tuner.simulator.protocol import Limits, new_request
from tuner.simulator.scheduler import Scheduler
from tuner.simulator.state import ServerState

_PARENT_CHECK_S = 0.5
_DRAIN_CHECK_S = 0.05
_BACKLOG = 1024
_LARGEST_BODY = 256 * 1024**2


async def serve(arguments: Arguments, parent_pid: int) -> int:
    """Run a server to its end. Returns 0 after SIGINT; SIGTERM drains and ends by SIGKILL.

    It also ends with the process `parent_pid`, unless the arguments say otherwise.
    """
    outlives = arguments.outlives_parent or arguments.faults.has("outlive")
    parent = None if outlives else asyncio.create_task(_end_with(parent_pid))
    if arguments.faults.has("orphan-child"):
        start_orphan()
    if arguments.server_args["node_rank"] > 0:
        await multi_node.follow(arguments)
    others = await multi_node.Others.gathered(arguments)
    launch_s = await startup.play(arguments)
    listener = await _bind(arguments)
    state = ServerState(arguments, Scheduler(arguments), launch_s)
    app = web.Application(
        middlewares=[routes.refusals_and_access_log, routes.require_keys(arguments)],
        client_max_size=_LARGEST_BODY,
    )
    app[routes.STATE] = state
    routes.add_routes(app)
    openai_routes.add_routes(app)
    # Cancelling the handler is how a request learns that its client has left.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    await web.SockSite(runner, listener, backlog=_BACKLOG).start()
    log(f"INFO:     Started server process [{os.getpid()}]")
    host, port = listener.getsockname()[:2]
    log(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    interrupted = _watch_signals(state)
    tasks = [asyncio.create_task(state.scheduler.run()), asyncio.create_task(_warm_up(state))]
    if others is not None:
        tasks.append(asyncio.create_task(others.led(state.scheduler)))
    # A task of the server that fails is a bug: better to end with its traceback than to hang.
    waiter = asyncio.create_task(interrupted.wait())
    while not waiter.done():
        await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in tasks if task.done()]:
            task.result()
            tasks.remove(task)
    log("INFO:     Shutting down")
    for task in [*tasks, *([parent] if parent else [])]:
        task.cancel()
    await runner.cleanup()
    return 0


async def _end_with(parent: int) -> None:
    """End when the process that started this one has ended."""
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_S)
    kill_self()


async def _bind(arguments: Arguments) -> socket.socket:
    """Return the server's socket. Hangs for ever if the port is taken, as 0.5.17 does."""
    host, port = arguments.server_args["host"], arguments.server_args["port"]
    if not arguments.faults.has("port-taken"):
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(address[0], socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            listener.bind(address[4])
            return listener
        listener.close()
    log(
        f"ERROR:    [Errno 98] error while attempting to bind on address ('{host}', {port}): "
        "address already in use"
    )
    log("INFO:     Waiting for application shutdown.")
    await asyncio.Event().wait()
    raise AssertionError("nothing sets this event")


def _watch_signals(state: ServerState) -> asyncio.Event:
    """SIGINT sets the event that is returned; SIGTERM begins the drain."""
    interrupted = asyncio.Event()
    drains: list[asyncio.Task[None]] = []

    def on_sigterm() -> None:
        if not drains and not state.arguments.faults.has("ignore-sigterm"):
            state.phase = "exiting"
            drains.append(asyncio.create_task(_drain(state)))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    loop.add_signal_handler(signal.SIGTERM, on_sigterm)
    return interrupted


async def _drain(state: ServerState) -> None:
    log("Gracefully exiting... remaining requests are finished first.")
    while not state.scheduler.is_idle:
        await asyncio.sleep(_DRAIN_CHECK_S)
    # Time for the last chunks to leave.
    await asyncio.sleep(_DRAIN_CHECK_S)
    kill_self()


async def _warm_up(state: ServerState) -> None:
    arguments = state.arguments
    if arguments.faults.has("die-warming"):
        die_warming(arguments.performance.tp)
    if arguments.faults.has("hang-warming"):
        await asyncio.Event().wait()
    seconds = arguments.performance.machine.startup.warmup_s
    await asyncio.sleep(seconds * arguments.startup_scale)
    if not arguments.server_args["skip_server_warmup"]:
        await routes.finished(state, [new_request([10, 11, 12], Limits(8, True))])
    if state.phase == "starting":
        state.phase = "up"
    state.scheduler.counts_faults = True
    state.scheduler.flush()
    log("The server is fired up and ready to roll!")
