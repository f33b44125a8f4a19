"""Stop strings over a stream of text: found across pieces, trimmed exactly, nothing else held back.

The match that is complete first wins; of several complete at the same character, the longest. So the result does not depend on
how the text is cut. Each stop string is followed by a Knuth-Morris-Pratt automaton: linear time, whatever the strings are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class StopMatcher:
    """Passes text on until a stop string appears; `matched` is True from then on and nothing more passes."""

    def __init__(self, stops: Iterable[str]) -> None:
        """Empty stop strings are ignored."""
        self._automata = [_Automaton(stop) for stop in dict.fromkeys(stops) if stop]
        first = "".join(re.escape(automaton.stop[0]) for automaton in self._automata)
        self._first = re.compile(f"[{first}]") if first else None
        self._held = ""  # the longest end of the text that begins a stop string
        self.matched = False

    def feed(self, text: str) -> str:
        """The text that may pass now: it belongs to no stop string, nor to a beginning of one."""
        if self.matched:
            return ""
        if self._first is None or (not self._held and not self._first.search(text)):
            return text
        text, begin = self._held + text, len(self._held)
        for position in range(begin, len(text)):
            character = text[position]
            complete = [automaton for automaton in self._automata if automaton.step(character)]
            if complete:
                self.matched = True
                self._held = ""
                return text[: position + 1 - max(len(automaton.stop) for automaton in complete)]
        held = max(automaton.state for automaton in self._automata)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, now that no stop string can complete it."""
        held, self._held = self._held, ""
        return held


class _Automaton:
    """How much of one stop string the text ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        self._fallback = [0] * len(stop)  # [i]: length of the longest proper end of stop[:i + 1] that also begins it
        length = 0
        for index in range(1, len(stop)):
            while length and stop[index] != stop[length]:
                length = self._fallback[length - 1]
            if stop[index] == stop[length]:
                length += 1
            self._fallback[index] = length

    def step(self, character: str) -> bool:
        """Take one character; True where the stop string is complete."""
        state = self.state
        while state and self.stop[state] != character:
            state = self._fallback[state - 1]
        if self.stop[state] == character:
            state += 1
        self.state = state
        return state == len(self.stop)
