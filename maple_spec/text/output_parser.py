"""What a model writes, split into reasoning, content and tool calls, while it writes.

    output    = [ thought ] answer
    thought   = reasoning "</think>"            where the prompt has opened the block; a repeated "<think>" is skipped
              | "<think>" reasoning "</think>"  where it has not
    answer    = { content | block }
    block     = "<tool_call>" one JSON object with a name "</tool_call>"

Everything that is no marker of this grammar is text and stays where it stands: blocks inside the reasoning, markers that close
nothing, blocks that are not valid JSON or not closed. Lost are only the markers of what was parsed, the white space beside
them, and the white space at the ends of the reasoning. The result does not depend on how the text is cut into pieces, and text
is held back only while it might be a marker, or white space beside one. Time is linear in the length of the text: a failed
block is read again from behind its opening marker, but no text lies in more than two blocks that are still possible, since what
is a string to one is not to the other.
"""

from __future__ import annotations

from enum import Enum, auto

from maple_spec.text.tool_call import TOOL_CALL, ToolCallBlock
from maple_spec.types import ContentDelta, Delta, FinishReason, ReasoningDelta

THINK = "<think>"
END_THINK = "</think>"


class _Mode(Enum):
    BEGIN = auto()  # only white space so far
    REASONING = auto()
    CONTENT = auto()
    BLOCK = auto()


