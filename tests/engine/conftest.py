"""Engines for the tests, each stopped at the end of its test, and the wait until one is idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from maple_spec.engine import Engine, EngineState
from tests.toys import ToyModel, loaded


async def becomes_idle(engine: Engine, within: float = 0.2) -> None:
    """The time is what an abort is promised; a busy machine is granted a little more."""
    deadline = time.monotonic() + within + 0.3
    while engine.active or engine.queue_depth:
        assert time.monotonic() < deadline, f"active {engine.active}, queued {engine.queue_depth}"
        await asyncio.sleep(0.005)


@pytest.fixture
def serve() -> Iterator[Callable[..., Engine]]:
    """Makes a ready engine that serves a toy."""
    engines: list[Engine] = []

    def make(model: ToyModel, **options: float) -> Engine:
        engine = Engine(lambda: loaded(model), **options)  # type: ignore[arg-type]
        engines.append(engine)
        engine.start()
        assert engine.wait_loaded(10)
        assert engine.state is EngineState.READY
        return engine

    yield make
    for engine in engines:
        engine.stop()
