"""Clients that generators make of openapi.yaml, without a warning: one in Python and the types of one in TypeScript.

Both are written outside the tree, and both talk to the server under test.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from conformance.schemathesis_run import spec_path

PACKAGE = "generated_maple_client"
NPM_PACKAGES = ("openapi-typescript@7.13.0", "typescript@5.9.3")  # the newest that openapi-typescript works with
KEY = os.environ.get("CONFORMANCE_KEY", "unused")


class PythonClient:
    """The generated package, and a client of it for the server under test."""

    def __init__(self, base_url: str) -> None:
        self.models: Any = importlib.import_module(f"{PACKAGE}.models")
        client: Any = importlib.import_module(f"{PACKAGE}.client")
        self.client = client.AuthenticatedClient(
            base_url=base_url, token=KEY, timeout=httpx.Timeout(60), raise_on_unexpected_status=True
        )

    def operation(self, name: str) -> Any:
        """The module of an operation: chat.create_chat_completion."""
        tag = "generation" if "completion" in name else "meta"
        return importlib.import_module(f"{PACKAGE}.api.{tag}.handlers_{name.replace('.', '_')}")

    def chat(self, **fields: Any) -> Any:
        """A request with one short user message."""
        said = self.models.UserMessage(role=self.models.UserMessageRole.USER, content="What is 12 + 30?")
        return self.models.ChatCompletionRequest(messages=[said], max_tokens=16, temperature=0, **fields)


@pytest.fixture(scope="module")
def python_client(base_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PythonClient]:
    folder = tmp_path_factory.mktemp("python")
    config = folder / "config.yaml"
    config.write_text("post_hooks: []\n", encoding="utf-8")  # by default it calls a formatter, and warns where there is none
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(spec_path()), "--config", str(config)]
    command += ["--output-path", str(folder / PACKAGE), "--meta", "none", "--fail-on-warning"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = "".join((done.stdout + done.stderr).split())  # its lines are as wide as the terminal
    assert (done.returncode, said) == (0, f"Generating{folder / PACKAGE}"), done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        made = PythonClient(base_url)
        with made.client:
            yield made
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


def test_the_python_client_reads_a_whole_answer(python_client: PythonClient) -> None:
    models = python_client.models
    response = python_client.operation("chat.create_chat_completion").sync_detailed(
        client=python_client.client, body=python_client.chat()
    )
    answer = response.parsed
    assert isinstance(answer, models.ChatCompletion)
    assert answer.to_dict() == json.loads(response.content)  # nothing is lost and nothing is made up
    (choice,) = answer.choices
    assert isinstance(choice.finish_reason, models.ChatCompletionChoiceFinishReason)
    assert choice.message.role is models.ChatCompletionMessageRole.ASSISTANT
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_python_client_s_types_read_every_event_of_a_stream(python_client: PythonClient) -> None:
    models = python_client.models
    body = {**python_client.chat(stream=True).to_dict(), "stream_options": {"include_usage": True}}
    with python_client.client.get_httpx_client().stream("POST", "/v1/chat/completions", json=body) as response:
        events = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert events.pop() == "[DONE]"
    chunks = [models.ChatCompletionChunk.from_dict(json.loads(event)) for event in events]
    assert [chunk.to_dict() for chunk in chunks] == [json.loads(event) for event in events]
    assert chunks[0].choices[0].delta.role is models.ChatCompletionDeltaRole.ASSISTANT
    assert chunks[-1].usage.completion_tokens <= 16


def test_the_python_client_reads_models_and_health_also_asynchronously(python_client: PythonClient) -> None:
    listed = python_client.operation("models.list_models").sync(client=python_client.client)
    (model,) = listed.data
    retrieve = python_client.operation("models.retrieve_model")
    assert retrieve.sync(client=python_client.client, model_id=model.id) == model

    async def ask() -> Any:
        async with python_client.client:
            return await python_client.operation("health.get_health").asyncio(client=python_client.client)

    health = asyncio.run(ask())
    assert health.status is python_client.models.HealthStatus.OK
    assert health.model == model.id


@pytest.mark.parametrize("prompt", ["Once upon a time", ["Once"], [72, 105], [[72, 105]]], ids=str)
def test_the_python_client_has_a_raw_prompt_continued(python_client: PythonClient, prompt: Any) -> None:
    body = python_client.models.CompletionRequest(prompt=prompt, max_tokens=4, temperature=0)
    answer = python_client.operation("completions.create_completion").sync(client=python_client.client, body=body)
    assert isinstance(answer, python_client.models.Completion)
    assert isinstance(answer.choices[0].text, str)


def test_the_python_client_reads_a_refusal(python_client: PythonClient) -> None:
    response = python_client.operation("chat.create_chat_completion").sync_detailed(
        client=python_client.client, body=python_client.chat(n=2)
    )
    assert response.status_code == 400
    assert isinstance(response.parsed, python_client.models.ErrorResponse)
    error = response.parsed.error
    assert (error.message, error.param, error.code) == ("n must be 1", "n", None)
    assert error.type_ is python_client.models.ErrorResponseErrorType.INVALID_REQUEST_ERROR


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiler and with api.ts, the types of the document."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm on this machine, and so nothing that could build TypeScript")
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "package.json").write_text("{}", encoding="utf-8")
    succeed([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *NPM_PACKAGES], folder)
    said = succeed([*binary("openapi-typescript"), str(spec_path()), "--output", "api.ts"], folder)
    assert [line[0] for line in said.splitlines() if line.strip()] == ["✨", "🚀"], said  # its name, and what it wrote
    shutil.copy(Path(__file__).parent / "usage.ts", folder)
    return folder


def test_the_typescript_types_compile_and_a_client_over_them_works(typescript: Path, base_url: str) -> None:
    options = ["--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess"]
    options += ["--target", "es2022", "--lib", "es2022,dom", "--module", "commonjs", "--moduleResolution", "node10"]
    assert succeed([*binary("tsc"), *options, "usage.ts"], typescript) == ""
    assert succeed(["node", "usage.js", base_url, KEY], typescript) == ""


def binary(name: str) -> list[str]:
    """The command of an installed package."""
    return [str(Path("node_modules") / ".bin" / name)]


def succeed(command: list[str], folder: Path) -> str:
    """Run it there; what it said."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
