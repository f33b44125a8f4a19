"""openapi.yaml: valid, resolvable, complete, and of one mind with the code."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
from openapi_spec_validator import validate

from maple_spec import errors
from maple_spec.server.schema_errors import check
from tests.contract import assert_fits, body_schema, contract, schema

OPERATIONS = {
    "POST /v1/chat/completions": "handlers.chat.create_chat_completion",
    "POST /v1/completions": "handlers.completions.create_completion",
    "GET /v1/models": "handlers.models.list_models",
    "GET /v1/models/{model_id}": "handlers.models.retrieve_model",
    "GET /health": "handlers.health.get_health",
}


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
