"""The one slot and those who wait for it, in order of arrival.

The slot is handed over under one lock: a sequence that arrives while the slot is free has it at once, and a slot that is given
back goes to the first who waits, so that no moment exists in which a newcomer could overtake or be counted as waiting without
need.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from maple_spec.engine.sequence import Sequence
from maple_spec.errors import EngineOverloaded, ShuttingDown


class SlotQueue:
    """A queue of at most max_depth waiting sequences before a single slot; safe from any thread."""

    def __init__(self, max_depth: int) -> None:
        """max_depth: how many may wait beside the one that runs; 0 means that nobody waits."""
        self._max_depth = max_depth
        self._active: Sequence | None = None
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self._closed = False
        self._changed = threading.Condition()

    @property
    def depth(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """1 while a sequence holds the slot, else 0."""
        return 0 if self._active is None else 1

    def put(self, sequence: Sequence) -> None:
        """Give the sequence the slot or a place in the queue; EngineOverloaded where neither is free, ShuttingDown once closed.

        A request id that is in the queue already is a broken invariant of the caller: ValueError.
        """
        with self._changed:
            if self._closed:
                raise ShuttingDown("the server is shutting down")
            if self._find(sequence.request_id) is not None:
                raise ValueError(f"request id {sequence.request_id!r} is in use")
            if self._active is None:
                self._active = sequence
                self._changed.notify_all()
            elif len(self._waiting) < self._max_depth:
                self._waiting[sequence.request_id] = sequence
            else:
                raise EngineOverloaded(f"{len(self._waiting)} requests are waiting already; try again later")

    def take(self) -> Sequence | None:
        """Block until a sequence has the slot and return it; None once the queue is closed. For the worker thread."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._active is not None)
            return None if self._closed else self._active

    def release(self, sequence: Sequence) -> None:
        """Give the slot back: the first who waits has it from now on."""
        with self._changed:
            assert self._active is sequence, "only the holder gives the slot back"
            self._active = self._waiting.popitem(last=False)[1] if self._waiting else None
            self._changed.notify_all()

    def leave(self, sequence: Sequence) -> bool:
        """Take a waiting sequence out of the queue; False where it does not wait (it runs, or it is gone)."""
        with self._changed:
            if self._waiting.get(sequence.request_id) is not sequence:
                return False
            del self._waiting[sequence.request_id]
            return True

    def find(self, request_id: str) -> Sequence | None:
        """The waiting or running sequence of that id; not one that was aborted and is about to give the slot back."""
        with self._changed:
            return self._find(request_id)

    def _find(self, request_id: str) -> Sequence | None:
        active = self._active
        if active is not None and active.request_id == request_id and not active.aborted.is_set():
            return active
        return self._waiting.get(request_id)

    def empty_waiting(self) -> list[Sequence]:
        """Take out all who wait, in order."""
        with self._changed:
            waiting = list(self._waiting.values())
            self._waiting.clear()
            return waiting

    def wait_idle(self, timeout: float) -> bool:
        """Block until nothing runs or waits; False where the timeout (seconds) passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._active is None, timeout)

    def running(self) -> Sequence | None:
        """The holder of the slot."""
        return self._active

    def close(self) -> None:
        """Let take() return None from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
