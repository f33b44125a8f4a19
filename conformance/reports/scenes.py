"""What several clients do to a server at once or one after the other: a function for every case of scenes.json."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.reports.catalogue import CHAT, COMPLETION, QUESTION, Request
from conformance.reports.target import Answer, Target, closed, question
from conformance.stream_rules import breaches

Scene = Callable[[Target], None]
SCENES: dict[str, Scene] = {}

SOON = 2.0  # seconds in which a request is answered that need not wait for a slow one, on a busy machine too
SLOW = "a slow answer"
SLOW_TEXT = "A slow answer takes its time."


def scene(case_id: str) -> Callable[[Scene], Scene]:
    """Gives the function its case."""

    def add(play: Scene) -> Scene:
        SCENES[case_id] = play
        return play

    return add


@contextmanager
def in_background(target: Target, request: Request) -> Iterator[list[tuple[Answer, float]]]:
    """Send the request from another thread; on the way out the answer and its moment are in the list."""
    answers: list[tuple[Answer, float]] = []
    thread = threading.Thread(target=lambda: answers.append((target.send(request), time.monotonic())))
    thread.start()
    try:
        yield answers
    finally:
        thread.join(60)
    assert answers, "the request in the background has failed"


def leave(target: Target, request: Request, when: Callable[[Target], None]) -> None:
    """Send the request, and close the connection when the moment has come, without reading anything."""
    connection = target.connect()
    with closed(connection):
        target.begin(connection, request)
        when(target)


def assert_slow_answer_is_complete(answer: Answer) -> None:
    assert breaches(answer.request.body, answer.body, chat=True) == []
    assert (answer.text("content"), answer.finish_reason) == (SLOW_TEXT, "stop")


def assert_served_soon(target: Target) -> None:
    began = time.monotonic()
    assert target.chat("hi").status == 200
    assert time.monotonic() - began < SOON
    target.wait_idle(SOON)


@scene("E02")
def an_error_ends_the_stream(target: Target) -> None:
    connection, response = target.open(question("fail after three tokens", stream=True))
    with closed(connection):
        lines: list[tuple[str, float]] = []
        while line := response.readline():
            lines.append((line.decode().strip(), time.monotonic()))
        ended = time.monotonic()
    *_, (error, told), (done, _) = [line for line in lines if line[0]]
    assert response.status == 200
    assert json.loads(error.removeprefix("data: "))["error"]["type"] == "server_error"
    assert done == "data: [DONE]"
    assert ended - told < 1


@scene("E06")
def a_stream_is_not_held_back(target: Target) -> None:
    connection, response = target.open(question(SLOW, stream=True))
    with closed(connection):
        assert response.getheader("x-accel-buffering") == "no"
        assert "no-cache" in (response.getheader("cache-control") or "")
        moments = [time.monotonic() for line in iter(response.readline, b"") if line.strip()]
    assert moments[-1] - moments[0] > 0.3  # the pauses of the script come to 0.7 s


@scene("H03")
def a_body_in_chunks_is_read(target: Target) -> None:
    plain = Request("POST", CHAT, {**QUESTION, "messages": [{"role": "user", "content": "Grüße aus Köln"}]})
    raw = json.dumps(plain.body, ensure_ascii=False).encode()
    cut = raw.index("ü".encode()) + 1
    connection = target.connect()
    with closed(connection):
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {target.key}"} if target.key else {})
        connection.request("POST", CHAT, body=iter([raw[:cut], raw[cut:]]), headers=headers, encode_chunked=True)
        response = connection.getresponse()
        chunked = Answer(plain, response.status, {}, response.read())
    assert chunked.status == 200
    assert chunked.usage["prompt_tokens"] == target.send(plain).usage["prompt_tokens"]


@scene("L03")
def the_model_is_listed_retrieved_and_named_alike(target: Target) -> None:
    listed = target.send(Request("GET", "/v1/models")).json
    (model,) = listed["data"]
    assert (listed["object"], model["object"], model["owned_by"]) == ("list", "model", "deepgrove")
    assert type(model["created"]) is int
    assert target.send(Request("GET", f"/v1/models/{model['id']}")).json == model
    assert target.chat("Say hi.", max_tokens=2).json["model"] == model["id"]


@scene("L05")
def the_probe_is_answered_during_a_long_prefill(target: Target) -> None:
    long = Request("POST", COMPLETION, {"prompt": "The maple tree has leaves. " * 1000, "max_tokens": 1})
    with in_background(target, long) as answers:
        for _ in range(20):
            began = time.monotonic()
            assert target.health()["status"] == "ok"
            assert time.monotonic() - began < 1
            time.sleep(0.01)
    assert answers[0][0].status == 200 or answers[0][0].json["error"]["code"] == "context_length_exceeded"


@scene("K02")
def a_client_that_leaves_while_it_waits_frees_the_slot(target: Target) -> None:
    leave(target, question("wait for ever"), lambda target: target.wait(lambda health: health["active"] == 1))
    assert_served_soon(target)


@scene("K04")
def a_client_that_leaves_the_queue_disturbs_nobody(target: Target) -> None:
    with in_background(target, question(SLOW, stream=True)) as answers:
        target.wait(lambda health: health["active"] == 1)
        leave(target, question("hi", stream=True), lambda target: target.wait(lambda health: health["queue_depth"] == 1))
        target.wait(lambda health: health["queue_depth"] == 0)
    assert_slow_answer_is_complete(answers[0][0])
    target.wait_idle()


@scene("K06")
def the_slot_is_free_when_the_answer_is_over(target: Target) -> None:
    connection, response = target.open(question("hi", stream=True))
    with closed(connection):
        assert response.read().endswith(b"data: [DONE]\n\n")
        assert_served_soon(target)
    unread, _ = target.open(question("hi", stream=True))
    with closed(unread):
        assert_served_soon(target)


@scene("K07")
def a_request_in_the_middle_waits_its_turn(target: Target) -> None:
    with in_background(target, question(SLOW, stream=True)) as first:
        target.wait(lambda health: health["active"] == 1)
        with in_background(target, question(SLOW, stream=True)) as second:
            pass
    for answer, _ in (*first, *second):
        assert_slow_answer_is_complete(answer)
    assert second[0][1] - first[0][1] > 0.3, "the second began when the first was over"


@scene("K09")
def answers_that_fail_give_the_slot_back(target: Target) -> None:
    for number in range(10):
        streamed = number % 2 == 0
        answer = target.chat("fail after three tokens", stream=streamed)
        assert answer.status == (200 if streamed else 500)
        error = answer.events[-1] if streamed else answer.json
        assert error["error"]["type"] == "server_error"
    assert_served_soon(target)


@scene("K12")
def a_client_that_leaves_after_the_first_chunk_frees_the_slot(target: Target) -> None:
    for _ in range(20):
        connection, response = target.open(question("wait for ever", stream=True))
        with closed(connection):
            first = json.loads(response.readline().removeprefix(b"data: "))
            assert first["choices"][0]["delta"]["role"] == "assistant"
    assert_served_soon(target)


@scene("N01")
def a_seed_means_the_same_in_a_crowd(target: Target) -> None:
    def seeded(seed: int | None) -> Request:
        return question("Tell me something.", temperature=1, max_tokens=64, **({} if seed is None else {"seed": seed}))

    alone = {seed: target.send(seeded(seed)).said for seed in (42, 7)}
    with (
        in_background(target, seeded(42)) as first,
        in_background(target, seeded(7)) as second,
        in_background(target, seeded(None)),
    ):
        pass
    assert first[0][0].said == alone[42]
    assert second[0][0].said == alone[7]


@scene("Y01")
def the_memory_is_flat(target: Target) -> None:
    status = Path(f"/proc/{target.pid}/status")
    if not status.exists():
        pytest.skip("only Linux tells how much memory a process has")

    def used() -> float:
        """MiB that are the process's own, wherever they lie."""
        fields = dict(line.split(":") for line in status.read_text(encoding="utf-8").splitlines())
        return sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap")) / 1024

    def mixed(requests: int) -> float:
        for number in range(requests // 4):
            assert target.chat("hi", stream=number % 2 == 0).status == 200
            target.chat("fail after three tokens", stream=number % 2 == 0)
            leave(target, question("wait for ever"), lambda target: target.wait(lambda health: health["active"] == 1))
            connection, response = target.open(question("wait for ever", stream=True))
            with closed(connection):
                response.readline()
        target.wait_idle()
        return used()

    warm, middle, end = mixed(52), mixed(100), mixed(100)
    assert end - warm < 50
    assert end - middle < 10
