"""The body of a request on its way to its operation: read with a limit, parsed, held against the contract.

Connexion's own validator answers 500 to invalid UTF-8, deep nesting and very long integers, refuses chunked bodies, takes NaN
and knows no limit of size; this one takes its place and hands the parsed body on as the handler's `params`.
"""

from __future__ import annotations

from typing import Any

from connexion.datastructures import MediaTypeDict
from connexion.validators.json import JSONRequestBodyValidator
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from maple_spec.errors import RequestTooLarge
from maple_spec.server.json_body import parse_json_object
from maple_spec.server.schema_errors import Schema, check

_SHORT_BODY = 65536  # bytes; longer ones are parsed in a thread, so that the event loop goes on answering


class BodyValidator(JSONRequestBodyValidator):  # type: ignore[misc]  # Connexion ships no types
    """Registered for every JSON body; Connexion makes one for each request."""

    async def wrap_receive(self, receive: Receive, *, scope: Scope) -> tuple[Receive, Scope]:
        """Read and check the body. Raises RequestTooLarge before it is read whole, InvalidRequest for what is wrong with it."""
        raw = await _read(receive, Headers(scope=scope), scope["state"]["service"].settings.max_body_bytes)
        if len(raw) <= _SHORT_BODY:
            params = _checked(raw, self._schema)
        else:
            params = await run_in_threadpool(_checked, raw, self._schema)
        context = scope.setdefault("extensions", {}).setdefault("connexion_context", {})
        context["params"] = params
        return self._insert_messages(receive, messages=[{"type": "http.request", "body": b"", "more_body": False}]), scope


VALIDATORS = {"body": MediaTypeDict({"*/*json": BodyValidator})}


def _checked(raw: bytes, schema: Schema) -> dict[str, Any]:
    params = parse_json_object(raw)
    check(params, schema)
    return params


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes:
    too_large = RequestTooLarge(f"the request body is larger than {limit} bytes")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_large
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            raise too_large
    return bytes(body)
