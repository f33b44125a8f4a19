"""The servers that the clients talk to, and the event loops they do it in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conftest import serving

KEY = os.environ.get("CONFORMANCE_KEY", "unused")
SCRIPT = Path(__file__).with_name("script.json")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The clients know asyncio best."""
    return "asyncio"


@pytest.fixture(scope="session")
def scripted_url() -> Iterator[str]:
    """A server that plays the script."""
    _skip_where_the_server_is_given()
    with serving(model_path=f"script:{SCRIPT}", api_key=KEY) as url:
        yield url


@pytest.fixture(scope="session")
def impatient_url() -> Iterator[str]:
    """One that plays the script too, and lets nobody wait for the one slot."""
    _skip_where_the_server_is_given()
    with serving(model_path=f"script:{SCRIPT}", api_key=KEY, max_queue_depth="0") as url:
        yield url


def _skip_where_the_server_is_given() -> None:
    if os.environ.get("CONFORMANCE_URL"):
        pytest.skip("the test needs written answers, and a server of our own that plays them")
