"""What a model emits reaches the client as it must, however it is cut: whole and streamed."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from conformance.reports import outputs
from conformance.reports.catalogue import defined
from conformance.reports.target import Answer, Target
from conformance.stream_rules import breaches


@pytest.mark.parametrize("form", outputs.FORMS)
@pytest.mark.parametrize("case", outputs.CASES, ids=[case["id"] for case in outputs.CASES])
def test_an_output_is_read_alike_whole_and_streamed(scripted: Target, case: dict[str, Any], form: str) -> None:
    fields = defined(case.get("request", {}))
    whole = scripted.chat(outputs.question(case, form), **fields)
    assert whole.status == 200, whole.body
    assert_message(whole, case["expected"])
    stream = scripted.chat(outputs.question(case, form), **fields, stream=True, stream_options={"include_usage": True})
    assert breaches(stream.request.body, stream.body, chat=True) == []
    assert_deltas(stream, case)
    assert stream.said == whole.said
    assert calls_of(stream) == calls_of(whole)
    assert stream.finish_reason == whole.finish_reason
    assert stream.usage == whole.usage


def assert_message(answer: Answer, expected: dict[str, Any]) -> None:
    """Texts are compared without the white space at their ends, which no case is about."""
    message = answer.json["choices"][0]["message"]
    content, reasoning = message["content"], message.get("reasoning_content")
    assert (content and content.strip()) == expected["content"]
    assert (reasoning and reasoning.strip()) == expected["reasoning"]
    assert calls_of(answer) == [(call["name"], call["arguments"]) for call in expected["tool_calls"]]
    assert answer.finish_reason == expected["finish_reason"]


def assert_deltas(stream: Answer, case: dict[str, Any]) -> None:
    """No delta shows what must never be seen, and each call is one delta with all that a call has."""
    for delta in stream.deltas:
        texts = [delta.get("content") or "", delta.get("reasoning_content") or ""]
        assert not any(text in shown for text in case.get("never", ()) for shown in texts)
        for call in delta.get("tool_calls", ()):
            assert (set(call), call["type"]) == ({"index", "id", "type", "function"}, "function")
            assert call["id"]
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    if "order" in case:
        kinds = [kind for delta in stream.deltas for kind, value in delta.items() if value and kind != "role"]
        assert [kind for kind, _ in groupby(kinds)] == case["order"]


def calls_of(answer: Answer) -> list[tuple[str, str]]:
    """Name and arguments of every call."""
    choices = [] if answer.streamed else [answer.json["choices"][0]["message"]]
    calls = [call for delta in (answer.deltas if answer.streamed else choices) for call in delta.get("tool_calls") or ()]
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
