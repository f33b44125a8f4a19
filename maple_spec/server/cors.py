"""Which web pages may call the API: those of MAPLE_ALLOWED_ORIGINS, none by default.

The Fetch standard's protocol, https://fetch.spec.whatwg.org/#http-cors-protocol: a page's origin is answered with the right to
read the response; a preflight, which never carries a key, with what may be sent.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

RawHeaders = list[tuple[bytes, bytes]]


def response_headers(scope: Scope, allowed: tuple[str, ...]) -> RawHeaders:
    """The headers that let the page read this response; none where its origin is not allowed or there is no page."""
    if not allowed:
        return []
    origin = Headers(scope=scope).get("origin")
    vary = (b"vary", b"Origin")
    if origin is None or not ("*" in allowed or origin in allowed):
        return [vary]
    return [
        vary,
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"x-request-id, retry-after"),
    ]


def preflight_headers(scope: Scope, allowed: tuple[str, ...]) -> RawHeaders:
    """The answer to a preflight from an allowed origin; empty for any other request."""
    if scope["method"] != "OPTIONS":
        return []
    headers = Headers(scope=scope)
    readable = response_headers(scope, allowed)
    if len(readable) <= 1 or "access-control-request-method" not in headers:
        return []
    wanted = headers.get("access-control-request-headers", "authorization, content-type")
    return [
        *readable,
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", wanted.encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
