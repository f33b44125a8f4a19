"""Whatever is raised while a request is served, as a response in the OpenAI shape; nothing else writes an error's status.

HANDLERS is what Connexion is given: ApiErrors keep what their class says, the router's 404 and 405 and Connexion's own problems
are translated, anything else is a crash, logged under the request's id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from connexion.exceptions import ProblemException
from connexion.lifecycle import ConnexionRequest, ConnexionResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from maple_spec.errors import ApiError, InvalidRequest, MethodNotAllowed, NotFound
from maple_spec.wire.sse import json_bytes

logger = logging.getLogger("maple_spec.server")

ErrorHandler = Callable[[ConnexionRequest, Exception], Awaitable[ConnexionResponse]]


def envelope(error: ApiError, headers: dict[str, str] | None = None) -> ConnexionResponse:
    """The response to an error."""
    return ConnexionResponse(
        status_code=error.status,
        mimetype="application/json",
        content_type="application/json",
        body=json_bytes(error.body()),
        headers={**error.headers, **(headers or {})},
    )


async def on_api_error(request: ConnexionRequest, error: Exception) -> ConnexionResponse:
    """An error raised on purpose."""
    assert isinstance(error, ApiError)
    return envelope(error)


async def on_http_error(request: ConnexionRequest, error: Exception) -> ConnexionResponse:
    """What the router or Connexion itself refuses."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"[:200]
    if error.status_code == 404:
        return envelope(NotFound(f"{where} does not exist", code="unknown_url"))
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "GET").split(", ")))
        return envelope(MethodNotAllowed(f"{where} is not allowed, only {allowed}"), {"Allow": allowed})
    if error.status_code < 500:
        return envelope(InvalidRequest(str(error.detail)))
    return await on_crash(request, error)


async def on_client_gone(request: ConnexionRequest, error: Exception) -> ConnexionResponse:
    """The client left before its answer; nobody reads this, but a log line may name the status."""
    return ConnexionResponse(status_code=499)


async def on_crash(request: ConnexionRequest, error: Exception) -> ConnexionResponse:
    """A fault of ours."""
    logger.error("request %s: unexpected error", request.scope["state"].get("request_id"), exc_info=error)
    return envelope(ApiError("the server had an error while processing the request"))


HANDLERS: tuple[tuple[type[Exception], ErrorHandler], ...] = (
    (ApiError, on_api_error),
    (ProblemException, on_http_error),
    (HTTPException, on_http_error),
    (ClientDisconnect, on_client_gone),
    (Exception, on_crash),
)
