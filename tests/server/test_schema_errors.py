"""Faults of a body, named as OpenAI names them. What each route refuses is in test_launchers.py; here are the laws."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.errors import InvalidRequest
from maple_spec.server.schema_errors import check
from tests.contract import body_schema

CHAT = body_schema("/v1/chat/completions")
RAW = body_schema("/v1/completions")
USER = {"role": "user", "content": "Hi"}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def refusal(body: Any, schema: Any = CHAT) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        check(body, schema)
    return raised.value


@given(st.dictionaries(st.sampled_from(["messages", "n", "stop", "tools", "tool_choice", "seed", "prompt", "top_p"]), anything))
def test_whatever_the_body_it_passes_or_is_refused(body: dict[str, Any]) -> None:
    for schema in (CHAT, RAW):
        with suppress(InvalidRequest):
            check(body, schema)


@given(st.dictionaries(st.text(), anything))
def test_fields_that_the_contract_does_not_name_are_no_fault(fields: dict[str, Any]) -> None:
    named = {name for part in CHAT["allOf"] for name in part["properties"]}
    check({**{name: value for name, value in fields.items() if name not in named}, "messages": [USER]}, CHAT)


def test_a_refusal_that_the_contract_words_itself_comes_first() -> None:
    refused = refusal({"messages": [{"role": "nobody"}], "temperature": "hot", "n": 2})
    assert (refused.param, refused.message, refused.code) == ("n", "n must be 1", None)


def test_the_first_bad_item_of_a_list_is_named() -> None:
    assert refusal({"messages": [USER, {"role": "user"}, {"role": "x"}]}).param == "messages[1].content"
    parts = [{"type": "text", "text": "a"}, {"type": "text"}, {"type": "image_url"}]
    assert refusal({"messages": [{"role": "user", "content": parts}]}).param == "messages[0].content[1].text"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"temperature": 3}, "temperature must be at most 2"),
        ({"repetition_penalty": 0}, "repetition_penalty must be greater than 0"),
        ({"stop": 5}, "stop must be a string or an array"),
        ({"stop": ["a", None]}, "stop[1] must be a string"),
        ({"messages": []}, "messages must not be empty"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name must not be empty"),
        ({"tool_choice": "maybe"}, 'tool_choice must be one of "none", "auto", "required"'),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage must be true or false"),
    ],
)
def test_the_message_says_what_the_field_must_be(fields: dict[str, Any], message: str) -> None:
    assert refusal({"messages": [USER], **fields}).message == message


def test_a_long_list_of_token_ids_is_checked_quickly() -> None:
    ids = list(range(1_000_000))
    began = time.process_time()
    check({"prompt": ids}, RAW)
    refused = refusal({"prompt": [*ids, -1]}, RAW)
    assert time.process_time() - began < 5
    assert refused.param == "prompt"
