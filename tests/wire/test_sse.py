"""JSON text and events."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from maple_spec.wire import sse

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_json_reads_back_even_with_halves_of_surrogate_pairs(value: Any) -> None:
    assert json.loads(sse.json_bytes(value).decode("utf-8")) == value


@given(values)
def test_an_event_is_one_line_whatever_it_holds(value: Any) -> None:
    event = sse.event(value)
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert not any(character in event[:-2] for character in b"\r\n")


def test_text_is_sent_as_it_is_and_not_escaped() -> None:
    assert sse.json_bytes({"text": "é 😀"}) == '{"text":"é 😀"}'.encode()
