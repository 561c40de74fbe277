"""An engine whose servers answer at the pace of a table: all that a new engine needs, in one file.

Its servers speak the streaming part of OpenAI's completions, so that nothing of SGLang's routes is
taken for granted.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tuner.config.loader import LoadedSweep
from tuner.core.errors import EngineFailure, Failure
from tuner.loadgen.auth import NO_KEYS
from tuner.loadgen.client import GenerationApi, Load
from tuner.loadgen.stream_parser import BadStreamError, StreamEvent
from tuner.metrics.samples import Request
from tuner.server.base import Checked, Command, Engine, ServerConfig

TOKEN_S = {None: 0.012, 1: 0.009, 2: 0.003, 3: 0.006}
"""Seconds for each token, by num_steps; None: without speculation."""


def completion_body(request: Request, load: Load) -> dict[str, Any]:
    return {"prompt": request.text, "max_tokens": load.output_tokens, "stream": True}


def parse_completion(event: Any) -> StreamEvent:
    try:
        (choice,), usage = event["choices"], event["usage"]
    except (KeyError, TypeError, ValueError) as error:
        raise BadStreamError("the server sent an event without a choice") from error
    return StreamEvent({**usage, "finish_reason": choice["finish_reason"]}, text=choice["text"])


COMPLETIONS = GenerationApi("/v1/completions", completion_body, parse_completion)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Http"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = asked["max_tokens"]
        for tokens in range(1, count + 1):
            time.sleep(self.server.token_s)
            reason = "length" if tokens == count else None
            choice = {"text": "word " * tokens, "finish_reason": reason}
            usage = {"prompt_tokens": 5, "completion_tokens": tokens}
            self._event(json.dumps({"choices": [choice], "usage": usage}))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        line = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Keep stderr clean."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, token_s: float) -> None:
        self.token_s = token_s
        super().__init__(("127.0.0.1", 0), _Handler)


class TableServer:
    """See `tuner.server.base.Server`."""

    engine_version = "table 1"
    launch_s = 0.1
    keys, gpus, api = NO_KEYS, None, COMPLETIONS

    def __init__(self, token_s: float) -> None:
        self._http = _Http(token_s)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self.info = {"token_s": token_s}
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def flush_cache(self) -> None: ...

    def set_steps(self, steps: int) -> None:
        raise EngineFailure(Failure.CLIENT, f"a table has no switch for {steps} steps")

    def counters(self) -> None: ...

    def check_alive(self) -> None: ...

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class TableEngine(Engine):
    """Serves each point at the table's pace."""

    name = "table"

    def check(self, loaded: LoadedSweep) -> Checked:
        return Checked(loaded, ("answers come from a table",))

    def command(self, config: ServerConfig) -> Command:
        return Command(("table-server", f"--steps={_steps(config)}"), config.env, config.unset)

    def launch(self, config: ServerConfig, log: Path, launch_id: int) -> TableServer:
        log.write_text(f"launch {launch_id}\n")
        return TableServer(TOKEN_S[_steps(config)])


def _steps(config: ServerConfig) -> int | None:
    return None if config.point is None else config.point.num_steps
