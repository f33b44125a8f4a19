"""One request inside the engine: what is to be generated, and the mailbox through which its events leave the worker thread.

Events cross from the worker thread to the consumer's asyncio loop through a deque; the loop is woken by call_soon_threadsafe,
and only where no earlier wake-up is still on its way, so that a fast model costs one wake-up for many tokens.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from maple_spec.errors import ApiError, EngineOverloaded
from maple_spec.types import SamplingParams, TokenEvent


class _Mark(Enum):
    STARTED = auto()  # the slot is taken and the model has accepted the prompt
    ENDED = auto()  # aborted: nothing follows


class AbortFlag(threading.Event):
    """Set once a sequence is aborted; what is computing for it at that moment can ask to be told."""

    def __init__(self) -> None:
        super().__init__()
        self._tell: Callable[[], None] | None = None

    def tell(self, tell: Callable[[], None]) -> None:
        """Call `tell`, from whatever thread, once the flag is set; at once where it is."""
        self._tell = tell
        if self.is_set():
            tell()

    def set(self) -> None:
        """Raise the flag."""
        super().set()
        if self._tell is not None:
            self._tell()


class Sequence:
    """One generation from submit to its last event; made on the consumer's loop, filled by the worker thread."""

    __slots__ = (
        "_closed",
        "_items",
        "_loop",
        "_waiter",
        "_wake_pending",
        "aborted",
        "cached_tokens",
        "prompt_ids",
        "request_id",
        "sampling",
    )

    def __init__(self, request_id: str, prompt_ids: tuple[int, ...], sampling: SamplingParams) -> None:
        """Must be called on the asyncio loop that will consume the events."""
        self.request_id = request_id
        self.prompt_ids = prompt_ids
        self.sampling = sampling
        self.aborted = AbortFlag()  # read by the worker between two calls of the model
        self.cached_tokens = 0  # of the prompt, that need not be computed; known once started
        self._loop = asyncio.get_running_loop()
        self._items: deque[TokenEvent | ApiError | _Mark] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._wake_pending = False
        self._closed = False

    # The producer's side: any thread.

    def put_started(self, cached_tokens: int = 0) -> None:
        """Tell the consumer that generation has begun, and how many tokens of the prompt need not be computed."""
        self.cached_tokens = cached_tokens
        self._put(_Mark.STARTED)

    def put(self, event: TokenEvent) -> None:
        """Hand one event to the consumer."""
        self._put(event)

    def fail(self, error: ApiError) -> None:
        """End the sequence: the consumer's iteration raises the error."""
        self.aborted.set()
        self._put(error)

    def end(self) -> None:
        """End the sequence without a last event: it was aborted."""
        self.aborted.set()
        self._put(_Mark.ENDED)

    def _put(self, item: TokenEvent | ApiError | _Mark) -> None:
        if self._closed:
            return
        self._items.append(item)
        if self._wake_pending:
            # That wake-up has not run yet: it clears the flag before the consumer looks, so it will see this item too.
            return
        self._wake_pending = True
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the consumer's loop is closed: nobody will ever read this
            self.aborted.set()

    # The consumer's side: its loop alone.

    def _wake(self) -> None:
        self._wake_pending = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> TokenEvent | ApiError | _Mark:
        """The next item, in order."""
        while not self._items:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._items.popleft()

    def close(self) -> None:
        """Nobody listens any more: drop what waits and whatever may still come."""
        self._closed = True
        self.aborted.set()
        self._items.clear()


class TokenStream:
    """The events of one sequence as an async iterator; closing it frees the sequence's place at once.

    The last TokenEvent carries a finish_reason. An aborted sequence just ends. Errors are raised: EngineOverloaded when the
    wait for the slot took too long, GenerationFailed, ShuttingDown, or what the model refused the request with.
    """

    def __init__(
        self,
        sequence: Sequence,
        *,
        queue_timeout: float,
        leave_queue: Callable[[Sequence], bool],
        abort: Callable[[Sequence], None],
    ) -> None:
        """queue_timeout: most seconds to wait for the slot; leave_queue: gives up the place, False where the slot was given."""
        self._sequence = sequence
        self._queue_timeout = queue_timeout
        self._leave_queue = leave_queue
        self._abort = abort
        self._started = False
        self._ended = False

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompt need not be computed again; known once started."""
        return self._sequence.cached_tokens

    async def started(self) -> None:
        """Return when the sequence has the slot and the model has accepted the prompt; nothing is refused after that."""
        if self._started or self._ended:
            return
        try:
            async with asyncio.timeout(self._queue_timeout):
                item = await self._sequence.get()
        except TimeoutError:
            if self._leave_queue(self._sequence):
                self.close()
                raise EngineOverloaded(f"no slot came free within {self._queue_timeout:g} seconds; try again later") from None
            item = await self._sequence.get()  # the slot was given in this very moment
        self._started = True
        if item is not _Mark.STARTED:
            self._finish(item)

    def __aiter__(self) -> TokenStream:
        return self

    async def __anext__(self) -> TokenEvent:
        if not self._started:
            await self.started()
        if self._ended:
            raise StopAsyncIteration
        item = await self._sequence.get()
        if isinstance(item, TokenEvent):
            if item.finish_reason is not None:
                self._ended = True
            return item
        self._finish(item)
        raise StopAsyncIteration

    def _finish(self, item: TokenEvent | ApiError | _Mark) -> None:
        self._ended = True
        if isinstance(item, ApiError):
            raise item

    def close(self) -> None:
        """Stop listening and free the sequence's place, queued or running; harmless after the end and when repeated."""
        self._ended = True
        self._sequence.close()
        self._abort(self._sequence)
