"""What Schemathesis is told beyond openapi.yaml: checks of its own, how streams are asked for, and what no schema can tell.

Loaded by the command line through `hooks = "conformance.schemathesis_hooks"`; importing it registers everything.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response
from schemathesis.core.failures import Failure

from conformance.stream_rules import breaches, faults_of_usage

CHAT = "/v1/chat/completions"

# What the document says of each status in words.
CODES: dict[int, set[str | None]] = {
    400: {
        "missing_required_parameter",
        "invalid_type",
        "invalid_value",
        "invalid_json",
        "context_length_exceeded",
        None,
    },
    401: {"invalid_api_key"},
    404: {"model_not_found"},
    405: {"method_not_allowed"},
    413: {"request_too_large"},
    500: {None},
    503: {"model_loading", "model_load_failed", "engine_overloaded", "shutting_down"},
}


@schemathesis.hook
def before_load_schema(context: HookContext, raw_schema: Any) -> None:
    """Spell contentSchema as Schemathesis reads it; OpenAPI 3.0 has no such keyword, so the document writes x-contentSchema."""
    if isinstance(raw_schema, dict):
        for name in ("contentMediaType", "contentSchema"):
            if f"x-{name}" in raw_schema:
                raw_schema[name] = raw_schema.pop(f"x-{name}")
    for inner in raw_schema.values() if isinstance(raw_schema, dict) else raw_schema:
        if isinstance(inner, dict | list):
            before_load_schema(context, inner)


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, Any]) -> None:
    """Ask for a stream in half of the bodies that ask for none, and for its usage in half of those.

    By itself hardly a body does: of a thousand, two. Whether a body fits the schema does not change with it.
    """
    body = case.body
    if case.method != "POST" or not isinstance(body, dict) or not (body.get("stream") is None or body["stream"] is False):
        return
    chance = zlib.crc32(json.dumps(body, sort_keys=True, default=str).encode())
    if chance % 2:
        case.body = {**body, "stream": True}
        if chance % 4 == 1 and body.get("stream_options") is None:
            case.body["stream_options"] = {"include_usage": True}


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case, response: Response) -> bool:
    """Whether a failure is one: a valid request may be refused for what no schema can tell, and for nothing else.

    Those are a tool_choice that names a tool not among tools, a token id outside the model's vocabulary, and a prompt longer
    than the model's context.
    """
    if "positive_data_acceptance" not in failure.checks or response.status_code != 400:
        return True
    error = response.json()["error"]
    if error["param"] == "tool_choice":
        return not names_an_absent_tool(case.body)
    if error["code"] == "context_length_exceeded":
        return False
    return not (error["param"] == "prompt" and isinstance(case.body["prompt"], list) and "vocabulary" in error["message"])


def names_an_absent_tool(body: Any) -> bool:
    """Whether tool_choice names a function that tools does not hold."""
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return False
    return choice["function"]["name"] not in [tool["function"]["name"] for tool in body.get("tools") or ()]


@schemathesis.check
def order_of_a_stream(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """A stream keeps the rules of stream_rules, whole; True where there is none."""
    if not content_type(response).startswith("text/event-stream"):
        return True
    faults = breaches(case.body, response.content, chat=case.path == CHAT)
    assert not faults, "\n".join(faults)
    return None


@schemathesis.check
def sense_of_an_answer(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """A whole answer's fields agree with each other and with the request; True where there is none."""
    if case.method != "POST" or response.status_code != 200 or content_type(response) != "application/json":
        return True
    answer = response.json()
    faults = [*faults_of_usage(answer["usage"], case.body, chat=case.path == CHAT)]
    if case.body.get("model") not in (None, "", answer["model"]):
        faults.append("the model that was asked for is not echoed")
    if case.body.get("stream"):
        faults.append("a stream was asked for")
    if case.path == CHAT:
        faults += faults_of_message(answer["choices"][0], case.body)
    assert not faults, "\n".join(faults)
    return None


def faults_of_message(choice: Mapping[str, Any], request: Mapping[str, Any]) -> list[str]:
    """What is wrong with a message beyond its schema."""
    message, reason = choice["message"], choice["finish_reason"]
    calls = message.get("tool_calls")
    faults = []
    if message["content"] is None and not calls:
        faults.append("content is null although there are no calls")
    if (reason == "tool_calls" and not calls) or (reason == "stop" and calls):
        faults.append(f"finish_reason is {reason} with the calls {calls}")
    if calls and request.get("tool_choice") == "none":
        faults.append("there are calls although tool_choice is none")
    if "reasoning_content" in message and request.get("include_reasoning") is False:
        faults.append("there is reasoning although it was not wanted")
    return faults


@schemathesis.check
def shape_of_an_error(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """Every refusal, also of methods and headers that no operation has, is in the one shape; True where there is none."""
    status = response.status_code
    if status < 400:
        return True
    assert str(status) in case.operation.definition.raw["responses"], "this status is not in the document"
    assert content_type(response) == "application/json", "an error is JSON"
    body = response.json()
    assert set(body) == {"error"}, "an error is one object, named error"
    assert set(body["error"]) == {"message", "type", "param", "code"}, "an error has message, type, param and code"
    assert body["error"]["type"] == ("server_error" if status >= 500 else "invalid_request_error")
    assert body["error"]["code"] in CODES[status], "this code is one of another status"
    return None


@schemathesis.check
def refusal_that_no_schema_tells(ctx: CheckContext, response: Response, case: Case) -> bool | None:
    """A tool_choice that names an absent tool is refused by name; True where there is none, or more is wrong."""
    if case.path != CHAT or case.meta is None or not case.meta.generation.mode.is_positive:
        return True
    if not names_an_absent_tool(case.body):
        return True
    assert response.status_code == 400, "tool_choice names a tool that is not among tools"
    assert response.json()["error"]["param"] == "tool_choice"
    return None


def content_type(response: Response) -> str:
    """The Content-Type; empty where there is none."""
    return response.headers.get("content-type", [""])[0]
