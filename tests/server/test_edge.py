"""What holds for every request, whatever becomes of it: its id, its place in the log, pages of other origins, crashes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live_server import Server, serving
from tests.toys import loaded, says

KEY = {"authorization": "Bearer ключ".encode().decode("latin-1")}
PAGE = {"origin": "http://page.example"}
STRANGER = {"origin": "http://stranger.example"}
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-custom"}
ALLOW = "access-control-allow-origin"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with a key that pages of one origin may call."""
    with serving(lambda: loaded(says("ok")), api_key="ключ", allowed_origins="http://page.example") as server:
        yield server


def test_every_response_has_an_id_of_its_own(guarded: Server) -> None:
    paths = ("/health", "/v1/models", "/nope", "/ui/", "/openapi.json", "/health/")
    answers = [guarded.get(path) for path in paths for _ in range(2)]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("req_[0-9a-f]{32}", request_id) for request_id in ids)


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=x", "application/json", "x"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_is_nothing_to_operations_that_take_none(guarded: Server, method: str, content_type: str) -> None:
    for path in ("/health", "/v1/models", "/v1/models/maple-preview"):
        answer = guarded.send(method, path, b"--x{", {"content-type": content_type, **KEY})
        assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1//chat/completions"),
        ("POST", "//v1/chat//completions//"),
        ("POST", "/v1/completions/"),
        ("GET", "/v1//models"),
        ("GET", "/v1//models/maple-preview"),
    ],
)
def test_a_slash_too_many_in_a_path_does_no_harm(guarded: Server, method: str, path: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "prompt": "Hi"} if method == "POST" else None
    assert guarded.send(method, path, body, KEY).status == 200


@pytest.mark.parametrize("path", ["/v1/", "/v1//", "/v2//models", "/v1/nope/", "/v1/models/", "/v1//models/"])
def test_paths_that_lead_nowhere_still_do(guarded: Server, path: str) -> None:
    assert guarded.get(path, KEY).status == 404


@pytest.mark.parametrize("model_id", ["a//b", "a/", "/a", "models/", "x/models/y"])
def test_slashes_of_a_model_s_id_are_its_own(model_id: str) -> None:
    with serving(lambda: loaded(says("ok")), model_id=model_id) as server:
        for spelled in (model_id, model_id.replace("/", "%2F")):
            assert server.get(f"/v1/models/{spelled}").json()["id"] == model_id
        assert server.get("/v1/models/ab").status == 404


def test_a_preflight_needs_no_key_and_is_told_what_may_be_sent(guarded: Server) -> None:
    answer = guarded.send("OPTIONS", "/v1/chat/completions", None, {**PAGE, **PREFLIGHT})
    assert answer.status == 204
    assert answer.headers[ALLOW] == "http://page.example"
    assert answer.headers["access-control-allow-headers"] == "authorization,x-custom"
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert answer.body == b""


def test_a_page_may_read_errors_too(guarded: Server) -> None:
    answer = guarded.get("/v1/models", PAGE)
    assert answer.status == 401
    assert answer.headers[ALLOW] == "http://page.example"
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


def test_other_origins_are_told_nothing(guarded: Server) -> None:
    assert ALLOW not in guarded.get("/health", STRANGER).headers
    assert ALLOW not in guarded.get("/health").headers
    refused = guarded.send("OPTIONS", "/v1/chat/completions", None, {**STRANGER, **PREFLIGHT})
    assert refused.error["code"] == "method_not_allowed"
    assert ALLOW not in refused.headers


def test_a_star_allows_every_origin_and_no_setting_allows_none() -> None:
    with serving(lambda: loaded(says("ok")), allowed_origins="*") as server:
        assert server.get("/health", STRANGER).headers[ALLOW] == "http://stranger.example"
    with serving(lambda: loaded(says("ok"))) as server:
        assert not [name for name in server.get("/health", PAGE).headers if "access-control" in name or name == "vary"]


def test_a_key_may_be_any_text(guarded: Server) -> None:
    assert guarded.get("/v1/models", KEY).status == 200
    assert guarded.get("/v1/models", {"authorization": "Bearer key"}).error["code"] == "invalid_api_key"


class Broken:
    """A chat template with a fault of ours in it."""

    def render(self, prompt: Any) -> Any:
        raise ZeroDivisionError("a detail that is nobody's business")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_crash_is_a_500_in_the_one_shape_and_the_log_names_the_request(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(lambda: dataclasses.replace(loaded(says("ok")), chat_template=Broken())) as server:
        answer = server.chat(stream=streamed)
        assert answer.status == 500
        assert (answer.error["type"], answer.error["param"], answer.error["code"]) == ("server_error", None, None)
        assert "nobody's business" not in answer.body.decode()
        assert any(answer.headers["x-request-id"] in record.getMessage() and record.exc_info for record in caplog.records)
        assert server.send("POST", "/v1/completions", {"prompt": "x"}).status == 200
