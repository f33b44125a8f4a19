"""The judge of streams, judged: servers that break one rule or the schema of one event are caught, the right one is not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
import schemathesis
from schemathesis.checks import response_schema_conformance
from schemathesis.core.failures import FailureGroup

from conformance.schemathesis_hooks import CHAT, order_of_a_stream
from conformance.schemathesis_run import run, spec_path

Events = list[Any]  # chunks and errors, as values; a text is sent as it stands

HEAD = {"id": f"chatcmpl-{'0' * 32}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
TAIL = {"system_fingerprint": f"fp_{'0' * 12}"}
USAGE = {
    "prompt_tokens": 2,
    "completion_tokens": 3,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
ERROR = {"error": {"message": "it broke", "type": "server_error", "param": None, "code": None}}
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}


def chunk(delta: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}], **TAIL, **fields}


def call(index: int, name: int | None = None) -> dict[str, Any]:
    """A call; its id is named by its index where no name is given."""
    call_id = f"call_{'0' * 32}_{index if name is None else name}"
    function = {"name": "f", "arguments": "{}"}
    return chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})


ROLE = chunk({"role": "assistant", "content": ""})
THOUGHT = chunk({"reasoning_content": "so"})
WORD = chunk({"content": "yes"})
END = chunk({}, "stop")
CALLED = chunk({}, "tool_calls")
RIGHT = [ROLE, THOUGHT, WORD, END, "[DONE]"]


def counted(*chunks: dict[str, Any]) -> Events:
    """A stream whose usage was asked for, up to the chunk that holds it."""
    return [*({**part, "usage": None} for part in chunks), {**HEAD, "choices": [], "usage": USAGE, **TAIL}, "[DONE]"]


GOOD: dict[str, tuple[dict[str, Any], Events]] = {
    "an answer": ({}, RIGHT),
    "usage": ({"stream_options": {"include_usage": True}}, counted(ROLE, THOUGHT, WORD, END)),
    "calls": ({}, [ROLE, THOUGHT, call(0), WORD, call(1), CALLED, "[DONE]"]),
    "calls up to a cap": ({}, [ROLE, call(0), chunk({}, "length"), "[DONE]"]),
    "nothing said": ({}, [ROLE, END, "[DONE]"]),
    "an error": ({}, [ROLE, THOUGHT, ERROR, "[DONE]"]),
    "an error instead of usage": ({"stream_options": {"include_usage": True}}, [{**ROLE, "usage": None}, ERROR, "[DONE]"]),
}

ORDER: dict[str, tuple[dict[str, Any], Events]] = {
    "no [DONE]": ({}, RIGHT[:-1]),
    "two [DONE]": ({}, [*RIGHT, "[DONE]"]),
    "[DONE] before the end": ({}, [ROLE, "[DONE]", WORD, END]),
    "an error after [DONE]": ({}, [ROLE, "[DONE]", ERROR]),
    "a piece after an error": ({}, [ROLE, ERROR, WORD, "[DONE]"]),
    "an end after an error": ({}, [ROLE, ERROR, END, "[DONE]"]),
    "no role": ({}, RIGHT[1:]),
    "a late role": ({}, [THOUGHT, ROLE, WORD, END, "[DONE]"]),
    "a second role": ({}, [ROLE, chunk({"role": "assistant", "content": "yes"}), END, "[DONE]"]),
    "another id": ({}, [ROLE, {**WORD, "id": f"chatcmpl-{'1' * 32}"}, END, "[DONE]"]),
    "another moment": ({}, [ROLE, {**WORD, "created": 2}, END, "[DONE]"]),
    "another model": ({}, [ROLE, {**WORD, "model": "n"}, END, "[DONE]"]),
    "not the model asked for": ({"model": "n"}, RIGHT),
    "two ends": ({}, [ROLE, WORD, END, END, "[DONE]"]),
    "no end": ({}, [ROLE, WORD, "[DONE]"]),
    "a piece after the end": ({}, [ROLE, END, WORD, "[DONE]"]),
    "a piece with the end": ({}, [ROLE, chunk({"content": "yes"}, "stop"), "[DONE]"]),
    "an empty delta": ({}, [ROLE, chunk({}), WORD, END, "[DONE]"]),
    "an empty content": ({}, [ROLE, chunk({"content": ""}), END, "[DONE]"]),
    "two texts at once": ({}, [ROLE, chunk({"reasoning_content": "so", "content": "yes"}), END, "[DONE]"]),
    "reasoning after the answer": ({}, [ROLE, WORD, THOUGHT, END, "[DONE]"]),
    "unwanted reasoning": ({"include_reasoning": False}, RIGHT),
    "calls miscounted": ({}, [ROLE, call(1), CALLED, "[DONE]"]),
    "calls of one id": ({}, [ROLE, call(0), call(1, 0), CALLED, "[DONE]"]),
    "calls without their reason": ({}, [ROLE, call(0), END, "[DONE]"]),
    "a reason without calls": ({}, [ROLE, WORD, CALLED, "[DONE]"]),
    "calls of hidden tools": ({"tool_choice": "none"}, [ROLE, call(0), CALLED, "[DONE]"]),
    "usage unasked": ({}, counted(ROLE, WORD, END)),
    "a null usage unasked": ({}, [{**ROLE, "usage": None}, *RIGHT[1:]]),
    "no usage": ({"stream_options": {"include_usage": True}}, RIGHT),
    "usage too early": ({"stream_options": {"include_usage": True}}, [*counted(ROLE)[:-1], *counted(WORD, END)]),
    "usage in the last piece": (
        {"stream_options": {"include_usage": True}},
        [{**ROLE, "usage": None}, {**END, "usage": USAGE}, "[DONE]"],
    ),
    "usage beyond the cap": ({"stream_options": {"include_usage": True}, "max_tokens": 2}, counted(ROLE, WORD, END)),
}

SCHEMA: dict[str, tuple[dict[str, Any], Events]] = {
    "no JSON": ({}, [ROLE, "{", END, "[DONE]"]),
    "an unknown field": ({}, [ROLE, {**WORD, "zzz": 1}, END, "[DONE]"]),
    "an unknown delta": ({}, [ROLE, chunk({"thinking": "so"}), END, "[DONE]"]),
    "a missing field": ({}, [ROLE, {name: WORD[name] for name in WORD if name != "created"}, END, "[DONE]"]),
    "an unknown reason": ({}, [ROLE, WORD, chunk({}, "eos"), "[DONE]"]),
    "a number for a text": ({}, [ROLE, chunk({"content": 1}), END, "[DONE]"]),
    "an error of another shape": ({}, [ROLE, {"error": "it broke"}, "[DONE]"]),
    "two choices": ({}, [ROLE, {**WORD, "choices": WORD["choices"] * 2}, END, "[DONE]"]),
}


ALL = {**GOOD, **ORDER, **SCHEMA}


class WrongServer(BaseHTTPRequestHandler):
    """Answers every request with the events of the case that the path begins with: /CASE/v1/chat/completions."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        events = ALL[unquote(self.path.split("/")[1])][1]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("x-request-id", f"req_{'0' * 32}")
        self.end_headers()
        for event in events:
            self.wfile.write(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode())

    def log_message(self, *told: object) -> None:
        """Nothing: the test says what was wrong."""


