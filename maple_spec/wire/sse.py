"""JSON text and server-sent events, as bytes."""

from __future__ import annotations

import json
from typing import Any, Final

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_bytes(value: Any) -> bytes:
    r"""A value as compact JSON in UTF-8.

    A lone surrogate, which a model can spell in the arguments of a call, has no UTF-8: it leaves as the escape \udXXX, which is
    JSON too.
    """
    return _encoder.encode(value).encode("utf-8", "backslashreplace")


def event(value: Any) -> bytes:
    """A value as one server-sent event."""
    return b"data: " + json_bytes(value) + b"\n\n"
