"""The three ways to start the server answer the same bytes, and every error has the OpenAI shape."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any, NamedTuple

import pytest

from tests.conftest import API_KEY
from tests.live_server import Answer, ServerProcess, connection_closed, eventually

CHAT = "/v1/chat/completions"
RAW = "/v1/completions"
KEY = {"authorization": f"Bearer {API_KEY}"}
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MISSING = "missing_required_parameter"
NULLABLE = ("model", "n", "stop", "tools", "tool_choice", "logprobs", "seed", "stream", "top_k", "user")
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "t", "schema": {}}}
HI = b'{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}'
LONE = b'{"messages": [{"role": "user", "content": "half \\ud83d"}]}'


class Case(NamedTuple):
    """A request and what its answer must show; param and code of an error are compared, a success has neither."""

    method: str
    path: str
    body: Any = None
    status: int = 200
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = KEY


def chat(status: int = 200, param: str | None = None, code: str | None = None, **fields: Any) -> Case:
    return Case("POST", CHAT, {"messages": [USER], "temperature": 0, "max_tokens": 4, **fields}, status, param, code)


def said(*messages: Any, status: int = 400, param: str | None = None, code: str | None = None) -> Case:
    return chat(status, param, code, messages=list(messages))


def raw(status: int = 200, param: str | None = None, code: str | None = None, **fields: Any) -> Case:
    return Case("POST", RAW, {"temperature": 0, "max_tokens": 4, **fields}, status, param, code)


def sent(body: bytes, code: str | None = "invalid_json", status: int = 400, **headers: str) -> Case:
    return Case("POST", CHAT, body, status, None, code, {**KEY, **headers})


CASES = {
    # Answers.
    "chat": chat(),
    "chat, streamed": chat(stream=True),
    "chat, streamed with usage": chat(stream=True, stream_options={"include_usage": True}),
    "chat, reasoning hidden": chat(include_reasoning=False),
    "chat, thinking off": chat(chat_template_kwargs={"enable_thinking": False}),
    "chat, sampled with a seed": chat(temperature=1, seed=3, top_p=0.9, top_k=50, repetition_penalty=1.1),
    "chat, tools and history": chat(
        tools=[TOOL],
        tool_choice="auto",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "5"},
        ],
    ),
    "nulls": chat(**dict.fromkeys(NULLABLE)),
    "the model's own id": chat(model="maple-preview"),
    "both caps": chat(max_completion_tokens=2, max_tokens=7),
    "a cap beyond reason": chat(max_tokens=10**8, stop=["e", "t", "a"], max_completion_tokens=5),
    "stop strings": chat(stop=["x", ""]),
    "ignored fields": chat(
        user="u", presence_penalty=1, frequency_penalty=-1, functions=[], function_call="none", zzz={"a": 1}
    ),
    "json_object": chat(response_format={"type": "json_object"}),
    "raw": raw(prompt="Once"),
    "raw, streamed with usage": raw(prompt="Once", stream=True, stream_options={"include_usage": True}),
    "raw, one-element list": raw(prompt=["Once"]),
    "raw, token ids": raw(prompt=[79, 110, 99, 101]),
    "raw, list of token ids": raw(prompt=[[79, 110, 99, 101]]),
    "raw, refused fields switched off": raw(prompt="a", echo=False, logprobs=None, suffix="", best_of=1, n=1),
    "models": Case("GET", "/v1/models"),
    "model": Case("GET", "/v1/models/maple-preview"),
    # No Content-Type, or a wrong one: JSON is JSON.
    "charset": sent(HI, None, 200, **{"content-type": "Application/JSON; charset=utf-8"}),
    "form": sent(HI, None, 200, **{"content-type": "application/x-www-form-urlencoded"}),
    "byte order mark": sent(b"\xef\xbb\xbf" + HI, None, 200),
    "multipart": sent(b"--x\r\n\r\n--x--", **{"content-type": "multipart/form-data; boundary=x"}),
    # Refused by name.
    "n": chat(400, "n", n=2),
    "logprobs": chat(400, "logprobs", logprobs=True, top_logprobs=2),
    "top_logprobs": chat(400, "top_logprobs", top_logprobs=2),
    "json_schema": chat(400, "response_format", response_format=JSON_SCHEMA),
    "echo": raw(400, "echo", prompt="a", echo=True, logprobs=1, max_tokens=0),
    "suffix": raw(400, "suffix", prompt="a", suffix="x"),
    "raw logprobs": raw(400, "logprobs", prompt="a", logprobs=0),
    "raw n": raw(400, "n", prompt="a", n=3),
    "best_of": raw(400, "best_of", prompt="a", best_of=2),
    "image": said(
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        param="messages[0].content[1].type",
    ),
    "tool type": chat(400, "tools[0].type", tools=[{"type": "custom", "custom": {"name": "x"}}]),
    "tool_choice type": chat(400, "tool_choice.type", tools=[TOOL], tool_choice={"type": "custom", "custom": {"name": "f"}}),
    "tool_choice absent": chat(400, "tool_choice", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}),
    "tool_choice of none": chat(400, "tool_choice", tool_choice={"type": "function", "function": {"name": "g"}}),
    # Not as the contract says.
    "no messages": Case("POST", CHAT, {"model": "maple-preview"}, 400, "messages", MISSING),
    "messages empty": said(param="messages", code="invalid_value"),
    "messages a text": chat(400, "messages", "invalid_type", messages="Hi"),
    "message a text": said("Hi", param="messages[0]", code="invalid_type"),
    "role missing": said({"content": "x"}, param="messages[0].role", code=MISSING),
    "role unknown": said({"role": "bogus", "content": "x"}, param="messages[0].role", code="invalid_value"),
    "content missing": said({"role": "user"}, param="messages[0].content", code=MISSING),
    "content null": said({"role": "user", "content": None}, param="messages[0].content", code="invalid_type"),
    "tool_call_id missing": said(USER, {"role": "tool", "content": "x"}, param="messages[1].tool_call_id", code=MISSING),
    "arguments an object": said(
        {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]},
        param="messages[0].tool_calls[0].function.arguments",
        code="invalid_type",
    ),
    "temperature a text": chat(400, "temperature", "invalid_type", temperature="hot"),
    "temperature negative": chat(400, "temperature", "invalid_value", temperature=-0.1),
    "temperature high": chat(400, "temperature", "invalid_value", temperature=2.1),
    "top_p": chat(400, "top_p", "invalid_value", top_p=1.5),
    "top_k": chat(400, "top_k", "invalid_value", top_k=-2),
    "repetition_penalty": chat(400, "repetition_penalty", "invalid_value", repetition_penalty=0),
    "max_tokens": chat(400, "max_tokens", "invalid_value", max_tokens=0),
    "max_tokens a list": chat(400, "max_tokens", "invalid_type", max_tokens=[1]),
    "seed too large": chat(400, "seed", "invalid_value", seed=2**64),
    "stop": chat(400, "stop[1]", "invalid_type", stop=["a", 1]),
    "prompt missing": Case("POST", RAW, {}, 400, "prompt", MISSING),
    "prompt empty": raw(400, "prompt", prompt=""),
    "prompts": raw(400, "prompt", prompt=["a", "b"]),
    "token id negative": raw(400, "prompt", prompt=[-1]),
    "token id true": raw(400, "prompt", prompt=[True]),
    "token id unknown": raw(400, "prompt", prompt=[5279552648203111001]),
    "prompt too long": raw(400, "prompt", "context_length_exceeded", prompt="word " * 300),
    "messages too long": said({"role": "user", "content": "word " * 300}, param="messages", code="context_length_exceeded"),
    "too long, streamed": chat(
        400, "messages", "context_length_exceeded", stream=True, messages=[{"role": "user", "content": "word " * 300}]
    ),
    # No JSON.
    "broken": sent(b'{"model":'),
    "empty": sent(b""),
    "array": sent(b"[]", "invalid_type"),
    "null": sent(b"null", "invalid_type"),
    "not UTF-8": sent(b'{"model": "\xff"}'),
    "half a pair": sent(LONE),
    "NaN": sent(b'{"messages": [], "temperature": NaN}'),
    "beyond floats": sent(b'{"messages": [], "temperature": 1e999}'),
    "deep": sent(b'{"a":' + b"[" * 90000 + b"]" * 90000 + b"}"),
    "deep in an ignored field": sent(b'{"messages": [], "a":' + b'{"a":' * 500 + b"1" + b"}" * 501),
    "5000 digits": sent(b'{"a":' + b"9" * 5000 + b"}"),
    "too large": sent(b'{"a": "' + b"x" * 300_000 + b'"}', "request_too_large", 413),
    # Keys.
    "no key": Case("POST", CHAT, b"{", 401, None, "invalid_api_key", {}),
    "wrong key": Case("GET", "/v1/models", None, 401, None, "invalid_api_key", {"authorization": "Bearer SK-TEST"}),
    "another scheme": Case("GET", "/v1/models", None, 401, None, "invalid_api_key", {"authorization": "Basic eDp5"}),
    "no scheme": Case("GET", "/v1/models", None, 401, None, "invalid_api_key", {"authorization": API_KEY}),
    "scheme in any case": Case("GET", "/v1/models", headers={"authorization": f"bEARER  {API_KEY}"}),
    # Models, routes, methods.
    "another model": chat(404, "model", "model_not_found", model="other"),
    "unknown model": Case("GET", "/v1/models/nope", None, 404, "model", "model_not_found"),
    "unknown model with a slash": Case("GET", "/v1/models/deepgrove%2Fnope", None, 404, "model", "model_not_found"),
    "model of no name": Case("GET", "/v1/models/", None, 404, "model", "model_not_found"),
    "unknown route": Case("GET", "/v1/nope", None, 404, None, "unknown_url"),
    "unknown route without a key": Case("POST", "/nope", b"", 404, None, "unknown_url", {}),
    "unknown file": Case("GET", "/ui/nope.js", None, 404, None, "unknown_url"),
    "method": Case("GET", CHAT, None, 405, None, "method_not_allowed"),
    "method of models": Case("DELETE", "/v1/models", None, 405, None, "method_not_allowed"),
    "method of health": Case("PUT", "/health", b"{}", 405, None, "method_not_allowed", {}),
    "preflight of a stranger": Case(
        "OPTIONS", CHAT, None, 405, None, "method_not_allowed", {"origin": "http://x", "access-control-request-method": "POST"}
    ),
    "preflight": Case(
        "OPTIONS", CHAT, None, 204, headers={"origin": "http://page.example", "access-control-request-method": "POST"}
    ),
    "a page's request": Case("GET", "/v1/models", headers={**KEY, "origin": "http://page.example"}),
    "head": Case("HEAD", "/v1/models"),
    "slash at the end": Case("GET", "/health/", None, 307, headers={}),
}

VARYING = re.compile(
    rb'chatcmpl-[0-9a-f]{32}|cmpl-[0-9a-f]{32}|call_[0-9a-f]{32}|"created":\d+|"cached_tokens":\d+|127\.0\.0\.1:\d+'
)


def seen(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs from request to request and from server to server."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id", "location")}
    if "content-length" in headers and b"created" in answer.body:
        headers["content-length"] = "varies"
    return answer.status, headers, VARYING.sub(b"-", answer.body)


@pytest.mark.parametrize("name", CASES)
def test_every_launcher_answers_the_same_and_as_expected(launched: dict[str, ServerProcess], name: str) -> None:
    case = CASES[name]
    answers = {launcher: server.send(case.method, case.path, case.body, case.headers) for launcher, server in launched.items()}
    first = answers["connexion-run"]
    assert first.status == case.status, first.body[:500]
    if case.status >= 400:
        error = first.error
        assert (error["param"], error["code"]) == (case.param, case.code), error
        assert error["type"] == "invalid_request_error"
        assert error["message"]
    for answer in answers.values():
        assert re.fullmatch(r"req_[0-9a-f]{32}", answer.headers["x-request-id"])
        assert seen(answer) == seen(first)


def test_the_reference_s_own_sample_is_answered_to_the_letter(launched: dict[str, ServerProcess]) -> None:
    expected = {"error": {"message": "n must be 1", "type": "invalid_request_error", "param": "n", "code": None}}
    for server in launched.values():
        answer = server.send("POST", CHAT, {"messages": [USER], "n": 2}, KEY)
        assert answer.status == 400
        assert answer.body == json.dumps(expected, separators=(",", ":")).encode()


def test_refusals_carry_the_headers_that_their_status_asks_for(launched: dict[str, ServerProcess]) -> None:
    for server in launched.values():
        assert server.send("GET", CHAT, None, KEY).headers["allow"] == "POST"
        assert server.send("PUT", "/health", b"", {}).headers["allow"] == "GET, HEAD"
        assert server.get("/v1/models").headers["www-authenticate"] == "Bearer"


def test_a_body_in_http_chunks_cut_inside_a_character_is_read(launched: dict[str, ServerProcess]) -> None:
    whole = json.dumps({"messages": [{"role": "user", "content": "é"}], "max_tokens": 1}, ensure_ascii=False).encode()
    cut = whole.index("é".encode()) + 1
    for server in launched.values():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", CHAT, body=iter([whole[:cut], whole[cut:]]), headers=KEY, encode_chunked=True)
        with connection_closed(connection):
            assert connection.getresponse().status == 200


def test_health_needs_no_key_and_says_what_is_served(launched: dict[str, ServerProcess]) -> None:
    healths = [server.health() for server in launched.values()]
    for health in healths:
        assert list(health) == [
            "status", "model", "model_path", "device", "dtype", "attention", "load_seconds", "queue_depth", "active", "version",
        ]  # fmt: skip
        assert health["status"] == "ok"
        assert health["model"] == "maple-preview"
        assert "2-bit ternary" in health["dtype"]
        assert (health["queue_depth"], health["active"]) == (0, 0)
        assert {**health, "load_seconds": 0} == {**healths[0], "load_seconds": 0}


def test_the_log_names_the_request_and_never_a_prompt_or_a_key(launched: dict[str, ServerProcess]) -> None:
    for server in launched.values():
        answer = server.send("POST", CHAT, {"messages": [{"role": "user", "content": "a-secret-prompt"}]}, KEY)
        request_id = answer.headers["x-request-id"]
        eventually(lambda server=server, request_id=request_id: request_id in server.log.read_text())
        log = server.log.read_text()
        assert "a-secret-prompt" not in log
        assert API_KEY not in log


def test_the_contract_and_its_pages_are_served(launched: dict[str, ServerProcess]) -> None:
    for server in launched.values():
        assert server.get("/openapi.json").json()["openapi"] == "3.0.3"
        assert b"swagger" in server.get("/ui/").body.lower()