@pytest.fixture(scope="module")
def wrong_server() -> Iterator[str]:
    """Where it is."""
    with ThreadingHTTPServer(("127.0.0.1", 0), WrongServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chat() -> Any:
    """The operation, as Schemathesis reads it with our hooks."""
    return schemathesis.openapi.from_path(str(spec_path()))[CHAT]["POST"]


def caught(chat: Any, url: str, name: str) -> set[str]:
    """Which of the two judges finds a fault in the answer of this case."""
    case = chat.Case(body={**REQUEST, **ALL[name][0]}, media_type="application/json")
    response = case.call(base_url=f"{url}/{quote(name)}")
    found = set()
    for check in (response_schema_conformance, order_of_a_stream):
        try:
            case.validate_response(response, checks=[check])
        except FailureGroup:
            found.add(check.__name__)
    return found


@pytest.mark.parametrize("name", GOOD)
def test_a_right_stream_passes(chat: Any, wrong_server: str, name: str) -> None:
    assert caught(chat, wrong_server, name) == set()


@pytest.mark.parametrize("name", ORDER)
def test_a_stream_whose_order_is_wrong_is_caught_though_every_event_fits_its_schema(
    chat: Any, wrong_server: str, name: str
) -> None:
    assert caught(chat, wrong_server, name) == {"order_of_a_stream"}


@pytest.mark.parametrize("name", SCHEMA)
def test_an_event_that_does_not_fit_its_schema_is_caught(chat: Any, wrong_server: str, name: str) -> None:
    assert "response_schema_conformance" in caught(chat, wrong_server, name)


def test_a_run_of_the_command_line_catches_them_too(wrong_server: str, tmp_path: Path) -> None:
    options = ("--include-path", CHAT, "--phases", "examples", "--checks", "order_of_a_stream,response_schema_conformance")
    for name, kind in (("two [DONE]", "CustomFailure"), ("an unknown field", "JsonSchemaError")):
        done = run(f"{wrong_server}/{quote(name)}", tmp_path, key=None, max_examples=1, options=options)
        assert done.exit_code == 1, done.output
        assert kind in [failure["type"] for failure in done.report["failures"]]
