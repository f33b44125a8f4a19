"""The cases as data, and the requests that they spell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
QUESTION = {"messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 16}
METHODS = ("get", "post", "delete", "head", "options")


def data(name: str) -> Any:
    """What a file of this folder holds."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


DEFINITIONS: dict[str, Any] = data("definitions")

LARGE_BODIES: dict[str, Callable[[], Any]] = {
    "a long question, streamed": lambda: {
        **QUESTION,
        "stream": True,
        "messages": [{"role": "user", "content": "word " * 4100}],
    },
    "two thousand tools": lambda: {**QUESTION, "tools": [_tool(number) for number in range(2000)]},
    "ten thousand levels": lambda: '{"prompt": "a", "max_tokens": 4, "x": ' + '{"a":' * 10_000 + "1" + "}" * 10_001,
}


def _tool(number: int) -> dict[str, Any]:
    description = f"Tool number {number} does what the tools before it do not do."
    return {"type": "function", "function": {"name": f"tool_{number}", "description": description}}


@dataclass(frozen=True, slots=True)
class Request:
    """A request to be sent. body: None, text as it goes out, or a value that goes out as JSON. expect: what must come back."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)


def requests_of(case: Mapping[str, Any]) -> list[Request]:
    """All requests of a case, in order."""
    return [request for spelled in case["requests"] for request in _requests(spelled, case.get("expect", {}))]


def _requests(spelled: Mapping[str, Any], expect: Mapping[str, Any]) -> Iterator[Request]:
    values = spelled.get("with", ["$"] * spelled.get("times", 1))
    for value in values:
        one = _filled({key: part for key, part in spelled.items() if key != "with"}, value)
        method, path, body = _target(one)
        yield Request(method, path, body, one.get("headers", {}), one.get("expect", expect))


def _target(spelled: Mapping[str, Any]) -> tuple[str, str, Any]:
    if "chat" in spelled:
        return "POST", CHAT, {**QUESTION, **spelled["chat"]}
    if "completion" in spelled:
        return "POST", COMPLETION, {"prompt": "Once upon", "max_tokens": 8, **spelled["completion"]}
    (method,) = spelled.keys() & set(METHODS)
    body = LARGE_BODIES[spelled["body_of"]]() if "body_of" in spelled else spelled.get("json", spelled.get("body"))
    return method.upper(), spelled[method], body


def _filled(value: Any, replacement: Any) -> Any:
    """The value with the replacement in place of "$", and with definitions in place of their names in lists."""
    if value == "$":
        return replacement
    if isinstance(value, Mapping):
        return {key: _filled(item, replacement) for key, item in value.items()}
    if isinstance(value, list):
        return [DEFINITIONS.get(item) or item if isinstance(item, str) else _filled(item, replacement) for item in value]
    return value


def defined(value: Any) -> Any:
    """The value with definitions in place of their names in lists."""
    return _filled(value, "$")
