"""A server under test, and its answers."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from conformance.reports.catalogue import CHAT, QUESTION, Request

DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, read whole; header names are lower case."""

    request: Request
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def streamed(self) -> bool:
        """Whether it is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream but [DONE], without comments."""
        data = [event.removeprefix("data: ") for event in self.body.decode().split("\n\n") if event.startswith("data: ")]
        assert data[-1] == DONE, data[-1]
        return [json.loads(text) for text in data[:-1]]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """The deltas of a streamed chat, or the pieces of a streamed completion."""
        return [choice.get("delta", choice) for event in self.events for choice in event.get("choices", [])]

    @property
    def usage(self) -> dict[str, Any]:
        """The counts, without what may differ between two answers to one request."""
        usage = self.events[-1]["usage"] if self.streamed else self.json["usage"]
        return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}

    @property
    def finish_reason(self) -> str:
        """Why it ended."""
        if not self.streamed:
            return str(self.json["choices"][0]["finish_reason"])
        (reason,) = {choice["finish_reason"] for event in self.events for choice in event["choices"]} - {None}
        return str(reason)

    def text(self, kind: str) -> str:
        """All of content, reasoning_content, or a completion's text."""
        if self.streamed:
            return "".join(delta.get(kind) or "" for delta in self.deltas)
        choice = self.json["choices"][0]
        return choice.get("message", choice).get(kind) or ""

    @property
    def said(self) -> tuple[str, ...]:
        """Everything that it says."""
        return tuple(self.text(kind) for kind in ("reasoning_content", "content", "text"))


@dataclass(frozen=True, slots=True)
class Target:
    """A server. pid: of its process where we have started it."""

    url: str
    key: str | None = None
    pid: int | None = None

    def open(self, request: Request, timeout: float = 60) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request and return with the answer's headers."""
        connection = self.connect(timeout)
        self.begin(connection, request)
        return connection, connection.getresponse()

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        """A connection of its own."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.netloc, timeout=timeout)

    def begin(self, connection: http.client.HTTPConnection, request: Request) -> None:
        """Send a request without waiting for anything."""
        body = request.body
        raw = body.encode() if isinstance(body, str) else body if body is None else json.dumps(body).encode()
        headers: dict[str, str | None] = {"content-type": "application/json"} if raw is not None else {}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        headers |= request.headers
        sent = {name: value for name, value in headers.items() if value is not None}
        connection.request(request.method, request.path, body=raw, headers=sent)

    def send(self, request: Request) -> Answer:
        """Send a request and read the whole answer."""
        connection, response = self.open(request)
        with closed(connection):
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(request, response.status, headers, response.read())

    def chat(self, content: str, **fields: Any) -> Answer:
        """Ask one question."""
        return self.send(question(content, **fields))

    def health(self) -> dict[str, Any]:
        """What /health says."""
        health: dict[str, Any] = self.send(Request("GET", "/health")).json
        return health

    def wait(self, seen: Callable[[dict[str, Any]], bool], timeout: float = 20) -> None:
        """Ask /health until it shows what is wanted."""
        end = time.monotonic() + timeout
        while not seen(health := self.health()):
            assert time.monotonic() < end, health
            time.sleep(0.01)

    def wait_idle(self, timeout: float = 20) -> None:
        """Wait until nothing runs and nothing waits."""
        self.wait(lambda health: (health["active"], health["queue_depth"]) == (0, 0), timeout)


def question(content: str, **fields: Any) -> Request:
    """A chat request with one user message."""
    return Request("POST", CHAT, {**QUESTION, "messages": [{"role": "user", "content": content}], "max_tokens": 300, **fields})


@contextmanager
def closed(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Close the connection on the way out."""
    try:
        yield
    finally:
        connection.close()
