"""SGLang's own routes, its API keys and its access log."""

import asyncio
import json
import secrets
import time
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tuner.simulator import log
from tuner.simulator.arguments import Arguments
from tuner.simulator.protocol import BadRequestError, Limits, Wire, new_request, read_prompts
from tuner.simulator.scheduler import RunningRequest
from tuner.simulator.state import ServerState

STATE = web.AppKey("state", ServerState)
DONE = b"data: [DONE]\n\n"
SHORT_STREAM_SHARE = 0.5
"""A stream cut short ends after this share of its tokens."""

_FLUSHED = (
    "Cache flushed.\nThe backend logs have the details. "
    "(Nothing is done while requests run or wait.)\n"
)
# Source: `decide_request_auth` of sglang/srt/utils/auth.py (0.5.17).
_OPEN_PATHS = ("/health", "/metrics")
"""Beginnings of the paths that need no key."""
_ADMIN_PATHS = ("/flush_cache", "/set_internal_state", "/abort_request")
"""Paths that change the server. They need the admin key if the server has one."""


@web.middleware
async def refusals_and_access_log(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn BadRequestError into 400. Write uvicorn's line for each request."""
    try:
        response = await handler(request)
    except BadRequestError as error:
        response = web.json_response({"error": {"message": str(error)}}, status=400)
    except web.HTTPException as error:
        response = web.json_response({"detail": error.reason}, status=error.status)
    client = f"{request.remote}:0"
    log.access(client, request.method, request.path, response.status, response.reason or "")
    return response


def require_keys(arguments: Arguments) -> Middleware:
    """Return a middleware that answers 401 to a request without the key that its path needs."""
    api, admin = (arguments.server_args[name] for name in ("api_key", "admin_api_key"))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        key = (admin or api) if request.path in _ADMIN_PATHS else api
        is_open = request.method == "OPTIONS" or request.path.startswith(_OPEN_PATHS)
        if not key or is_open or _bears(request.headers.get("Authorization"), key):
            return await handler(request)
        return web.json_response({"error": "Unauthorized"}, status=401)

    return check


def _bears(header: str | None, key: str) -> bool:
    scheme, _, sent = (header or "").partition(" ")
    return scheme.lower() == "bearer" and secrets.compare_digest(sent.encode(), key.encode())


async def read_body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object of a request. Raises BadRequestError."""
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequestError("The body must be a JSON object.")
    return body


async def finished(state: ServerState, requests: list[RunningRequest]) -> None:
    """Submit the requests and wait for their ends; abort them if the client leaves."""
    for request in requests:
        state.scheduler.submit(request)
    try:
        for request in requests:
            while not request.finished:
                await request.news.wait()
                request.news.clear()
    finally:
        leave(requests)


def leave(requests: list[RunningRequest]) -> None:
    """Abort the requests that have not finished."""
    for request in requests:
        if not request.finished:
            request.aborted = True


async def open_stream(request: web.Request) -> web.StreamResponse:
    """Return a response for server-sent events. Its headers are sent."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


async def generate(http: web.Request) -> web.StreamResponse:
    """POST /generate."""
    state = http.app[STATE]
    body = await read_body(http)
    prompts, is_list = read_prompts(body)
    params, rid = body.get("sampling_params") or {}, body.get("rid")
    if not isinstance(params, dict):
        raise BadRequestError("sampling_params must be an object.")
    limits = Limits.read(params)
    running = [new_request(p, limits, rid if isinstance(rid, str) else None) for p in prompts]
    speculation, release = state.scheduler.speculation, state.arguments.release
    wires = [Wire(r, speculation, release, i if is_list else None) for i, r in enumerate(running)]
    fault = state.next_fault()
    if fault in ("garbage-json", "truncated-json"):
        return await _garbled(http, bool(body.get("stream")), fault)
    if fault == "server-error":
        return web.json_response({"error": {"message": "Internal Server Error"}}, status=500)
    if body.get("stream"):
        return await _stream(http, running, wires, fault)
    if fault != "no-tokens":
        await finished(state, running)
    answers = [wire.answer() for wire in wires]
    return web.json_response(answers if is_list else answers[0])


async def _garbled(http: web.Request, is_stream: bool, fault: str) -> web.StreamResponse:
    text = "<html>it works</html>" if fault == "garbage-json" else '{"text": " the a", "meta_in'
    if not is_stream:
        return web.Response(text=text, content_type="application/json")
    response = await open_stream(http)
    await response.write(f"data: {text}\n\n".encode() + DONE)
    return response


async def _stream(
    http: web.Request, running: list[RunningRequest], wires: list[Wire], fault: str | None
) -> web.StreamResponse:
    state = http.app[STATE]
    response = await open_stream(http)
    if fault == "no-tokens":
        await response.write(DONE)
        return response
    try:
        for request in running:
            state.scheduler.submit(request)
        await asyncio.gather(
            *(
                _write(state, response, request, wire, fault)
                for request, wire in zip(running, wires, strict=True)
            )
        )
        await response.write(DONE)
    finally:
        leave(running)
    return response


async def _write(
    state: ServerState,
    response: web.StreamResponse,
    request: RunningRequest,
    wire: Wire,
    fault: str | None,
) -> None:
    incremental = state.arguments.server_args["incremental_streaming_output"]
    while True:
        await request.news.wait()
        request.news.clear()
        is_midway = request.tokens > SHORT_STREAM_SHARE * request.length
        if is_midway and fault == "short-stream":
            return
        if is_midway and fault == "stall-stream":
            await asyncio.Event().wait()
        # The client may read the answer before the next cycle, so its content is fixed here.
        is_last = request.finished
        await response.write(wire.chunk(incremental))
        if is_last:
            return


async def health(http: web.Request) -> web.Response:
    """GET /health: 503 while the server starts, ends or hangs."""
    state = http.app[STATE]
    is_well = state.phase == "up" and not state.scheduler.hung
    return web.Response(status=200 if is_well else 503)


async def health_generate(http: web.Request) -> web.Response:
    """GET /health_generate: as /health, after a token was generated."""
    state = http.app[STATE]
    if state.phase != "up":
        return web.Response(status=503)
    try:
        await asyncio.wait_for(finished(state, [new_request([0], Limits(1, True))]), timeout=20)
    except TimeoutError:
        return web.Response(status=503)
    return web.Response(status=200)


async def server_info(http: web.Request) -> web.Response:
    """GET /server_info."""
    return web.json_response(http.app[STATE].info())


async def model_info(http: web.Request) -> web.Response:
    """GET /model_info."""
    args = http.app[STATE].server_args
    return web.json_response(
        {
            "model_path": args["model_path"],
            "tokenizer_path": args["tokenizer_path"],
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": "simulated",
            "architectures": ["Simulated"],
        }
    )


async def flush_cache(http: web.Request) -> web.Response:
    """GET or POST /flush_cache: 400 while requests run; `timeout` waits that many seconds."""
    scheduler = http.app[STATE].scheduler
    try:
        until = time.monotonic() + float(http.query.get("timeout", "0"))
    except ValueError as error:
        raise BadRequestError("timeout is a number of seconds.") from error
    while not scheduler.is_idle and time.monotonic() < until:
        await asyncio.sleep(0.02)
    return web.Response(text=_FLUSHED, status=200 if scheduler.flush() else 400)


async def set_internal_state(http: web.Request) -> web.Response:
    """POST or PUT /set_internal_state: `{"server_args": {"speculative_num_steps": 3}}`."""
    wanted = (await read_body(http)).get("server_args")
    if not isinstance(wanted, dict):
        raise BadRequestError("server_args must be an object.")
    status, answer = http.app[STATE].step_switch.update(wanted)
    return web.json_response(answer, status=status)


async def abort_request(http: web.Request) -> web.Response:
    """POST /abort_request: `{"rid": ...}` or `{"abort_all": true}`."""
    body = await read_body(http)
    if body.get("abort_all") or isinstance(body.get("rid"), str):
        http.app[STATE].scheduler.abort(None if body.get("abort_all") else body["rid"])
    return web.Response(status=200)


async def metrics(http: web.Request) -> web.Response:
    """GET /metrics: a few of SGLang's gauges as Prometheus text."""
    state = http.app[STATE]
    scheduler, totals = state.scheduler, state.scheduler.totals
    gauges: dict[str, float] = {
        "num_running_reqs": scheduler.running_count,
        "num_queue_reqs": scheduler.queue_count,
        "gen_throughput": scheduler.last_gen_throughput,
    }
    speculation = state.arguments.performance.speculation
    if speculation is not None and totals.accept_length is not None:
        gauges["spec_accept_length"] = totals.accept_length
        gauges["spec_accept_rate"] = totals.accept_rate(speculation, state.arguments.release)
    labels = f'{{model_name="{state.server_args["served_model_name"]}",tp_rank="0"}}'
    lines = [
        f"# TYPE sglang:{name} gauge\nsglang:{name}{labels} {value}\n"
        for name, value in gauges.items()
    ]
    return web.Response(text="".join(lines), content_type="text/plain")


def add_routes(app: web.Application) -> None:
    """Add SGLang's native routes to `app`."""
    app.add_routes(
        [
            web.get("/health", health),
            web.get("/health_generate", health_generate),
            web.get("/server_info", server_info),
            web.get("/get_server_info", server_info),
            web.get("/model_info", model_info),
            web.get("/get_model_info", model_info),
            web.route("GET", "/flush_cache", flush_cache),
            web.post("/flush_cache", flush_cache),
            web.post("/generate", generate),
            web.post("/abort_request", abort_request),
            web.post("/set_internal_state", set_internal_state),
            web.put("/set_internal_state", set_internal_state),
            web.get("/metrics", metrics),
        ]
    )
