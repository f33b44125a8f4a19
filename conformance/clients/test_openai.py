"""The official SDK: tool loops, the stream helper, `.parse()` and errors, with both of its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from conformance.clients.sdk import WEATHER, asked, assert_reported, asynchronous, in_step, turns_of

pytestmark = pytest.mark.anyio

WEATHER_IN_OSLO = asked("What is the weather in Oslo?", tools=[WEATHER])
SUM = asked("What is 12 + 30?")


class GetWeather(BaseModel):
    """Get the current weather in a city."""

    city: str


@pytest.fixture
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with in_step(base_url) as sdk:
        yield sdk


@pytest.fixture
async def async_client(base_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with asynchronous(base_url) as sdk:
        yield sdk


def test_a_tool_loop(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(**WEATHER_IN_OSLO)
    messages = [*WEATHER_IN_OSLO["messages"], *turns_of(first, ["Oslo"])]
    assert_reported(client.chat.completions.create(**{**WEATHER_IN_OSLO, "messages": messages}))


async def test_a_tool_loop_asynchronously(async_client: openai.AsyncOpenAI) -> None:
    first = await async_client.chat.completions.create(**WEATHER_IN_OSLO)
    messages = [*WEATHER_IN_OSLO["messages"], *turns_of(first, ["Oslo"])]
    assert_reported(await async_client.chat.completions.create(**{**WEATHER_IN_OSLO, "messages": messages}))


def test_a_tool_loop_of_streams_with_two_calls_at_once(scripted_url: str) -> None:
    request = asked("What is the weather in two cities, Łódź and Oslo?", tools=[WEATHER])
    with in_step(scripted_url) as client:
        with client.chat.completions.stream(**request) as stream:
            first = stream.get_final_completion()
        request["messages"] += turns_of(first, ["Łódź", "Oslo"])
        with client.chat.completions.stream(**request) as stream:
            assert_reported(stream.get_final_completion())


@pytest.mark.parametrize("request_", [WEATHER_IN_OSLO, SUM], ids=["a tool call", "a text"])
class TestTheStreamHelper:
    """What it puts together of a stream is the whole answer, and its events tell that answer as it comes."""

    def test_in_step(self, client: openai.OpenAI, request_: dict[str, Any]) -> None:
        whole = client.chat.completions.create(**request_)
        with client.chat.completions.stream(**request_, stream_options={"include_usage": True}) as stream:
            events = list(stream)
            final = stream.get_final_completion()
        self.assert_told(events, final, whole)

    async def test_asynchronously(self, async_client: openai.AsyncOpenAI, request_: dict[str, Any]) -> None:
        whole = await async_client.chat.completions.create(**request_)
        async with async_client.chat.completions.stream(**request_, stream_options={"include_usage": True}) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_completion()
        self.assert_told(events, final, whole)

    def assert_told(self, events: list[Any], final: ChatCompletion, whole: ChatCompletion) -> None:
        assert comparable(final) == comparable(whole)
        message = whole.choices[0].message
        assert "".join(event.delta for event in events if event.type == "content.delta") == (message.content or "")
        done = [(event.name, event.arguments) for event in events if event.type == "tool_calls.function.arguments.done"]
        calls = [call.function for call in message.tool_calls or () if call.type == "function"]
        assert done == [(call.name, call.arguments) for call in calls]


def comparable(answer: ChatCompletion) -> dict[str, Any]:
    """An answer without what may differ between two to one request: ids, times, what was cached, the helper's own fields.

    No content is null in a whole answer, and empty in a stream, which begins with content "".
    """
    told = answer.model_dump(warnings=False, exclude={"id", "object", "created"}, exclude_none=True)
    del told["usage"]["prompt_tokens_details"]["cached_tokens"]
    message = told["choices"][0]["message"]
    message["content"] = message.get("content") or None
    for call in message.get("tool_calls", []):
        del call["id"]
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return told


class TestASchemaForTheAnswer:
    """`.parse()` sends response_format: json_schema, which is refused by name, before any stream begins."""

    def test_in_step(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as refusal:
            client.chat.completions.parse(**SUM, response_format=GetWeather)
        self.assert_refused(refusal.value)

    async def test_asynchronously(self, async_client: openai.AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError) as refusal:
            await async_client.chat.completions.parse(**SUM, response_format=GetWeather)
        self.assert_refused(refusal.value)

    def test_streamed(self, client: openai.OpenAI) -> None:
        with (
            pytest.raises(openai.BadRequestError) as refusal,
            client.chat.completions.stream(**SUM, response_format=GetWeather),
        ):
            pass
        self.assert_refused(refusal.value)

    def assert_refused(self, refusal: openai.BadRequestError) -> None:
        assert refusal.body == {
            "message": "response_format must be of type text or json_object: json_schema is not supported",
            "type": "invalid_request_error",
            "param": refusal.param,
            "code": refusal.code,
        }
        assert (refusal.param or "").startswith("response_format")


def test_a_tool_s_arguments_are_parsed(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    answer = client.chat.completions.parse(**{**WEATHER_IN_OSLO, "tools": [tool]})
    calls = answer.choices[0].message.tool_calls or []
    assert [call.function.parsed_arguments for call in calls] == [GetWeather(city="Oslo")]


def test_a_cut_answer_is_not_parsed(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError) as cut:
        client.chat.completions.parse(**{**SUM, "max_tokens": 3})
    usage = cut.value.completion.usage
    assert usage is not None
    assert usage.completion_tokens == 3


def test_what_the_server_does_not_have_is_an_error_that_the_sdk_knows(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.create(model="maple-preview", input="Hi")
    assert missing.value.code == "unknown_url"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="maple-preview", input="Hi")


def test_each_answer_has_an_id_for_the_log(client: openai.OpenAI) -> None:
    one, other = (client.chat.completions.create(**{**SUM, "max_tokens": 1}) for _ in range(2))
    assert one._request_id
    assert one._request_id != other._request_id


def test_a_generation_that_fails_is_an_error_whole_and_in_a_stream(scripted_url: str) -> None:
    with in_step(scripted_url) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            client.chat.completions.create(**asked("Please break off."))
        assert failed.value.type == "server_error"
        said: list[str] = []
        with (
            pytest.raises(openai.APIError) as broken,
            client.chat.completions.create(**asked("Please break off."), stream=True) as stream,
        ):
            said.extend(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "".join(said) == "It begins well"
        assert broken.value.type == "server_error"
        assert broken.value.message == failed.value.body["message"]  # type: ignore[index]
