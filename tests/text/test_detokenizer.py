"""Bytes cut anywhere give the text that they give whole: no half characters, none lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.text import Detokenizer


def decode(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer()
    return [*(detokenizer.feed(piece) for piece in pieces), detokenizer.finish()]


@given(st.lists(st.binary(max_size=6) | st.text(max_size=3).map(str.encode)))
def test_any_bytes_in_any_pieces_give_what_they_give_whole(pieces: list[bytes]) -> None:
    assert "".join(decode(pieces)) == b"".join(pieces).decode("utf-8", errors="replace")


@given(st.text())
def test_byte_by_byte_each_character_comes_with_its_last_byte(text: str) -> None:
    shown = decode([bytes([byte]) for byte in text.encode()])
    assert [piece for piece in shown if piece] == list(text)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b"\xf0\x9f", b"\x99\x82"], ["", "🙂", ""]),
        ([b"h", b"\xff", b"i"], ["h", "\ufffd", "i", ""]),  # what can never become a character holds nothing up
        ([b"\xf0\x9f"], ["", "\ufffd"]),
    ],
)
def test_a_character_waits_for_its_bytes_and_for_nothing_else(pieces: list[bytes], shown: list[str]) -> None:
    assert decode(pieces) == shown
