"""Answers over HTTP from a model of bytes: whole and streamed, abandoned, failing, silent."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from maple_spec.server import delivery
from tests.contract import assert_fits
from tests.live_server import Server, connection_closed, eventually, serving
from tests.toys import ToyModel, loaded, says

HI = {"role": "user", "content": "Hi"}
THOUGHT = "We think.\n</think>\n\nHello, wörld 😀!"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(lambda: loaded(says(THOUGHT))) as live:
        yield live


def idle(server: Server) -> bool:
    health = server.health()
    return (health["active"], health["queue_depth"]) == (0, 0)


def stream(server: Server, **fields: Any) -> list[dict[str, Any]]:
    answer = server.chat(stream=True, **fields)
    assert answer.status == 200
    return answer.events()


def test_the_answer_is_split_into_reasoning_and_content(server: Server) -> None:
    answer = server.chat(temperature=0).json()
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("We think.", "Hello, wörld 😀!")
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 10  # one byte, one token
    assert_fits(answer, "ChatCompletion")


def test_a_stream_says_the_same_in_pieces(server: Server) -> None:
    whole = server.chat(temperature=0).json()
    chunks = stream(server, temperature=0, stream_options={"include_usage": True})
    for chunk in chunks:
        assert_fits(chunk, "ChatCompletionChunk")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    message = whole["choices"][0]["message"]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]
    assert len(deltas) > 10
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[0]["system_fingerprint"] == whole["system_fingerprint"]


def test_a_stream_s_headers_keep_proxies_from_holding_it_back(server: Server) -> None:
    answer = server.chat(stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"


def test_hidden_reasoning_is_counted_and_not_shown(server: Server) -> None:
    answer = server.chat(include_reasoning=False).json()
    assert "reasoning_content" not in answer["choices"][0]["message"]
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 10
    deltas = [chunk["choices"][0]["delta"] for chunk in stream(server, include_reasoning=False)]
    assert not any("reasoning_content" in delta for delta in deltas)


def test_a_cap_inside_the_thought_leaves_the_content_empty(server: Server) -> None:
    answer = server.chat(max_tokens=4).json()
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == ("", "We t")
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 4


def test_a_raw_completion_passes_the_text_on_as_it_is(server: Server) -> None:
    answer = server.send("POST", "/v1/completions", {"prompt": "x"}).json()
    assert answer["choices"][0]["text"] == THOUGHT
    assert_fits(answer, "Completion")
    chunks = server.send("POST", "/v1/completions", {"prompt": "x", "stream": True}).events()
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == THOUGHT
    for chunk in chunks:
        assert_fits(chunk, "CompletionChunk")


def test_tool_calls_come_whole_and_as_one_delta_each() -> None:
    block = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    with serving(lambda: loaded(says(f"So.</think>\n\n{block}\n{block}"))) as server:
        choice = server.chat().json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        assert [call["function"] for call in choice["message"]["tool_calls"]] == [{"name": "add", "arguments": '{"a": 1}'}] * 2
        deltas = [chunk["choices"][0]["delta"] for chunk in stream(server)]
        pieces = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
        assert [piece["index"] for piece in pieces] == [0, 1]
        assert all(delta.get("content", "") == "" for delta in deltas)


class FailingModel(ToyModel):
    """Fails in the middle of every answer while broken."""

    broken = True

    def forward(self, token_ids: Any, cache: Any) -> Any:
        if self.broken and len(cache) > self._prompt_length + 3:
            raise RuntimeError("the model is out of order")
        return super().forward(token_ids, cache)


def test_a_failure_in_the_model_is_told_and_the_next_request_works() -> None:
    model = FailingModel(lambda prompt: list(b"abcdefgh"))
    with serving(lambda: loaded(model)) as server:
        answer = server.chat()
        assert answer.status == 500
        assert answer.error["type"] == "server_error"
        assert "out of order" not in answer.error["message"]
        *chunks, error = stream(server)
        assert chunks[-1]["choices"][0]["delta"]
        assert error["error"]["type"] == "server_error"
        assert_fits(error, "ErrorResponse")
        model.broken = False
        assert server.chat().status == 200
        assert idle(server)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_while_its_answer_runs_frees_the_slot(streamed: bool) -> None:
    with serving(lambda: loaded(says("x" * 900, seconds_per_token=0.02))) as server:
        connection = start(server, streamed)
        server.wait(lambda health: health["active"] == 1)
        connection.close()
        began = time.monotonic()
        eventually(lambda: idle(server))
        assert time.monotonic() - began < 2


def start(server: Server, streamed: bool) -> http.client.HTTPConnection:
    """Send a request without waiting for the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", body=json.dumps({"messages": [HI], "stream": streamed}))
    return connection


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_the_queue_is_not_served_and_disturbs_nobody(streamed: bool) -> None:
    gate = threading.Event()
    with serving(lambda: loaded(says("ok</think>fine", gate=gate))) as server:
        running = start(server, False)
        server.wait(lambda health: health["active"] == 1)
        waiting = start(server, streamed)
        server.wait(lambda health: health["queue_depth"] == 1)
        waiting.close()
        server.wait(lambda health: health["queue_depth"] == 0)
        gate.set()
        assert b'"content":"fine"' in running.getresponse().read()
        running.close()
        assert idle(server)


