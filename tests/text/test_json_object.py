"""The reader of JSON objects agrees with the standard library's, however the text is cut, and knows at once what is spoilt."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NoReturn

from hypothesis import given
from hypothesis import strategies as st

from maple_spec.text.json_object import JsonObject

FRAGMENTS = (
    *("{", "}", "[", "]", ":", ",", '"', "\\", " ", "\n", "\t", "\u00a0", "\x00", "true", "false", "null", "nul", "NaN"),
    *(
        "Infinity",
        "0",
        "1",
        "-",
        "+",
        ".",
        "e",
        "E",
        "00",
        "1.5",
        "-0",
        "1e5",
        '"a"',
        '"a":',
        '"é🙂"',
        "\\u00",
        "\\u00e9",
        "\\n",
    ),
    *("\\x", "{}", "[]", '{"a":', "'a'", "/", "{'"),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=10,
)
objects = st.builds(
    json.dumps,
    st.dictionaries(st.text(), values, max_size=4),
    ensure_ascii=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
# Objects, objects with something put in or taken out, and anything at all.
texts = (
    objects
    | st.builds(
        lambda text, fragment, begin, size: text[:begin] + fragment + text[begin + size :],
        objects,
        st.sampled_from(FRAGMENTS),
        st.integers(0, 40),
        st.integers(0, 3),
    )
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join).map("{".__add__)
)


def refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=refuse), dict)
    except ValueError:
        return False


def read(pieces: list[str]) -> tuple[JsonObject, int]:
    """The reader and how many characters it has taken."""
    reader, taken = JsonObject(), 0
    for piece in pieces:
        stopped = reader.feed(piece)
        taken += stopped
        if stopped < len(piece) or reader.failed:
            break
    return reader, taken


@given(texts, st.lists(st.integers(0, 60), max_size=8))
def test_an_object_is_what_json_loads_calls_one(text: str, places: list[int]) -> None:
    text = text.strip(" \t\r\n")
    bounds = sorted({0, len(text), *(min(place, len(text)) for place in places)})
    whole, taken = read([text])
    assert (whole.complete and taken == len(text)) == is_object(text)
    assert not (whole.complete and whole.failed)
    for pieces in ([text[begin:end] for begin, end in pairwise(bounds)], list(text)):
        reader, count = read(pieces)
        assert (reader.complete, reader.failed, count) == (whole.complete, whole.failed, taken)
        assert reader.members == whole.members


@given(texts)
def test_text_is_called_spoilt_at_the_first_character_that_no_object_can_have_there(text: str) -> None:
    """What was taken before it can still become an object; with it, nothing can."""
    reader, taken = read([text])
    if reader.failed:
        before, _ = read([text[:taken]])
        assert not before.failed
        again, _ = read([text[:taken], text[taken]])
        assert again.failed


@given(st.dictionaries(st.text(), values, max_size=4), st.sampled_from([None, 1]), st.text(max_size=3))
def test_members_are_found_where_they_stand(content: dict[str, Any], indent: int | None, behind: str) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=indent)
    reader, taken = read([text + behind])
    assert reader.complete
    assert taken == len(text)
    found = {
        json.loads(text[member.key_begin : member.key_end]): json.loads(
            text[member.key_end : member.value_end].partition(":")[2]
        )
        for member in reader.members
    }
    assert found == content
