"""The server under test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import openai
import pytest


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(**settings: str) -> Iterator[str]:
    """A server of its own with these MAPLE_* settings (max_new_tokens="8"); its base URL, once it is ready."""
    with serving_process(**settings) as (url, _):
        yield url


@contextmanager
def serving_process(**settings: str) -> Iterator[tuple[str, int]]:
    """Such a server's base URL, and the id of its process."""
    port = free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAPLE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "maple_spec", "serve", "--port", str(port), "--log-level", "warning"],
        env={**inherited, **{f"MAPLE_{name.upper()}": value for name, value in settings.items()}},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    """Where the server is, ready to answer."""
    url = os.environ.get("CONFORMANCE_URL")
    if url:
        yield url.rstrip("/")
        return
    with serving() as url:
        yield url


def wait_until_ready(url: str, timeout: float = 300) -> None:
    """Ask /health until the model is there."""
    end = time.monotonic() + timeout
    while True:
        try:
            health = httpx.get(f"{url}/health").json()
        except httpx.TransportError as error:
            health = {"status": str(error)}
        if health["status"] == "ok":
            return
        assert health["status"] != "error", health
        assert time.monotonic() < end, health
        time.sleep(0.1)


@pytest.fixture(scope="session")
def client(base_url: str) -> Iterator[openai.OpenAI]:
    """The official SDK, pointed at the server, without retries."""
    key = os.environ.get("CONFORMANCE_KEY", "unused")
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0) as sdk:
        yield sdk