def test_a_full_queue_refuses_streams_too_before_any_header() -> None:
    gate = threading.Event()
    with serving(lambda: loaded(says("ok", gate=gate)), max_queue_depth=0) as server:
        running = start(server, True)
        server.wait(lambda health: health["active"] == 1)
        for streamed in (True, False):
            answer = server.chat(stream=streamed)
            assert answer.status == 503
            assert answer.headers["retry-after"] == "5"
            assert answer.error["code"] == "engine_overloaded"
        gate.set()
        with connection_closed(running):
            assert b"[DONE]" in running.getresponse().read()


def test_a_wait_for_the_slot_has_an_end() -> None:
    gate = threading.Event()
    with serving(lambda: loaded(says("ok", gate=gate)), queue_timeout=0.2) as server:
        running = start(server, True)
        server.wait(lambda health: health["active"] == 1)
        answer = server.chat(stream=True)
        assert (answer.status, answer.error["code"]) == (503, "engine_overloaded")
        gate.set()
        running.close()


def test_a_silent_stream_says_that_it_is_alive_and_never_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SILENCE", 0.4)
    gate = threading.Event()
    with serving(lambda: loaded(says("ok</think>fine", gate=gate))) as server:
        threading.Timer(1.5, gate.set).start()
        began = time.monotonic()
        connection, response = server.open("POST", "/v1/chat/completions", {"messages": [HI], "stream": True})
        lines, beats = [], []
        with connection_closed(connection):
            while line := response.readline():
                lines.append(line)
                if line == b": keep-alive\n":
                    beats.append(time.monotonic() - began)
        assert lines[0].startswith(b"data: ")  # the role, at once
        assert 2 <= len(beats) <= 3
        assert all(later - earlier >= 0.39 for earlier, later in zip([0.0, *beats], beats, strict=False))
        assert lines[-2:] == [b"data: [DONE]\n", b"\n"]


def test_a_busy_stream_sends_no_comments(server: Server) -> None:
    assert b"keep-alive" not in server.chat(stream=True).body


def test_health_answers_at_once_while_the_model_is_at_work() -> None:
    with serving(lambda: loaded(says("x" * 500, seconds_per_token=0.01))) as server:
        running = start(server, False)
        server.wait(lambda health: health["active"] == 1)
        began = time.monotonic()
        for _ in range(20):
            assert server.health()["status"] == "ok"
        assert time.monotonic() - began < 20 * 0.25
        running.close()


def test_while_the_model_loads_requests_are_put_off_and_the_rest_answers() -> None:
    gate = threading.Event()

    def load() -> Any:
        gate.wait(30)
        return loaded(says("ok"))

    with serving(load, ready=False) as server:
        assert server.health()["status"] == "loading"
        for streamed in (True, False):
            answer = server.chat(stream=streamed)
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            assert (answer.error["type"], answer.error["code"]) == ("server_error", "model_loading")
        assert server.get("/v1/models").status == 200
        assert server.chat(n=2).status == 400
        assert_fits(server.health(), "Health")
        gate.set()
        server.wait(lambda health: health["status"] == "ok")
        assert server.chat().status == 200


def test_a_load_that_fails_is_told_by_health_and_by_every_request() -> None:
    def load() -> Any:
        raise OSError("weights.bin is gone")

    with serving(load) as server:
        health = server.health()
        assert health["status"] == "error"
        assert "weights.bin is gone" in health["error"]
        assert_fits(health, "Health")
        answer = server.chat()
        assert (answer.status, answer.error["code"]) == (503, "model_load_failed")
        assert "weights.bin is gone" in answer.error["message"]
