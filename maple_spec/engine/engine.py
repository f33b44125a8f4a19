"""The engine: one worker thread owns model and cache; everybody else submits sequences and reads their events.

Loading happens in the worker thread too, so that start() returns at once and only one thread ever calls the model (OpenMP keeps
a team per calling thread). All methods may be called from any thread; submit() must be called on the asyncio loop that will
read the events, and several loops may do so.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from enum import StrEnum

from maple_spec.engine.language_model import LoadedModel
from maple_spec.engine.queue import SlotQueue
from maple_spec.engine.sequence import Sequence, TokenStream
from maple_spec.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    MapleError,
    ModelLoadFailed,
    ModelLoading,
    ShuttingDown,
)
from maple_spec.types import SamplingParams, TokenEvent

logger = logging.getLogger("maple_spec.engine")


class EngineState(StrEnum):
    """What the engine is doing, in the words of /health."""

    LOADING = "loading"
    READY = "ready"
    ERROR = "error"  # the load failed; Engine.error says why
    STOPPED = "stopped"  # before start() and after stop()


class Engine:
    """Runs one generation at a time; others wait in order of arrival."""

    def __init__(self, load: Callable[[], LoadedModel], *, max_queue_depth: int = 16, queue_timeout: float = 600.0) -> None:
        """load: called once, in the worker thread. queue_timeout: most seconds that a request waits for the slot."""
        self._load = load
        self._queue_timeout = queue_timeout
        self._queue = SlotQueue(max_queue_depth)
        self._lock = threading.Lock()  # guards state and thread
        self._state = EngineState.STOPPED
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()  # the load has succeeded or failed
        self._draining = False
        self.error: str | None = None
        self.load_seconds: float | None = None
        self.loaded: LoadedModel | None = None

    # What can be seen.

    @property
    def state(self) -> EngineState:
        """loading, ready, error or stopped."""
        return self._state

    @property
    def draining(self) -> bool:
        """True once drain() or stop() was called: nothing new is taken."""
        return self._draining

    @property
    def queue_depth(self) -> int:
        """How many requests wait for the slot."""
        return self._queue.depth

    @property
    def active(self) -> int:
        """1 while a request holds the slot, else 0."""
        return self._queue.active

    # Life.

    def start(self) -> None:
        """Spawn the worker thread, which loads the model; returns at once. A second call does nothing."""
        with self._lock:
            if self._thread is not None:
                return
            self._state = EngineState.LOADING
            self._thread = threading.Thread(target=self._work, name="maple-engine", daemon=True)
            self._thread.start()

    def wait_loaded(self, timeout: float | None = None) -> bool:
        """Block until the load has succeeded or failed; False where the timeout (seconds) passed first."""
        return self._settled.wait(timeout)

    async def drain(self, grace: float) -> None:
        """Take nothing new, let what runs or waits finish for grace seconds, then end the rest with ShuttingDown."""
        self._draining = True
        await asyncio.to_thread(self._queue.wait_idle, grace)
        self._fail_all()

    def stop(self, timeout: float = 5.0) -> None:
        """End everything with ShuttingDown and stop the worker thread, waiting at most timeout seconds for it."""
        self._draining = True
        self._fail_all()
        self._queue.close()
        with self._lock:
            thread = self._thread
            self._state = EngineState.STOPPED
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _fail_all(self) -> None:
        error = "the server is shutting down"
        for sequence in self._queue.empty_waiting():
            sequence.fail(ShuttingDown(error))
        running = self._queue.running()
        if running is not None:
            running.fail(ShuttingDown(error))

    # Requests.

    def require_ready(self) -> LoadedModel:
        """The loaded model; ModelLoading, ModelLoadFailed or ShuttingDown where requests cannot be taken."""
        if self._draining or self._state is EngineState.STOPPED:
            raise ShuttingDown("the server is shutting down")
        if self._state is EngineState.ERROR:
            raise ModelLoadFailed(f"the model could not be loaded: {self.error}")
        if self.loaded is None:
            raise ModelLoading("the model is still loading; try again in a few seconds")
        return self.loaded

    def submit(self, request_id: str, prompt_ids: SequenceOf[int], sampling: SamplingParams) -> TokenStream:
        """Queue a generation and return its events; refused here: loading, load failed, overloaded, prompt empty or too long.

        request_id must differ from those of all requests in flight. The caller closes the stream, whatever happens.
        """
        model = self.require_ready().language_model
        if not prompt_ids:
            raise InvalidRequest("the prompt holds no token", param="prompt")
        if len(prompt_ids) > model.context_length:
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt_ids)} tokens; the model's context is {model.context_length}"
            )
        sequence = Sequence(request_id, tuple(prompt_ids), sampling)
        self._queue.put(sequence)
        return TokenStream(
            sequence, queue_timeout=self._queue_timeout, leave_queue=self._queue.leave, abort=self._abort_sequence
        )

    def abort(self, request_id: str) -> None:
        """End a request, waiting or running; its stream just ends. Unknown and finished ids are fine."""
        sequence = self._queue.find(request_id)
        if sequence is not None:
            self._abort_sequence(sequence)

    def _abort_sequence(self, sequence: Sequence) -> None:
        self._queue.leave(sequence)
        sequence.end()

    # The worker thread.

    def _work(self) -> None:
        began = time.monotonic()
        try:
            # Torch comes in here, and not with this module: it takes longer to import than all the rest, and the port is open.
            from maple_spec.engine.runner import Runner

            loaded = self._load()
            runner = Runner(loaded)
        except Exception as error:
            # Whatever a load can raise is the operator's to read, in the log and in /health; the server stays up to say so.
            if isinstance(error, MapleError):  # says what is wrong in one line
                self.error = str(error)
                logger.error("loading the model failed: %s", error)  # noqa: TRY400
            else:
                self.error = f"{type(error).__name__}: {error}"
                logger.exception("loading the model failed")
            self._settle(EngineState.ERROR)
            return
        self.load_seconds = time.monotonic() - began
        self.loaded = loaded
        self._settle(EngineState.READY)
        while (sequence := self._queue.take()) is not None:
            # The slot is given back before the last word is said: who reads the end of one answer may count on the slot.
            end = runner.run(sequence)
            self._queue.release(sequence)
            if isinstance(end, TokenEvent):
                sequence.put(end)
            elif end is not None:
                sequence.fail(end)
            else:
                sequence.end()

    def _settle(self, state: EngineState) -> None:
        with self._lock:
            if self._state is EngineState.LOADING:
                self._state = state
        self._settled.set()
