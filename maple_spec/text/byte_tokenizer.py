"""A tokenizer without a vocabulary to learn: a byte is a token, so is each control token, and so is any text made one."""

from __future__ import annotations

from collections.abc import Iterable

from maple_spec.text.segments import Segment, control_pattern, split

BYTES = 256  # ids below are bytes


class ByteTokenizer:
    """Ids 0 to 255 are the bytes; then come the control tokens, then the pieces, which no text is ever encoded to."""

    def __init__(self, control_tokens: Iterable[str], pieces: Iterable[bytes] = ()) -> None:
        """pieces: what a model may emit as one token, UTF-8 or not; a piece that repeats has one id."""
        self.control_ids = {text: BYTES + index for index, text in enumerate(dict.fromkeys(control_tokens))}
        self._pattern = control_pattern(self.control_ids)
        self._bytes = [bytes([byte]) for byte in range(BYTES)] + [text.encode() for text in self.control_ids]
        self.piece_ids: dict[bytes, int] = {}
        for piece in pieces:
            if piece not in self.piece_ids:
                self.piece_ids[piece] = len(self._bytes)
                self._bytes.append(piece)

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return len(self._bytes)

    def encode(self, text: str, *, control_tokens: bool) -> list[int]:
        """Token ids of a text; control_tokens: whether text that spells a control token becomes one.

        UnicodeEncodeError where the text holds half a surrogate pair.
        """
        return self.encode_segments(split(text, self._pattern) if control_tokens else [Segment(text)])

    def encode_segments(self, segments: Iterable[Segment]) -> list[int]:
        """Token ids of a rendered prompt: control segments are single tokens, the others plain text."""
        ids: list[int] = []
        for segment in segments:
            ids += [self.control_ids[segment.text]] if segment.control else segment.text.encode()
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for: control tokens their text."""
        return self._bytes[token_id]

    def unused_ids(self, vocab_size: int) -> list[int]:
        """The ids below vocab_size that have no token."""
        return list(range(self.vocab_size, vocab_size))
