"""Bytes are tokens, control tokens are made on demand alone, and pieces are only ever emitted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.text import ByteTokenizer, Segment
from tests.text.conftest import CONTROL_TOKENS

PIECES = (b"one", b"\xf0\x9f", b"", b"one", b"<think>")
tokenizer = ByteTokenizer(CONTROL_TOKENS, PIECES)
texts = st.lists(st.text(max_size=10) | st.sampled_from((*CONTROL_TOKENS, "<", "think>", "one")), max_size=8).map("".join)


@given(texts)
def test_a_plain_text_is_its_bytes_whatever_it_spells(text: str) -> None:
    assert bytes(tokenizer.encode(text, control_tokens=False)) == text.encode()
    assert tokenizer.encode_segments([Segment(text)]) == [*text.encode()]


@given(texts)
def test_every_text_comes_back_and_control_tokens_are_single(text: str) -> None:
    ids = tokenizer.encode(text, control_tokens=True)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert not set(ids) & set(tokenizer.piece_ids.values())
    plain = bytes(token_id if token_id < 256 else 0 for token_id in ids)
    assert not any(token.encode() in plain for token in CONTROL_TOKENS)


def test_ids_are_bytes_then_control_tokens_then_pieces_each_once() -> None:
    assert list(tokenizer.control_ids.values()) == [*range(256, 256 + len(CONTROL_TOKENS))]
    assert list(tokenizer.piece_ids) == [b"one", b"\xf0\x9f", b"", b"<think>"]
    assert [tokenizer.token_bytes(token_id) for token_id in tokenizer.piece_ids.values()] == list(tokenizer.piece_ids)
    assert tokenizer.vocab_size == 256 + len(CONTROL_TOKENS) + 4
    assert tokenizer.unused_ids(tokenizer.vocab_size + 2) == [tokenizer.vocab_size, tokenizer.vocab_size + 1]
    assert tokenizer.piece_ids[b"<think>"] != tokenizer.control_ids["<think>"]


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\ud83d", control_tokens=True)
