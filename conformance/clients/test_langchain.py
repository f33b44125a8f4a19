"""LangChain's own standard tests of a chat model, all of them, with ChatOpenAI: on the model under test and on a script.

What the server refuses is expected to fail with its refusal. Where a test asks for more than a very small model can do, ABILITY
lists it, and the script proves the server. In both tables an entry that begins to pass is an error.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from pydantic import BaseModel, SecretStr

from conformance.clients.conftest import KEY

TEXT_ONLY = "the model reads text only"
REFUSED = {
    "test_image_inputs": TEXT_ONLY,
    "test_image_tool_message": TEXT_ONLY,
    "test_pdf_inputs": TEXT_ONLY,
    "test_pdf_tool_message": TEXT_ONLY,
    "test_audio_inputs": TEXT_ONLY,
}

# What maple-tiny cannot do, with the prompt; the script passes every one. An error of the server is no excuse here.
JOKE = "Tell me a joke about cats, as a call of the tool Joke."
ABILITY = {
    "test_bind_runnables_as_tools": "Using the tool, generate a Pirate greeting.",
    "test_tool_choice": "Hello! (with two tools, one of which must be called)",
    "test_tool_calling_with_no_arguments": "What is the value of magic_function_no_args()? Use the tool.",
    "test_unicode_tool_call_integration": "Create a customer named '你好啊集团' (Hello Group) - a Chinese technology company",
    "test_structured_output": JOKE,
    "test_structured_output_async": JOKE,
    "test_structured_output_pydantic_2_v1": JOKE,
    "test_structured_output_optional_param": JOKE,
    "test_json_mode": "Tell me a joke about cats. Return nothing other than JSON.",
}
FAILURES_OF_THE_MODEL = (AssertionError, TypeError, ValueError, LookupError)

CERTIFICATES = httpx.create_ssl_context()  # read once: that takes longer than most of the tests
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.mark.filterwarnings("ignore:OpenAI may require a filename:UserWarning")  # the test sends none
class StandardTests(ChatModelIntegrationTests):
    """What both runs have in common."""

    url: str
    pictures: bool
    http: httpx.Client
    async_http: httpx.AsyncClient

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": "maple-preview",
            "base_url": f"{self.url}/v1",
            "api_key": KEY,
            "temperature": 0,
            "max_tokens": 300,
            "max_retries": 0,
            "stream_usage": True,
            "http_client": self.http,
            "http_async_client": self.async_http,
        }

    @property
    def structured_output_kwargs(self) -> dict[str, Any]:
        return {"method": "function_calling"}  # by default it sends json_schema, which is refused: see below

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_anthropic_inputs(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "another-model"

    @property
    def supports_image_inputs(self) -> bool:
        return self.pictures

    @property
    def supports_image_urls(self) -> bool:
        return True

    @property
    def supports_image_tool_message(self) -> bool:
        return True

    @property
    def supports_pdf_inputs(self) -> bool:
        return True

    @property
    def supports_pdf_tool_message(self) -> bool:
        return True

    @property
    def supports_audio_inputs(self) -> bool:
        return True

    @property
    def enable_vcr_tests(self) -> bool:
        return True

    @pytest.fixture
    def vcr(self) -> SimpleNamespace:
        """A cassette without a recording: the answer comes from the server."""
        return SimpleNamespace(responses=[])

    @pytest.fixture
    def benchmark(self) -> None:
        """Only recordings are timed."""

    @pytest.fixture(autouse=True)
    async def connections(self, anyio_backend: str) -> AsyncIterator[None]:
        """Those that LangChain keeps by itself are never closed, and belong to the first event loop that used them."""
        with httpx.Client(verify=CERTIFICATES) as self.http:
            async with httpx.AsyncClient(verify=CERTIFICATES) as self.async_http:
                yield

    @pytest.fixture(autouse=True)
    def no_downloads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pictures, recordings and documents that the tests send are elsewhere on the net: one pixel stands for each."""
        answer = httpx.Response(200, content=PIXEL)
        monkeypatch.setenv("LANGCHAIN_TESTS_USER_AGENT", "nobody")  # it warns without
        monkeypatch.setattr(httpx, "get", lambda *_args, **_options: answer)

    @pytest.fixture(autouse=True)
    def expect(self, request: pytest.FixtureRequest) -> None:
        """Mark what is refused; where a picture is only a part of a test, the rest is held."""
        self.pictures = request.node.originalname != "test_anthropic_inputs"
        if reason := REFUSED.get(request.node.originalname):
            request.applymarker(pytest.mark.xfail(reason=reason, raises=openai.BadRequestError, strict=True))


@pytest.mark.anyio
class TestModel(StandardTests):
    """The model under test."""

    @pytest.fixture(autouse=True)
    def served(self, base_url: str, request: pytest.FixtureRequest) -> None:
        """Where it is, and what it cannot do; of another server's model nobody knows."""
        self.url = base_url
        if prompt := ABILITY.get(request.node.originalname):
            reason, ours = f"the model's ability: {prompt}", "CONFORMANCE_URL" not in os.environ
            request.applymarker(pytest.mark.xfail(reason=reason, raises=FAILURES_OF_THE_MODEL, strict=ours))


@pytest.mark.anyio
class TestScript(StandardTests):
    """The script."""

    @pytest.fixture(autouse=True)
    def served(self, scripted_url: str) -> None:
        """Where it is."""
        self.url = scripted_url


def test_each_entry_of_the_tables_is_a_standard_test() -> None:
    assert {*REFUSED, *ABILITY} <= set(dir(ChatModelIntegrationTests))
    assert not REFUSED.keys() & ABILITY.keys()


class Joke(BaseModel):
    """A joke."""

    setup: str


def test_structured_output_by_its_default_method_is_refused(base_url: str) -> None:
    chat = ChatOpenAI(model="maple-preview", base_url=f"{base_url}/v1", api_key=SecretStr(KEY), max_retries=0)
    with pytest.raises(openai.BadRequestError, match="json_schema"):
        chat.with_structured_output(Joke).invoke("Tell me a joke about cats.")
