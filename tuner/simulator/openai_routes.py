"""OpenAI-compatible routes: models, chat completions and completions."""

import json
import time
from typing import Any

from aiohttp import web

from tuner.simulator.protocol import BadRequestError, Limits, Wire, new_request
from tuner.simulator.routes import (
    DONE,
    SHORT_STREAM_SHARE,
    STATE,
    finished,
    leave,
    open_stream,
    read_body,
)
from tuner.simulator.scheduler import RunningRequest


async def models(http: web.Request) -> web.Response:
    """GET /v1/models."""
    name = http.app[STATE].server_args["served_model_name"]
    card = {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": http.app[STATE].server_args["context_length"] or 8192,
    }
    return web.json_response({"object": "list", "data": [card]})


async def chat_completions(http: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions, streaming and not."""
    body = await read_body(http)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with at least one message.")
    try:
        prompt = "\n\n".join(_content(message["content"]) for message in messages)
    except (KeyError, TypeError) as error:
        raise BadRequestError("a message has a role and a content.") from error
    return await _complete(http, body, prompt, is_chat=True)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


async def completions(http: web.Request) -> web.StreamResponse:
    """POST /v1/completions, streaming and not."""
    body = await read_body(http)
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise BadRequestError("prompt must be a string.")
    return await _complete(http, body, prompt, is_chat=False)


async def _complete(
    http: web.Request, body: dict[str, Any], prompt: str, is_chat: bool
) -> web.StreamResponse:
    state = http.app[STATE]
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 128
    params = {"max_new_tokens": limit, "ignore_eos": body.get("ignore_eos", False)}
    running = new_request(prompt, Limits.read(params))
    wire = Wire(running, state.arguments.performance.speculation, state.arguments.release)
    shape = _Shape(running, wire, str(state.server_args["served_model_name"]), is_chat)
    fault = state.next_fault()
    if fault in ("garbage-json", "truncated-json"):
        return web.Response(text='{"id": "', content_type="application/json")
    if body.get("stream"):
        return await _stream(http, running, shape, body, fault)
    if fault != "no-tokens":
        await finished(state, [running])
    with_meta = bool(body.get("return_meta_info"))
    return web.json_response(shape.whole(with_meta))


async def _stream(
    http: web.Request,
    running: RunningRequest,
    shape: "_Shape",
    body: dict[str, Any],
    fault: str | None,
) -> web.StreamResponse:
    response = await open_stream(http)
    if fault == "no-tokens":
        await response.write(DONE)
        return response
    http.app[STATE].scheduler.submit(running)
    try:
        if shape.is_chat:
            await response.write(shape.opening())
        is_last = False
        while not is_last:
            await running.news.wait()
            running.news.clear()
            is_late = running.tokens > SHORT_STREAM_SHARE * running.length
            if fault == "short-stream" and is_late:
                return response
            is_last = running.finished
            await response.write(shape.piece(is_last))
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            await response.write(shape.usage_event())
        await response.write(DONE)
    finally:
        leave([running])
    return response


class _Shape:
    """JSON of one completion, chat or plain."""

    def __init__(self, running: RunningRequest, wire: Wire, model: str, is_chat: bool) -> None:
        self._running = running
        self._wire = wire
        self._model = model
        self.is_chat = is_chat
        self._created = int(time.time())

    def _head(self, suffix: str) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self.is_chat else "text_completion"
        return {
            "id": self._running.rid,
            "object": kind,
            "created": self._created,
            "model": self._model,
        }

    def _event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
        event = {**self._head(".chunk"), "choices": choices, "usage": usage}
        return f"data: {json.dumps(event)}\n\n".encode()

    def _choice(self, piece: dict[str, Any], reason: object) -> dict[str, Any]:
        return {"index": 0, **piece, "logprobs": None, "finish_reason": reason}

    def opening(self) -> bytes:
        """Return the first event of a chat, which has the role and no text."""
        return self._event(
            [self._choice({"delta": {"role": "assistant", "content": ""}}, None)], None
        )

    def piece(self, is_last: bool) -> bytes:
        """Return the text since the last event. The last event has the finish reason."""
        text = self._wire.new_text()
        piece = {"delta": {"content": text}} if self.is_chat else {"text": text}
        reason = self._running.finish_reason["type"] if is_last else None
        return self._event([self._choice(piece, reason)], None)

    def usage_event(self) -> bytes:
        """Return the event for `stream_options.include_usage`."""
        return self._event([], self._usage())

    def whole(self, with_meta: bool) -> dict[str, Any]:
        """Return the answer to a request without streaming."""
        text = self._running.text
        message = {"role": "assistant", "content": text, "tool_calls": None}
        piece: dict[str, Any] = {"message": message} if self.is_chat else {"text": text}
        choice = self._choice(piece, self._running.finish_reason["type"])
        if with_meta:
            choice["meta_info"] = self._wire.meta_info()
        return {**self._head(""), "choices": [choice], "usage": self._usage()}

    def _usage(self) -> dict[str, Any]:
        prompt, completion = self._running.prompt_tokens, self._running.tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": None,
        }


def add_routes(app: web.Application) -> None:
    """Add the OpenAI-compatible routes to `app`."""
    app.add_routes(
        [
            web.get("/v1/models", models),
            web.post("/v1/chat/completions", chat_completions),
            web.post("/v1/completions", completions),
        ]
    )
