"""The outermost layer: what is true of every request, whatever becomes of it.

Each gets an id, which the response carries and the log names; the service behind the operations travels in the request's state;
bodies count as JSON whatever their Content-Type says, and only those of POST count; stray slashes in a path are none; pages of
allowed origins may read the answers. No prompt and no key is ever logged here or elsewhere.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from maple_spec.server import cors
from maple_spec.server.assembly import Service
from maple_spec.server.cors import RawHeaders

logger = logging.getLogger("maple_spec.access")

_JSON = (b"content-type", b"application/json")


class Edge:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; what is not HTTP passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        request_id = f"req_{uuid.uuid4().hex}"
        origins = self._service.settings.allowed_origins
        common = [(b"x-request-id", request_id.encode()), *cors.response_headers(scope, origins)]
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *common]}
            await send(message)

        inner = {
            **scope,
            **_without_stray_slashes(scope["path"]),
            "state": {**scope.get("state", {}), "service": self._service, "request_id": request_id},
            # By its Content-Type Connexion would parse a form, of any size, even for operations that take no body.
            "headers": _with_content_type(scope["headers"], [_JSON] if scope["method"] == "POST" else []),
        }
        try:
            if preflight := cors.preflight_headers(scope, origins):
                await send({"type": "http.response.start", "status": 204, "headers": [*preflight, common[0]]})
                await send({"type": "http.response.body", "body": b""})
            else:
                await self._app(inner, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - began
            logger.info("%s %s %s %d %.3f s", request_id, scope["method"], scope["path"][:200], status, seconds)


def _with_content_type(headers: RawHeaders, content_type: RawHeaders) -> RawHeaders:
    """The headers with this Content-Type, or with none, in place of their own."""
    return [*(header for header in headers if header[0] != b"content-type"), *content_type]


def _without_stray_slashes(path: str) -> dict[str, str | bytes]:
    """What to change in a scope whose path was joined to a base URL with a slash too many, or has one at its end.

    A redirect would do, but not all clients follow one with a body. A model's id may hold any slashes, and is left as it is.
    """
    if not re.match(r"/+v1/", path):
        return {}
    before, models, model_id = path.partition("/models/")
    tidy = re.sub("/{2,}", "/", before).rstrip("/") + models + model_id
    return {} if tidy == path else {"path": tidy, "raw_path": quote(tidy).encode()}
