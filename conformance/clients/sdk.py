"""What the tests of the official SDK share: its two clients without retries, and one everyday tool."""

from __future__ import annotations

import json
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionToolParam

from conformance.clients.conftest import KEY

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def in_step(url: str) -> openai.OpenAI:
    """The client that waits."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)


def asynchronous(url: str) -> openai.AsyncOpenAI:
    """The one for an event loop."""
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)


def asked(content: str, **fields: Any) -> dict[str, Any]:
    """The fields of a request with one user message."""
    question = [{"role": "user", "content": content}]
    return {"model": "maple-preview", "temperature": 0, "max_tokens": 600, "messages": question, **fields}


def turns_of(answer: ChatCompletion, cities: list[str]) -> list[Any]:
    """What an answer that calls the tool for these cities adds to the conversation: itself, and what the tool says."""
    (choice,) = answer.choices
    calls = [call for call in choice.message.tool_calls or () if call.type == "function"]
    called = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    assert called == [("get_weather", {"city": city}) for city in cities]
    assert len({call.id for call in calls}) == len(calls)
    return [choice.message, *({"role": "tool", "tool_call_id": call.id, "content": "18 C"} for call in calls)]


def assert_reported(answer: ChatCompletion) -> None:
    """The model says what the tool said, and calls no more."""
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert "18 C" in (choice.message.content or "")
