"""A stream and a whole answer are two readings of the same events, and both are what the contract says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.errors import ModelNotFound
from maple_spec.settings import Settings, default_settings
from maple_spec.types import (
    ContentDelta,
    Finished,
    FinishReason,
    GenerationRequest,
    RawPrompt,
    ReasoningDelta,
    SamplingParams,
    Started,
    TextEvent,
    ToolCallDelta,
    Usage,
)
from maple_spec.wire import responses
from maple_spec.wire.requests import Call
from maple_spec.wire.responses import ChatWriter, CompletionWriter, Writer
from tests.contract import assert_fits

KEY = "0123456789abcdef" * 2
FINGERPRINT = "fp_0123456789ab"
GENERATION = GenerationRequest(f"req_{KEY}", RawPrompt("x"), SamplingParams())

texts = st.text(min_size=1)
deltas = st.one_of(
    st.builds(ReasoningDelta, texts), st.builds(ContentDelta, texts), st.builds(ToolCallDelta, texts, st.just('{"a": 1}'))
)
usages = st.builds(Usage, *[st.integers(0, 10**6)] * 4)
calls = st.builds(
    Call, st.just(GENERATION), texts, st.integers(0, 2**33), st.booleans(), st.booleans(), include_reasoning=st.booleans()
)


def runs(reasons: list[FinishReason]) -> st.SearchStrategy[list[TextEvent]]:
    """Any events that a generation may give."""
    ends = st.builds(Finished, st.sampled_from(reasons), usages)
    return st.builds(
        lambda start, middle, end: [start, *middle, end], st.builds(Started, st.integers(0, 99)), st.lists(deltas), ends
    )


def stream(writer: Writer, events: list[TextEvent]) -> list[dict[str, Any]]:
    return writer.opening() + [chunk for event in events for chunk in writer.chunks(event)]


def split_usage(call: Call, chunks: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Any]:
    """The chunks with a choice, and the usage, which must come last and only where it was asked for."""
    if not call.include_usage:
        assert all("usage" not in chunk for chunk in chunks)
        return chunks, None
    *others, last = chunks
    assert last["choices"] == []
    assert all(chunk["usage"] is None for chunk in others)
    return others, last["usage"]


@given(calls, runs(list(FinishReason)))
def test_the_deltas_of_a_chat_stream_add_up_to_the_whole_message(call: Call, events: list[TextEvent]) -> None:
    chunks, usage = split_usage(call, stream(ChatWriter(call, FINGERPRINT), events))
    whole = ChatWriter(call, FINGERPRINT).whole(events)
    message = whole["choices"][0]["message"]
    pieces = [chunk["choices"][0]["delta"] for chunk in chunks]
    tool_calls = [piece for delta in pieces for piece in delta.get("tool_calls", [])]
    assert "".join(delta.get("content", "") for delta in pieces) == (message["content"] or "")
    assert "".join(delta.get("reasoning_content", "") for delta in pieces) == message.get("reasoning_content", "")
    assert [{name: value for name, value in piece.items() if name != "index"} for piece in tool_calls] == message.get(
        "tool_calls", []
    )
    assert [piece["index"] for piece in tool_calls] == list(range(len(tool_calls)))
    assert len({piece["id"] for piece in tool_calls}) == len(tool_calls)
    assert usage in (None, whole["usage"])
    assert {chunk["id"] for chunk in chunks} == {whole["id"]}
    assert {chunk["model"] for chunk in chunks} == {call.model}


@given(calls, runs(list(FinishReason)))
def test_a_chat_stream_keeps_the_order_of_its_events(call: Call, events: list[TextEvent]) -> None:
    chunks, _ = split_usage(call, stream(ChatWriter(call, FINGERPRINT), events))
    first, *rest = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in choice["delta"] for choice in rest)
    assert [choice["finish_reason"] for choice in (first, *rest[:-1])] == [None] * len(rest)
    assert (rest[-1]["delta"], rest[-1]["finish_reason"]) == ({}, events[-1].finish_reason)  # type: ignore[union-attr]


@given(calls, runs(list(FinishReason)))
def test_every_chat_answer_and_every_chunk_fits_the_contract(call: Call, events: list[TextEvent]) -> None:
    assert_fits(ChatWriter(call, FINGERPRINT).whole(events), "ChatCompletion")
    for chunk in stream(ChatWriter(call, FINGERPRINT), events):
        assert_fits(chunk, "ChatCompletionChunk")


@given(calls, runs([FinishReason.STOP, FinishReason.LENGTH]))
def test_a_completion_s_stream_adds_up_and_fits_the_contract(call: Call, events: list[TextEvent]) -> None:
    events = [event for event in events if not isinstance(event, ReasoningDelta | ToolCallDelta)]
    whole = CompletionWriter(call, FINGERPRINT).whole(events)
    written = stream(CompletionWriter(call, FINGERPRINT), events)
    chunks, usage = split_usage(call, written)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][:-1] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert usage in (None, whole["usage"])
    assert_fits(whole, "Completion")
    for chunk in written:
        assert_fits(chunk, "CompletionChunk")


def answer(*deltas: Any, include_reasoning: bool = True) -> dict[str, Any]:
    call = Call(GENERATION, "maple-preview", 1789460000, False, False, include_reasoning)
    events = [Started(22), *deltas, Finished(FinishReason.STOP, Usage(22, 33, 27))]
    return ChatWriter(call, FINGERPRINT).whole(events)


def test_the_answer_is_the_reference_s_sample() -> None:
    thought = "We need to answer briefly: 17*23 = 391. So final answer: 391."
    assert answer(ReasoningDelta(thought), ContentDelta("391")) == {
        "id": f"chatcmpl-{KEY}",
        "object": "chat.completion",
        "created": 1789460000,
        "model": "maple-preview",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "391", "reasoning_content": thought, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 22,
            "completion_tokens": 33,
            "total_tokens": 55,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 27},
        },
        "system_fingerprint": FINGERPRINT,
    }


def test_content_is_null_only_where_the_whole_answer_was_tool_calls() -> None:
    call = ToolCallDelta("f", "{}")
    assert answer(call)["choices"][0]["message"]["content"] is None
    assert answer(ContentDelta("x"), call)["choices"][0]["message"]["content"] == "x"
    assert answer(ReasoningDelta("x"))["choices"][0]["message"]["content"] == ""


def test_reasoning_is_left_out_where_there_is_none_and_where_it_is_not_wanted() -> None:
    assert "reasoning_content" not in answer(ContentDelta("x"))["choices"][0]["message"]
    hidden = answer(ReasoningDelta("x"), ContentDelta("y"), include_reasoning=False)
    assert "reasoning_content" not in hidden["choices"][0]["message"]
    assert hidden["usage"]["completion_tokens_details"]["reasoning_tokens"] == 27


def test_the_one_model_is_listed_and_found_by_its_id_alone() -> None:
    settings = Settings(model_id="deepgrove/maple")
    listed = responses.model_list(settings)
    assert_fits(listed, "ModelList")
    assert responses.model("deepgrove/maple", settings) == listed["data"][0]
    with pytest.raises(ModelNotFound):
        responses.model("maple-preview", settings)
    assert responses.model_list(default_settings())["data"][0]["id"] == "maple-preview"
