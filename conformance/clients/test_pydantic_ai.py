"""Pydantic AI runs its agents on the server: a tool loop, whole and streamed, and a result of a declared type."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from conformance.clients.conftest import KEY

QUESTION = "What is the weather in Oslo?"

pytestmark = pytest.mark.anyio


class City(BaseModel):
    """A city, and how warm it is."""

    name: str
    degrees: int


@pytest.fixture(params=["base_url", "scripted_url"])
def url(request: pytest.FixtureRequest) -> str:
    """The model under test, then the script."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
async def model(url: str) -> AsyncIterator[OpenAIChatModel]:
    """The server's model; greedy."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as sdk:
        settings = ModelSettings(temperature=0, max_tokens=300)
        yield OpenAIChatModel("maple-preview", provider=OpenAIProvider(openai_client=sdk), settings=settings)


def weather_agent(model: OpenAIChatModel, asked: list[str]) -> Agent:
    """An agent with one tool, which writes down what it is asked."""
    agent = Agent(model)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the current weather for a city."""
        asked.append(city)
        return "18 C"

    return agent


async def test_an_agent_calls_its_tool_and_answers_from_the_result(model: OpenAIChatModel) -> None:
    asked: list[str] = []
    result = await weather_agent(model, asked).run(QUESTION)
    assert asked == ["Oslo"]
    assert "18" in result.output
    parts = [part for message in result.all_messages() for part in message.parts]
    assert sum(isinstance(part, ToolCallPart) for part in parts) == 1
    assert sum(isinstance(part, ToolReturnPart) for part in parts) == 1
    assert any(isinstance(part, ThinkingPart) and part.content for part in parts)
    responses = [message for message in result.all_messages() if isinstance(message, ModelResponse)]
    assert [message.finish_reason for message in responses] == ["tool_call", "stop"]
    assert result.usage.requests == 2
    assert result.usage.output_tokens > 0


async def test_a_streamed_agent_says_the_same(model: OpenAIChatModel) -> None:
    whole: list[str] = []
    expected = await weather_agent(model, whole).run(QUESTION)
    asked: list[str] = []
    async with weather_agent(model, asked).run_stream(QUESTION) as result:
        output = await result.get_output()
    assert asked == whole
    assert output == expected.output


@pytest.mark.parametrize("url", ["scripted_url"], indirect=True)
async def test_an_agent_s_result_has_the_declared_type(model: OpenAIChatModel) -> None:
    result = await Agent(model, output_type=City).run("Give your final_result.")
    assert result.output == City(name="Oslo", degrees=5)
