"""The events of one generation on their way to the client: whole or streamed, with a watch on whether anybody still listens.

A client that leaves cancels what is being done for it, whatever that is: waiting in the queue, prefill, or a stream. Nothing is
sent before the generation has the slot, so that refusals keep their status; after that an error is an event of the stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from maple_spec.errors import ApiError, GenerationFailed
from maple_spec.types import Finished, TextEvent
from maple_spec.wire import sse
from maple_spec.wire.responses import Writer

logger = logging.getLogger("maple_spec.server")

T = TypeVar("T")

SILENCE: Final = 15.0  # seconds without a byte after which a stream says that it is alive; proxies often give up at 30 or 60

HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def whole(events: AsyncIterator[TextEvent], write: Callable[[], Writer], receive: Receive) -> Response:
    """All events as one JSON body; write is called when the model is there. Raises ClientDisconnect and what events raises."""
    collected = await _while_connected(_collect(events), receive)
    _require_end(collected[-1] if collected else None)
    return Response(sse.json_bytes(write().whole(collected)), media_type="application/json")


async def streamed(
    events: AsyncIterator[TextEvent], write: Callable[[], Writer], receive: Receive, request_id: str
) -> Response:
    """The events as server-sent events; waits for the first, which says that the slot is taken and no refusal can follow."""
    first = await _while_connected(_first(events), receive)
    return EventStream(first, events, write(), request_id)


class EventStream(StreamingResponse):
    """An answer as server-sent events, ending with [DONE] whatever happens, and never silent for longer than SILENCE."""

    def __init__(self, first: TextEvent, events: AsyncIterator[TextEvent], writer: Writer, request_id: str) -> None:
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)  # type: ignore[arg-type]
        self._first = first
        self._events = events
        self._writer = writer
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end or until the client leaves."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            with suppress(ClientDisconnect):
                await _while_connected(self._send(_Pen(send)), receive)
        finally:
            await _close(self._events)

    async def _send(self, pen: _Pen) -> None:
        async with pen:
            event = self._first
            await pen.write(self._spell(*self._writer.opening(), *self._writer.chunks(event)))
            try:
                async for event in self._events:
                    await pen.write(self._spell(*self._writer.chunks(event)))
                _require_end(event)
            except ApiError as error:
                await pen.write(self._spell(error.body()))
            except Exception:
                logger.exception("request %s: unexpected error in a stream", self._request_id)
                await pen.write(self._spell(GenerationFailed("the server had an error while generating").body()))
            await pen.write(sse.DONE)

    @staticmethod
    def _spell(*chunks: dict[str, Any]) -> bytes:
        return b"".join(map(sse.event, chunks))


class _Pen:
    """Writes the body of a stream, and a comment line whenever nothing was written for SILENCE seconds."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._clock = asyncio.get_running_loop().time
        self._written = self._clock()

    async def write(self, data: bytes) -> None:
        """Send data; nothing where it is empty."""
        if data:
            self._written = self._clock()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def __aenter__(self) -> None:
        self._keeper = asyncio.create_task(self._keep_alive())

    async def __aexit__(self, *raised: object) -> None:
        self._keeper.cancel()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self) -> None:
        while True:
            silent = self._clock() - self._written
            if silent >= SILENCE:
                await self.write(sse.KEEP_ALIVE)
            else:
                await asyncio.sleep(SILENCE - silent)


async def _collect(events: AsyncIterator[TextEvent]) -> list[TextEvent]:
    try:
        return [event async for event in events]
    finally:
        await _close(events)


async def _first(events: AsyncIterator[TextEvent]) -> TextEvent:
    try:
        return await anext(events)
    except StopAsyncIteration:
        raise _aborted() from None
    except BaseException:
        await _close(events)
        raise


def _require_end(last: TextEvent | None) -> None:
    if not isinstance(last, Finished):
        raise _aborted()


def _aborted() -> GenerationFailed:
    return GenerationFailed("the generation was aborted")


async def _close(events: AsyncIterator[TextEvent]) -> None:
    """Free the generation's place; the iterator of a generation that is over takes this too."""
    await events.aclose()  # type: ignore[attr-defined]


async def _while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Do the work; where the client leaves first, cancel it and raise ClientDisconnect."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
