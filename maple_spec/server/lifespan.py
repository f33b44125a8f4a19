"""From start to stop: logging, the load in the background, and an end that no open stream can put off for ever.

No launcher's shutdown has a deadline of its own, so one is set here: after the signal, running answers get MAPLE_SHUTDOWN_GRACE
seconds; then the engine ends them, streams with an error of their own and [DONE].
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

from maple_spec.engine import EngineState
from maple_spec.server.assembly import Service


@asynccontextmanager
async def running(service: Service, load_failed: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Start the service, and stop it on the way out; load_failed is called where the model cannot be loaded."""
    _configure_logging(service.settings.log_level)
    with _on_shutdown_signal(lambda: service.engine.drain(service.settings.shutdown_grace)):
        service.start()
        watch = asyncio.create_task(_watch_load(service, load_failed)) if load_failed else None
        try:
            yield
        finally:
            if watch is not None:
                watch.cancel()
            await asyncio.to_thread(service.engine.stop)


async def _watch_load(service: Service, load_failed: Callable[[], None]) -> None:
    while service.engine.state is EngineState.LOADING:  # noqa: ASYNC110 -- it settles in another thread
        await asyncio.sleep(0.05)
    if service.engine.error is not None:
        load_failed()


def _configure_logging(level: str) -> None:
    """Our own level for our own lines; they need a place to go where the launcher has set up none."""
    ours = logging.getLogger("maple_spec")
    ours.setLevel(level.upper())
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        ours.addHandler(handler)


@contextmanager
def _on_shutdown_signal(drain: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """Have drain() run on the loop once SIGTERM or SIGINT comes, before the launcher's own handler does its part."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals; whoever runs a server elsewhere ends it otherwise
        return
    loop = asyncio.get_running_loop()
    saved: dict[int, signal._HANDLER] = {}
    begun: list[asyncio.Task[None]] = []

    def begin() -> None:
        if not begun:
            begun.append(loop.create_task(drain()))

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin)
        handler = saved[number]
        if callable(handler):
            handler(number, frame)

    for wanted in (signal.SIGTERM, signal.SIGINT):
        saved[wanted] = signal.signal(wanted, on_signal)
    try:
        yield
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
