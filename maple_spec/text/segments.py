"""Text in pieces, each marked as plain text or as a control token."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt. control: it is one control token; otherwise plain text, whatever it spells."""

    text: str
    control: bool = False


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A conversation as the model reads it. thinking: it ends inside an open think block, so the output starts as reasoning."""

    segments: tuple[Segment, ...]
    thinking: bool

    @property
    def text(self) -> str:
        """The prompt as one text."""
        return "".join(segment.text for segment in self.segments)


def control_pattern(control_tokens: Iterable[str]) -> re.Pattern[str]:
    """Finds control tokens in a text; of several that begin at one place the longest."""
    longest_first = sorted(control_tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def split(text: str, pattern: re.Pattern[str]) -> Iterator[Segment]:
    """The text in segments, none of them empty: what the pattern finds is control, what lies between is plain."""
    position = 0
    for match in pattern.finditer(text):
        if position < match.start():
            yield Segment(text[position : match.start()])
        yield Segment(match.group(), control=True)
        position = match.end()
    if position < len(text):
        yield Segment(text[position:])
