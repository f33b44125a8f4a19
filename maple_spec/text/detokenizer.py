"""Token bytes to text, token by token: a character leaves when its last byte has come, and none is ever cut or lost."""

from __future__ import annotations

import codecs


class Detokenizer:
    """Decodes a stream of UTF-8 bytes cut anywhere; what is no UTF-8 becomes U+FFFD as decode(errors="replace") has it."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_bytes: bytes) -> str:
        """The text that is complete now; may be empty."""
        return self._decoder.decode(token_bytes)

    def finish(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character, else nothing."""
        return self._decoder.decode(b"", final=True)
