"""Engines for the tests, each stopped at the end of its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from maple_spec.engine import Engine, EngineState
from tests.toys import ToyModel, loaded


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
