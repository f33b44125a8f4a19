"""Text to token ids and back, with control tokens under our own hand.

A tokenizer.json lists added tokens (<|im_end|>, <think>, …) which the tokenizers library turns into single ids wherever their
text occurs. Here the added tokens are split off by us and everything between them goes through the same tokenizer without them,
so that each piece of text can be encoded either with or without control tokens. With them, the ids equal the library's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# One request is encoded at a time and outside the interpreter's lock either way; the library's thread pool would only take
# cores from the model. It reads the variable when it first encodes.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import tokenizers

from maple_spec.errors import CheckpointError
from maple_spec.text.segments import Segment, control_pattern, split


class Tokenizer:
    """A byte-level BPE tokenizer as tokenizer.json describes it."""

    def __init__(self, description: dict[str, Any], *, source: str = "tokenizer.json") -> None:
        """description: the content of a tokenizer.json; source: its path, named in errors (CheckpointError)."""
        self._added = _added_tokens(description, source)
        self._added_texts = {token_id: text for text, token_id in self._added.items()}
        self._pattern = control_pattern(self._added)
        if not _is_byte_level(description.get("decoder")):
            raise CheckpointError(f"{source}: decoder is not ByteLevel; only byte-level tokenizers are supported")
        # Nor may a prompt be cut, padded or given tokens that its template does not have.
        plain = dict.fromkeys(("truncation", "padding", "post_processor"))
        try:
            self._base = tokenizers.Tokenizer.from_str(json.dumps({**description, **plain, "added_tokens": []}))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{source}: the tokenizers library cannot read it: {error}") from error
        # One more than the highest id that has a token.
        self.vocab_size = 1 + max((*self._added_texts, self._base.get_vocab_size(with_added_tokens=False) - 1))
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """Read a tokenizer.json; CheckpointError names the file where it is missing or damaged."""
        try:
            description = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be read as a tokenizer: {error}") from error
        if not isinstance(description, dict):
            raise CheckpointError(f"{path}: a tokenizer.json holds one JSON object")
        return cls(description, source=str(path))

    @property
    def control_tokens(self) -> frozenset[str]:
        """The texts of all added tokens."""
        return frozenset(self._added)

    def id_of(self, token: str) -> int | None:
        """The id of a token, control tokens first; None where there is no such token."""
        return self._added.get(token, self._base.token_to_id(token))

    def encode(self, text: str, *, control_tokens: bool) -> list[int]:
        """Token ids of a text; control_tokens: whether text that spells a control token becomes one.

        UnicodeEncodeError where the text holds half a surrogate pair.
        """
        if not control_tokens:
            return self._encode_plain(text)
        return self.encode_segments(split(text, self._pattern))

    def encode_segments(self, segments: Iterable[Segment]) -> list[int]:
        """Token ids of a rendered prompt: control segments are single tokens, the others plain text."""
        ids: list[int] = []
        for segment in segments:
            if segment.control:
                ids.append(self._added[segment.text])
            else:
                ids += self._encode_plain(segment.text)
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        # The batch call is the one that runs without the interpreter's lock, so a long prompt does not stop the event loop.
        try:
            encoding: tokenizers.Encoding = self._base.encode_batch_fast([text], add_special_tokens=False)[0]
        except TypeError:
            text.encode()  # says that the text holds half a surrogate pair; the library only says that it is no text
            raise
        ids: list[int] = encoding.ids
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for: control tokens their text, ids without a token nothing."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._find_bytes(token_id)
        return known

    def _find_bytes(self, token_id: int) -> bytes:
        added = self._added_texts.get(token_id)
        if added is not None:
            return added.encode()
        token = self._base.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None
        if token is None:
            return b""
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of all tokens, control tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")

    def unused_ids(self, vocab_size: int) -> list[int]:
        """The ids below vocab_size that have no token: padding rows of a model whose vocabulary is rounded up."""
        used = {*self._added_texts, *self._base.get_vocab(with_added_tokens=False).values()}
        return [token_id for token_id in range(vocab_size) if token_id not in used]


def _added_tokens(description: dict[str, Any], source: str) -> dict[str, int]:
    added = {}
    for token in description.get("added_tokens") or ():
        text = token["content"]
        if any(token.get(flag) for flag in ("single_word", "lstrip", "rstrip")):
            raise CheckpointError(f"{source}: added token {text!r} uses single_word, lstrip or rstrip, which is not supported")
        added[text] = token["id"]
    return added


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders") or ()))


def _byte_of_character() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 and up, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_OF_CHARACTER = _byte_of_character()
