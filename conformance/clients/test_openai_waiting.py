"""The official SDK and time: whoever leaves or tires frees the one slot, and who is told to come back later does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import openai
import pytest

from conformance.clients.sdk import asked, asynchronous, in_step

pytestmark = pytest.mark.anyio

SLOW, SILENT, QUICK = asked("Speak without end."), asked("Please fall silent."), asked("Hi")
SOON = 3.0  # seconds; the slow answer takes more than ten


@pytest.fixture
def client(impatient_url: str) -> Iterator[openai.OpenAI]:
    with in_step(impatient_url) as sdk:
        yield sdk


@pytest.fixture
async def async_client(impatient_url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with asynchronous(impatient_url) as sdk:
        yield sdk


@pytest.fixture(autouse=True)
def slot_free_soon_after(impatient_url: str) -> Iterator[None]:
    """However a test leaves its request, the slot is free soon after, and the next request gets it."""
    yield
    wait_until(lambda: active(impatient_url) == 0)
    with in_step(impatient_url) as client:
        assert client.chat.completions.create(**QUICK).choices[0].finish_reason == "stop"


def wait_until(seen: Callable[[], bool]) -> None:
    """Come back as soon as it is so, which must be soon."""
    end = time.monotonic() + SOON
    while not seen():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


def active(url: str) -> int:
    """How many answers are being generated."""
    told: int = httpx.get(f"{url}/health").json()["active"]
    return told


def test_a_stream_that_is_closed(client: openai.OpenAI, impatient_url: str) -> None:
    with client.chat.completions.create(**SLOW, stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.role == "assistant"
        assert active(impatient_url) == 1


async def test_a_stream_that_is_closed_asynchronously(async_client: openai.AsyncOpenAI) -> None:
    async with await async_client.chat.completions.create(**SLOW, stream=True) as stream:
        assert (await anext(aiter(stream))).choices[0].delta.role == "assistant"


async def test_a_task_that_is_cancelled(async_client: openai.AsyncOpenAI, impatient_url: str) -> None:
    task = asyncio.create_task(async_client.chat.completions.create(**SLOW))
    await asyncio.to_thread(wait_until, lambda: active(impatient_url) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_timeout(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).chat.completions.create(**SLOW)


async def test_a_timeout_asynchronously(async_client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        await async_client.with_options(timeout=0.5).chat.completions.create(**SLOW)


def test_a_stream_may_outlast_the_timeout_as_long_as_it_speaks(client: openai.OpenAI) -> None:
    begun = time.monotonic()
    with client.with_options(timeout=2).chat.completions.create(**{**SLOW, "max_tokens": 60}, stream=True) as stream:
        assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    assert time.monotonic() - begun > 2


def test_a_stream_that_falls_silent_times_out(client: openai.OpenAI) -> None:
    with (
        client.with_options(timeout=0.5).chat.completions.create(**SILENT, stream=True) as stream,
        pytest.raises(openai.APITimeoutError),
    ):
        list(stream)


def test_a_full_queue_says_when_to_come_back_and_the_client_does(client: openai.OpenAI) -> None:
    with client.chat.completions.create(**SLOW, stream=True) as holding:
        with pytest.raises(openai.InternalServerError) as full:
            client.chat.completions.create(**QUICK)
        assert (full.value.status_code, full.value.code) == (503, "engine_overloaded")
        assert full.value.response.headers["retry-after"] == "5"

        leaving = threading.Timer(1, holding.close)
        leaving.start()
        begun = time.monotonic()
        answer = client.with_options(max_retries=1).chat.completions.create(**QUICK)
        waited = time.monotonic() - begun  # half a second, had the client been told nothing
        leaving.join()
    assert answer.choices[0].finish_reason == "stop"
    assert 4.9 < waited < 15
