"""Many mixed requests, many of them dropped at a random moment: afterwards nothing is left of them.

The suite sends a few hundred; `pytest -m soak` sends 2,000 and watches the memory more closely.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.live_server import Server, ServerProcess, launch

WORKERS = 8
HI = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]

# Path, body and the statuses that may come: 503 too, since more ask at once than may wait.
Request = tuple[str, str, Any, set[int]]
BUSY = {200, 503}
REQUESTS: list[Request] = [
    ("POST", "/v1/chat/completions", {**HI, "max_tokens": 40}, BUSY),
    ("POST", "/v1/chat/completions", {**HI, "max_tokens": 40, "stream": True}, BUSY),
    ("POST", "/v1/chat/completions", {**HI, "max_tokens": 200, "stream": True, "temperature": 1.5, "seed": 7}, BUSY),
    ("POST", "/v1/chat/completions", {**HI, "max_tokens": 30, "tools": TOOLS, "stop": ["e", "xyz"]}, BUSY),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "long " * 2000}], "max_tokens": 2}, BUSY),
    ("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 60, "stream": True}, BUSY),
    ("POST", "/v1/completions", {"prompt": [65, 66, 67], "max_tokens": 20}, BUSY),
    ("POST", "/v1/chat/completions", {**HI, "n": 2}, {400}),
    ("POST", "/v1/chat/completions", b'{"messages": [', {400}),
    ("POST", "/v1/completions", {"prompt": [10**6]}, {400}),
    ("GET", "/v1/models", None, {200}),
    ("GET", "/v1/models/nobody", None, {404}),
    ("GET", "/health", None, {200}),
    ("PUT", "/nowhere", None, {404}),
]
LEAVES = ["stays", "stays", "stays", "at once", "after the headers", "mid-stream", "mid-body", "later"]


@dataclass
class Soak:
    """One run against a server."""

    server: ServerProcess
    numbers: Iterator[int]
    answered: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def work(self) -> None:
        """Send requests until the numbers run out."""
        for number in self.numbers:
            if number % 50 == 0:
                self.memory.append(resident_bytes(self.server.process.pid))
            draw = random.Random(number)
            request, leaves = draw.choice(REQUESTS), draw.choice(LEAVES)
            try:
                self._send(request, leaves, draw)
            except Exception as error:
                self.faults.append(f"{request[:2]}, client leaves {leaves}: {error!r}")

    def _send(self, request: Request, leaves: str, draw: random.Random) -> None:
        method, path, body, expected = request
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            if leaves == "mid-body" and raw:
                connection.putrequest(method, path)
                connection.putheader("content-length", str(len(raw)))
                connection.endheaders(raw[: len(raw) // 2])
                return
            connection.request(method, path, body=raw)
            if leaves == "at once":
                return
            if leaves == "later":
                time.sleep(draw.random() * 0.3)
                return
            response = connection.getresponse()
            self.answered[response.status] += 1
            if response.status not in expected:
                self.faults.append(f"{request[:2]}: {response.status} {response.read()!r}")
            if leaves == "after the headers":
                return
            if leaves == "mid-stream":
                response.read(draw.randint(1, 300))
                return
            text = response.read()
            if response.status == 200 and response.headers["content-type"].startswith("text/event-stream"):
                assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
        finally:
            connection.close()


def resident_bytes(pid: int) -> int:
    """The memory that the process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def soak(server: ServerProcess, requests: int, start: int = 0) -> Soak:
    """Send so many requests from WORKERS threads, and wait until all are served or gone."""
    run = Soak(server, iter(range(start, start + requests)))
    threads = [threading.Thread(target=run.work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait(lambda health: health["active"] == 0 and health["queue_depth"] == 0)
    run.memory.append(resident_bytes(server.process.pid))
    return run


@pytest.fixture
def server(random_checkpoint: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a short queue."""
    process = launch("maple-serve", tmp_path / "log", MAPLE_MODEL_PATH=str(random_checkpoint), MAPLE_MAX_QUEUE_DEPTH="4")
    try:
        process.wait(lambda health: health["status"] == "ok", 90)
        yield process
    finally:
        process.stop()


def answer(server: Server) -> Any:
    """What the server says to a fixed question, without what differs each time."""
    body = server.chat(temperature=0, max_tokens=20).json()
    del body["usage"]["prompt_tokens_details"]  # how much of the prompt was known
    return body["choices"], body["usage"]


def test_after_some_hundred_requests_with_random_disconnects_nothing_is_left(server: ServerProcess) -> None:
    before = answer(server)
    run = soak(server, 300)
    assert not run.faults
    assert run.answered[200] > 30
    assert answer(server) == before
    assert b"Traceback" not in server.log.read_bytes()


@pytest.mark.soak
def test_after_2000_requests_with_random_disconnects_the_memory_is_flat(server: ServerProcess) -> None:
    before = answer(server)
    soak(server, 500)  # caches fill, and the allocator finds its size
    run = soak(server, 2000, start=500)
    first, last = (statistics.median(part) for part in (run.memory[:10], run.memory[-10:]))
    print(f"answered {dict(run.answered)}; memory {first / 2**20:.1f} MiB, then {last / 2**20:.1f} MiB")
    assert not run.faults
    assert answer(server) == before
    assert b"Traceback" not in server.log.read_bytes()
    assert last - first < 4 * 2**20
