"""Fixtures for all tests: a checkpoint of random weights, and a server of each launcher that serves it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from maple_spec.kernels import native
from tests.live_server import LAUNCHERS, ServerProcess, launch

API_KEY = "sk-test"

if "TEST_LIBRARY" in os.environ:  # test_toolchain.py: the same tests with another build of the kernels
    native._places = lambda: [Path(os.environ["TEST_LIBRARY"])]

# A law says nothing about time, and a busy machine would break the default deadline of 200 ms.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")


def launch_variables(checkpoint: Path) -> dict[str, str]:
    """The environment of every launched server: a key, a strict model, small limits."""
    return {
        "MAPLE_MODEL_PATH": str(checkpoint),
        "MAPLE_API_KEY": API_KEY,
        "MAPLE_STRICT_MODEL": "true",
        "MAPLE_MAX_BODY_BYTES": "200000",
        "MAPLE_MAX_PROMPT_TOKENS": "1000",
        "MAPLE_MAX_NEW_TOKENS": "8",
        "MAPLE_ALLOWED_ORIGINS": "http://page.example",
        "MAPLE_SHUTDOWN_GRACE": "1",
    }


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a very small model of random weights."""
    from tests.random_checkpoint import write_random_checkpoint  # torch: not for tests that need none

    return write_random_checkpoint(tmp_path_factory.mktemp("random-checkpoint"))


@pytest.fixture(scope="session")
def launched(random_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    """One server of each launcher, all with the same environment."""
    logs = tmp_path_factory.mktemp("logs")
    servers = {launcher: launch(launcher, logs / launcher, **launch_variables(random_checkpoint)) for launcher in LAUNCHERS}
    try:
        for server in servers.values():
            server.wait(lambda health: health["status"] == "ok", 90)
        yield servers
    finally:
        for server in servers.values():
            server.stop()
