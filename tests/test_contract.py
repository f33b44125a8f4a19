"""openapi.yaml: valid, resolvable, complete, and of one mind with the code."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import validate

from maple_spec import __version__, errors
from maple_spec.server.contract import spec_path
from maple_spec.server.schema_errors import check
from maple_spec.settings import Settings, shown_default, variable
from tests.contract import assert_fits, body_schema, contract, schema

OPERATIONS = {
    "POST /v1/chat/completions": "handlers.chat.create_chat_completion",
    "POST /v1/completions": "handlers.completions.create_completion",
    "GET /v1/models": "handlers.models.list_models",
    "GET /v1/models/{model_id}": "handlers.models.retrieve_model",
    "GET /health": "handlers.health.get_health",
}
GENERATION = ("POST /v1/chat/completions", "POST /v1/completions")


def operations() -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in contract()["paths"].items()
        for method, operation in methods.items()
    }


def error_classes(base: type[errors.ApiError] = errors.ApiError) -> list[type[errors.ApiError]]:
    return [base, *(below for child in base.__subclasses__() for below in error_classes(child))]


def test_the_document_is_openapi_3_0_3() -> None:
    raw = contract().raw
    assert raw["openapi"] == "3.0.3"
    assert raw["info"]["version"] == __version__
    validate(raw)


def test_it_holds_the_five_operations_of_the_reference_and_no_other() -> None:
    assert {name: operation["operationId"] for name, operation in operations().items()} == OPERATIONS


@pytest.mark.parametrize("operation_id", OPERATIONS.values())
def test_every_operation_is_a_short_function_of_handlers(operation_id: str) -> None:
    module, _, name = operation_id.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    assert inspect.iscoroutinefunction(function)
    assert function.__doc__
    assert len(inspect.getsourcelines(function)[0]) <= 15


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_names_its_request_and_every_error_has_the_one_shape(name: str) -> None:
    for status, response in operations()[name]["responses"].items():
        assert "x-request-id" in response["headers"]
        if status != "200":
            assert response["content"] == {
                "application/json": {**response["content"]["application/json"], "schema": schema("ErrorResponse")}
            }


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_status_that_an_operation_can_answer_is_described(name: str) -> None:
    statuses = set(operations()[name]["responses"])
    assert {"200", "405", "500"} <= statuses
    if name != "GET /health":
        assert {"401", "503"} <= statuses
    if name.startswith("POST"):
        assert {"400", "404", "413"} <= statuses


def test_every_error_that_the_code_can_raise_is_in_the_contract() -> None:
    described = schema("ErrorResponse")["properties"]["error"]["properties"]
    for error in error_classes():
        assert error.type in described["type"]["enum"]
        assert error.default_code in described["code"]["enum"]
        assert_fits(error("a sentence").body(), "ErrorResponse")


def test_every_code_is_described_where_its_status_is() -> None:
    described = {
        status: response["description"]
        for operation in operations().values()
        for status, response in operation["responses"].items()
        if status != "200"
    }
    for error in error_classes():
        if error.default_code is not None:
            assert f"`{error.default_code}`" in described[str(error.status)]


def test_examples_are_what_they_are_examples_of() -> None:
    for name, operation in operations().items():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert content["examples"]
            for example in content["examples"].values():
                check(example["value"], body_schema(name.split()[1]))
        for response in operation["responses"].values():
            for media in response["content"].values():
                shown = [example["value"] for example in media.get("examples", {}).values()]
                for value in [*shown, *([media["example"]] if "example" in media else [])]:
                    assert_fits(value, schema_name(media["schema"]))


def test_examples_of_events_hold_what_events_hold() -> None:
    for name in GENERATION:
        media = operations()[name]["responses"]["200"]["content"]["text/event-stream"]
        done, spelled = media["schema"]["properties"]["data"]["anyOf"]
        examples = [example["value"]["data"] for example in media["examples"].values()]
        assert examples[-1:] == done["enum"]
        for text in examples[:-1]:
            value = json.loads(text)
            kinds = [schema_name(kind) for kind in spelled["x-contentSchema"]["anyOf"]]
            assert_fits(value, kinds["error" in value])


def test_every_object_of_an_answer_is_closed() -> None:
    for operation in operations().values():
        for response in operation["responses"].values():
            for media_type, media in response["content"].items():
                spelled = media["schema"]["properties"]["data"]["anyOf"][1] if media_type == "text/event-stream" else media
                for found in objects(spelled.get("x-contentSchema") or spelled["schema"]):
                    assert found["additionalProperties"] is False, found


def test_every_field_of_a_request_is_described() -> None:
    for name in GENERATION:
        for part in body_schema(name.split()[1])["allOf"]:
            for field, described in part["properties"].items():
                assert described.get("description"), field


def test_the_defaults_that_descriptions_name_are_those_of_the_settings() -> None:
    named = dict(re.findall(r"(MAPLE_[A-Z_]+) \(([\w.]+)\)", spec_path().read_text(encoding="utf-8")))
    assert named == {
        variable(name): shown_default(Settings.model_fields[name])
        for name in (
            "temperature", "top_p", "top_k", "max_new_tokens", "max_new_tokens_limit", "enable_thinking", "include_reasoning",
        )
    }  # fmt: skip


def objects(schema: Any) -> Iterator[Any]:
    """Every schema within this one, itself included, that names properties; no property is called properties."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for inner in schema.values():
            yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner)


def schema_name(found: Any) -> str:
    """The name of a schema whose reference was resolved."""
    return next(name for name, candidate in contract()["components"]["schemas"].items() if candidate == found)


def test_refusals_are_worded_where_the_field_is_described() -> None:
    worded = {
        name: field["x-message"]
        for path in ("/v1/chat/completions", "/v1/completions")
        for part in body_schema(path)["allOf"]
        for name, field in part["properties"].items()
        if "x-message" in field
    }
    assert worded["n"] == "n must be 1"
    assert {"n", "logprobs", "top_logprobs", "response_format", "prompt", "echo", "suffix", "best_of"} == set(worded)


def test_a_body_may_hold_nulls_wherever_sdks_send_them() -> None:
    for path, required in (("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")):
        fields = {name for part in body_schema(path)["allOf"] for name in part["properties"]}
        value = [{"role": "user", "content": "Hi"}] if required == "messages" else "Hi"
        check({**dict.fromkeys(fields), required: value}, body_schema(path))
