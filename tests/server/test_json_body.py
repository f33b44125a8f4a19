"""Bytes as a JSON object, or a refusal that says why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.errors import InvalidRequest
from maple_spec.server.json_body import MAX_DEPTH, parse_json_object
from maple_spec.wire import sse

plain = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
objects = st.dictionaries(
    st.text(), st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
)


@given(objects, st.booleans(), st.booleans())
def test_every_json_object_is_read_as_it_was_written(value: dict[str, Any], escaped: bool, mark: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escaped).encode()
    assert parse_json_object(b"\xef\xbb\xbf" + raw if mark else raw) == value


@given(st.binary())
def test_whatever_the_bytes_the_answer_is_an_object_or_a_refusal(raw: bytes) -> None:
    try:
        parse_json_object(raw)
    except InvalidRequest as refusal:
        sse.json_bytes(refusal.body())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "Expecting value"),
        (b'{"a":1', "delimiter"),
        (b'{"a":1}x', "Extra data"),
        (b"{'a':1}", "double quotes"),
        (b'{"a":NaN}', "NaN is not a JSON number"),
        (b'{"a":-Infinity}', "-Infinity is not a JSON number"),
        (b'{"a":1e999}', "1e999 is too large a number"),
        (b'{"a":-1e999}', "too large a number"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\xed\xa0\xbd"}', "not UTF-8"),
        (b'{"a":"\\ud83d"}', "half of a surrogate pair"),
        (b'{"a":["\\uDE00 x"]}', "half of a surrogate pair"),
        (b'{"\\ud83d":1}', "half of a surrogate pair"),
        (b'{"a":' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"a":' + b"[" * 100_000, "nested deeper"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    ],
)
def test_what_is_not_json_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refusal:
        parse_json_object(raw)
    assert refusal.value.code == "invalid_json"
    assert refusal.value.param is None


@pytest.mark.parametrize("raw", [b"null", b"[]", b"1", b'"{}"', b"true"])
def test_only_an_object_is_a_request(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_json_object(raw)
    assert refusal.value.code == "invalid_type"


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse_json_object(b'{"a":"\\ud83d\\ude00"}') == {"a": "😀"}


def test_nesting_is_allowed_up_to_the_limit_and_not_beyond() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    parse_json_object(nested(MAX_DEPTH))
    with pytest.raises(InvalidRequest, match="nested deeper"):
        parse_json_object(nested(MAX_DEPTH + 1))
