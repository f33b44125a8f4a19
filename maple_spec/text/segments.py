"""A rendered prompt in pieces, each marked as plain text or as a control token."""

from __future__ import annotations

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
