"""Schemathesis, all its phases and checks and some of our own, against a live server: once without an API key, once with one.

`pytest -m sweep conformance/test_schemathesis.py` draws many more examples, other ones every time. Against a server of one's
own (CONFORMANCE_URL, CONFORMANCE_KEY) give that server small caps, or answers take long.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from conformance.conftest import serving
from conformance.schemathesis_run import WARNINGS, Run, run

PHASES = {"examples", "coverage", "fuzzing", "stateful"}
AUTH_CHECKS = {"ignored_auth", "missing_required_header"}
CHECKS = AUTH_CHECKS | {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
    "object_level_authorization",
    "max_response_time",
}
OUR_CHECKS = {"order_of_a_stream", "sense_of_an_answer", "shape_of_an_error", "refusal_that_no_schema_tells"}
GENERATION = ("POST /v1/chat/completions", "POST /v1/completions")
OPERATIONS = {*GENERATION, "GET /v1/models", "GET /v1/models/{model_id}", "GET /health"}


class Target(NamedTuple):
    """A server under test."""

    url: str
    key: str | None


CALLS = ['<tool_call>\n{"name": "get', '_weather", "arguments": {"city": "Lagos"}}', "\n</tool_call>", "\n", "<tool_call>"]
CALLS += ['{"name": "get_time"}', "</tool_call>"]
# Raw output that holds everything an answer can: reasoning, content, two calls and white space between them.
SCRIPT = [{"output": ["So", " I", " think", "</think>", "\n\n", "Let", " me", " look", ".\n", *CALLS, "\nDone", "."]}]


@pytest.fixture(scope="module", params=[None, "sk-conformance"], ids=["without a key", "with a key"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The server under test. Where it is ours: the default model without a key, then a scripted one with a key."""
    url, key = os.environ.get("CONFORMANCE_URL"), os.environ.get("CONFORMANCE_KEY")
    if url:
        if (key is None) != (request.param is None):
            pytest.skip("the server under test is judged the other way, with a key or without as CONFORMANCE_KEY says")
        yield Target(url.rstrip("/"), key)
    elif request.param is None:
        with serving(max_new_tokens="8", max_new_tokens_limit="64") as url:
            yield Target(url, None)
    else:
        script = tmp_path_factory.mktemp("script") / "answers.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        with serving(model_path=f"script:{script}", api_key=request.param) as url:
            yield Target(url, request.param)


def test_nothing_contradicts_the_document(target: Target, tmp_path: Path) -> None:
    assert_clean(run(target.url, tmp_path, key=target.key, max_examples=50), target)


@pytest.mark.sweep
def test_nothing_contradicts_the_document_in_many_examples(target: Target, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    assert_clean(run(target.url, tmp_path, key=target.key, max_examples=1000, seed=seed), target)


def assert_clean(done: Run, target: Target) -> None:
    """No failure, error or warning, and everything that can be looked at was looked at."""
    assert done.exit_code == 0, done.output
    report = done.report
    assert (report["stop_reason"], report["complete"], report["errors"], report["failures"]) == ("completed", True, [], [])
    assert set(report["warnings"]) <= set(WARNINGS)
    assert not any(report["warnings"].values()), report["warnings"]
    assert {phase: told["status"] for phase, told in report["phases"].items()} == dict.fromkeys(PHASES, "success")
    assert report["operations"]["tested"] == len(OPERATIONS)

    expected = CHECKS - (set() if target.key else AUTH_CHECKS)
    for phase in PHASES:
        assert set(done.checks[phase]) - OUR_CHECKS == expected, (phase, "a check has come or gone: look at it, then list it")
    assert set().union(*done.checks.values()) >= OUR_CHECKS

    seen = done.answers
    assert {operation for operation, _, _ in seen} >= OPERATIONS
    for operation in GENERATION:
        assert min(seen[operation, 200, kind] for kind in ("application/json", "text/event-stream")) >= 50
        assert seen[operation, 400, "application/json"] >= 50
    refused = sum(count for (_, status, _), count in seen.items() if status == 401)
    assert (refused > 0) == (target.key is not None)
    assert report["filtered"] <= report["test_cases"]["generated"] / 20  # what no schema can tell, filter_failure says
