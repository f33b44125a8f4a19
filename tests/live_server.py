"""Live servers for tests: the three launchers as processes, and an application of one's own in a thread."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maple_spec.engine import LoadedModel

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

LAUNCHERS: dict[str, Callable[[int], list[str]]] = {
    "connexion-run": lambda port: [str(BIN / "connexion"), "run", "openapi.yaml", "-p", str(port)],
    "uvicorn": lambda port: [str(BIN / "uvicorn"), "maple_spec.server.app:app", "--port", str(port)],
    "maple-serve": lambda port: [sys.executable, "-m", "maple_spec", "serve", "--port", str(port)],
}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what would change a server (MAPLE_*, PYTHONPATH), and with these variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAPLE_", "PYTHONPATH"))}
    return {**inherited, "OMP_NUM_THREADS": "1", **variables}


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, read whole; header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error, which must have the OpenAI shape."""
        body = self.json()
        assert set(body) == {"error"}, body
        assert set(body["error"]) == {"message", "type", "param", "code"}, body
        assert self.headers["content-type"].startswith("application/json")
        error: dict[str, Any] = body["error"]
        return error

    def events(self) -> list[Any]:
        """The JSON events of a stream, which must end with [DONE], without comments."""
        lines = [line for line in self.body.decode().split("\n\n") if line and not line.startswith(":")]
        assert all(line.startswith("data: ") for line in lines), lines
        assert lines[-1] == "data: [DONE]", lines
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


class Server:
    """A server to talk to, wherever it runs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def open(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout: float = 30
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request and return with the response's headers; body is bytes, or a value that is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"content-type": "application/json"} if raw is not None else {}
        connection.request(method, path, body=raw, headers={**sent, **(headers or {})})
        return connection, connection.getresponse()

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, timeout: float = 30
    ) -> Answer:
        """Send a request and read the whole answer."""
        connection, response = self.open(method, path, body, headers, timeout)
        with connection_closed(connection):
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.send("GET", path, None, headers)

    def chat(self, content: str = "Hi", **fields: Any) -> Answer:
        """A chat request with one user message."""
        return self.send("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})

    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = self.get("/health").json()
        return health

    def wait(self, seen: Callable[[dict[str, Any]], bool], timeout: float = 30) -> dict[str, Any]:
        """Ask /health until it shows what is wanted."""
        end = time.monotonic() + timeout
        while True:
            try:
                health = self.health()
                if seen(health):
                    return health
            except (OSError, http.client.HTTPException) as error:
                health = {"unreachable": str(error)}
            assert time.monotonic() < end, health
            time.sleep(0.02)


def eventually(seen: Callable[[], bool], timeout: float = 30) -> None:
    """Wait until seen() is true."""
    end = time.monotonic() + timeout
    while not seen():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@contextmanager
def connection_closed(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Close the connection on the way out."""
    try:
        yield
    finally:
        connection.close()


class ServerProcess(Server):
    """A server started by one of the launchers; its output goes to a file."""

    def __init__(self, command: list[str], port: int, log: Path, variables: Mapping[str, str], folder: Path = ROOT) -> None:
        super().__init__(port)
        self.log = log
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment(variables), stdout=self._output, stderr=subprocess.STDOUT
        )

    def stop(self, number: int = signal.SIGTERM, timeout: float = 30) -> int:
        """Send the signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        finally:
            self.process.kill()
            self._output.close()


def launch(launcher: str, log: Path, **variables: str) -> ServerProcess:
    """Start a launcher on a free port, without waiting for it."""
    port = free_port()
    return ServerProcess(LAUNCHERS[launcher](port), port, log, variables)


@contextmanager
def serving(load: Callable[[], LoadedModel], *, ready: bool = True, **settings: Any) -> Iterator[Server]:
    """An application with this load, in a thread of this process; where ready is asked for, the load is over."""
    import uvicorn

    from maple_spec.server.app import create_app
    from maple_spec.settings import Settings

    app = create_app(Settings(**settings), load=load)
    config = uvicorn.Config(app, port=free_port(), log_level="warning", lifespan="on", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    live = Server(config.port)
    live.wait(lambda health: not ready or health["status"] != "loading")
    try:
        yield live
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive(), "the server does not stop"
