"""Who is answered: SGLang's rules for `--api-key` and `--admin-api-key`.

Source: `decide_request_auth` of sglang/srt/utils/auth.py (0.5.17). Health and metrics are for
everybody. Pages that change the server want the admin key where there is one, else the other.
"""

import secrets

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tuner.simulator.arguments import Arguments

_FOR_EVERYBODY = ("/health", "/metrics")
"""Beginnings of paths."""
_ADMIN = ("/flush_cache", "/set_internal_state", "/abort_request")


def keys_wanted(arguments: Arguments) -> Middleware:
    """A middleware that answers 401 to whoever has not the key of these arguments."""
    api, admin = (arguments.server_args[name] for name in ("api_key", "admin_api_key"))

    @web.middleware
    async def ask(request: web.Request, handler: Handler) -> web.StreamResponse:
        key = (admin or api) if request.path in _ADMIN else api
        is_open = request.method == "OPTIONS" or request.path.startswith(_FOR_EVERYBODY)
        if not key or is_open or _bears(request.headers.get("Authorization"), key):
            return await handler(request)
        return web.json_response({"error": "Unauthorized"}, status=401)

    return ask


def _bears(header: str | None, key: str) -> bool:
    scheme, _, sent = (header or "").partition(" ")
    return scheme.lower() == "bearer" and secrets.compare_digest(sent.encode(), key.encode())