class OutputParser:
    """Feed it pieces of the output in order, then finish it; both return the deltas that have become certain.

    `finish_reason` is the reason to report once finished. `reasoning_end` is the place of the thought's `</think>` in the
    output, counted in characters; None where no thought was closed.
    """

    def __init__(self, thinking: bool, parse_tool_calls: bool = True) -> None:
        """thinking: the prompt ends inside an open think block. parse_tool_calls: False leaves blocks in the content."""
        self.finish_reason: FinishReason | None = None
        self.reasoning_end: int | None = None
        self._thinking = thinking
        self._parse_tool_calls = parse_tool_calls
        self._mode = _Mode.BEGIN
        self._white = _WhiteSpace(dropping=thinking)
        self._partial = ""  # the end of what was fed, where it might begin a marker
        self._read_before = 0  # characters fed before the text that is being read
        self._block = ToolCallBlock()
        self._called = False
        self._text: list[str] = []  # the delta that is being put together
        self._deltas: list[Delta] = []

    @property
    def in_reasoning(self) -> bool:
        """Whether what was read last, white space apart, is reasoning."""
        return self._mode is _Mode.REASONING

    @property
    def in_answer(self) -> bool:
        """Whether the reasoning is over, or there was none; no more of it can come."""
        return self._mode in (_Mode.CONTENT, _Mode.BLOCK)

    def feed(self, text: str) -> list[Delta]:
        """Take the next piece of the output; return what has become certain."""
        if not text:
            return []
        if "<" not in text and not self._partial and self._mode in (_Mode.CONTENT, _Mode.REASONING):
            # Most pieces are of this kind; the way below would do the same with them, but slower.
            self._read_before += len(text)
            self._write(text)
            return self._take()
        text = self._partial + text
        self._partial = ""
        self._read(text)
        self._read_before += len(text) - len(self._partial)
        return self._take()

    def finish(self, finish_reason: FinishReason) -> list[Delta]:
        """No more comes: what is held back is text. finish_reason: why the generation ended."""
        while self._mode is _Mode.BLOCK:
            self._give_up_block()
            self._read("".join(self._block.pieces))
        if self._mode is _Mode.BEGIN:
            self._mode = _Mode.REASONING if self._thinking else _Mode.CONTENT
        self._write(self._partial)
        if self._mode is _Mode.CONTENT:
            self._text.append(self._white.take())
        by_itself = finish_reason is FinishReason.STOP
        self.finish_reason = FinishReason.TOOL_CALLS if self._called and by_itself else finish_reason
        return self._take()

    def _read(self, text: str) -> None:
        position = 0
        while position < len(text):
            if self._mode is _Mode.BLOCK:
                text, position = self._read_block(text, position)
            elif self._mode is _Mode.CONTENT:
                position = self._read_content(text, position)
            elif self._mode is _Mode.REASONING:
                position = self._read_reasoning(text, position)
            else:
                position = self._read_begin(text, position)

    def _read_begin(self, text: str, position: int) -> int:
        rest = text[position:].lstrip()
        begin = len(text) - len(rest)
        self._write(text[position:begin])
        if rest.startswith(THINK):
            self._mode = _Mode.REASONING
            self._white.drop()
            return begin + len(THINK)
        if THINK.startswith(rest):
            self._partial = rest
            return len(text)
        self._mode = _Mode.REASONING if self._thinking else _Mode.CONTENT
        return begin

    def _read_reasoning(self, text: str, position: int) -> int:
        end, following = self._read_until(END_THINK, text, position)
        if following is not None:
            self.reasoning_end = self._read_before + end
            self._close_delta()
            self._white.drop()
            self._mode = _Mode.CONTENT
            return following
        return len(text)

    def _read_content(self, text: str, position: int) -> int:
        if not self._parse_tool_calls:
            # No marker can follow, so white space needs no second thought but at the beginning.
            self._text.append(self._white.pass_on(text[position:]) + self._white.take())
            return len(text)
        _, following = self._read_until(TOOL_CALL, text, position)
        if following is not None:
            self._mode = _Mode.BLOCK
            self._block = ToolCallBlock()
            return following
        return len(text)

    def _read_until(self, marker: str, text: str, position: int) -> tuple[int, int | None]:
        """Write what stands before the marker; return the places of the marker and behind it.

        Where the marker is not in the text, all is written but an end that might begin it, and there is no place behind it.
        """
        end = text.find(marker, position)
        found = end >= 0
        if not found:
            end = _partial_begin(marker, text, position)
            self._partial = text[end:]
        self._write(text[position:end])
        return end, end + len(marker) if found else None

    def _read_block(self, text: str, position: int) -> tuple[str, int]:
        """Follow the block; return the text and the place from which to go on, which lie further back where it has failed."""
        block = self._block
        following = block.feed(text, position)
        if not (block.complete or block.failed):
            return text, following
        call = block.call() if block.complete else None
        if call is None:
            self._give_up_block()
            if len(block.pieces) == 1:
                return text, position
            return "".join(block.pieces) + text[following:], 0
        self._called = True
        self._close_delta()
        self._deltas.append(call)
        self._white.drop()
        self._mode = _Mode.CONTENT
        return text, following

    def _give_up_block(self) -> None:
        """The block is none: its opening marker is text, and what stands behind it will be read again."""
        self._mode = _Mode.CONTENT
        self._write(TOOL_CALL)

    def _write(self, text: str) -> None:
        self._text.append(self._white.pass_on(text))

    def _close_delta(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text:
            self._deltas.append(ReasoningDelta(text) if self._mode is _Mode.REASONING else ContentDelta(text))

    def _take(self) -> list[Delta]:
        self._close_delta()
        deltas, self._deltas = self._deltas, []
        return deltas


class _WhiteSpace:
    """Holds back white space until it is known what follows it: text, or a marker that swallows it."""

    __slots__ = ("_dropping", "_held")

    def __init__(self, *, dropping: bool) -> None:
        """dropping: white space that comes first is lost."""
        self._dropping = dropping
        self._held: list[str] = []

    def pass_on(self, text: str) -> str:
        """The text that is certain: what was held and the text, up to its last character that is not white space."""
        if self._dropping:
            text = text.lstrip()
            self._dropping = not text
        body = text.rstrip()
        if not body:
            if text:
                self._held.append(text)
            return ""
        before = self.take()
        if len(body) < len(text):
            self._held.append(text[len(body) :])
        return before + body

    def take(self) -> str:
        """The white space that is held; it is text after all."""
        if not self._held:
            return ""
        held = "".join(self._held)
        self._held.clear()
        return held

    def drop(self) -> None:
        """A marker stands here: white space before and behind it is lost."""
        self._held.clear()
        self._dropping = True


def _partial_begin(marker: str, text: str, position: int) -> int:
    """Where the longest end of text[position:] that might begin the marker begins; the text's end where none might."""
    # A marker holds "<" at its beginning alone.
    begin = text.rfind("<", max(position, len(text) - len(marker) + 1))
    return begin if begin >= 0 and marker.startswith(text[begin:]) else len(text)
