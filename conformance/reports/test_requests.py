"""Every request of the catalogue is answered as it must be."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.reports import checks
from conformance.reports.catalogue import CHAT, data, requests_of
from conformance.reports.conftest import TargetOf
from conformance.reports.target import Answer
from conformance.stream_rules import breaches

CASES: list[dict[str, Any]] = data("requests")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_request_is_answered_as_the_catalogue_says(target_of: TargetOf, case: dict[str, Any]) -> None:
    target = target_of(case.get("server", "given"))
    answers = [target.send(request) for request in requests_of(case)]
    for answer in answers:
        assert_expected(answer)
    for name in case.get("checks", ()):
        getattr(checks, name)(answers)
    assert target.health()["status"] == "ok"


def assert_expected(answer: Answer) -> None:
    """The status, and what is true of every answer of it."""
    request = answer.request
    assert answer.status == request.expect.get("status", 200), answer.body
    if answer.status >= 400:
        assert_error(answer)
    elif answer.streamed:
        assert breaches(request.body, answer.body, chat=request.path == CHAT) == []
    elif request.method in ("GET", "POST"):
        assert answer.headers["content-type"].startswith("application/json")
        assert isinstance(answer.json, dict)
    else:
        assert answer.body == b""


def assert_error(answer: Answer) -> None:
    """The one shape of errors, and where they are named the param and the code."""
    assert answer.headers["content-type"].startswith("application/json")
    assert set(answer.json) == {"error"}
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if answer.status < 500 else "server_error")
    assert error["message"]
    for name in ("param", "code"):
        if name in answer.request.expect:
            assert error[name] == answer.request.expect[name]
