"""The judge judged: a suite of a few lines, each test of it a case that the plugin must tell apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.openai_sdk.suite_run import Run, run

SUITE = """
import httpx2
import openai
import pytest


def refuse(status, param, code):
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://localhost"))
    raise openai.APIStatusError("no", response=response, body={"param": param, "code": code})


def test_declared_as_declared():
    refuse(404, "model", "model_not_found")


def test_declared_of_another_status():
    refuse(400, "model", "model_not_found")


def test_declared_of_another_param():
    refuse(404, None, "model_not_found")


def test_declared_of_another_code():
    refuse(404, "model", None)


def test_declared_and_passing():
    pass


def test_declared_and_broken():
    raise ValueError


def test_plain():
    pass


def test_plain_and_refused():
    refuse(404, "model", "model_not_found")


@pytest.fixture
def broken():
    raise ValueError


def test_plain_and_not_set_up(broken):
    pass
"""

DECLARED: dict[str, Any] = {
    "tests": "test_few.py::test_declared_*",
    "count": 6,
    "answer": {"status": 404, "param": "model", "code": "model_not_found"},
    "reason": "so says the reference",
}

OUTCOMES = {
    "declared_as_declared": "deviated",
    "declared_of_another_status": "failed",
    "declared_of_another_param": "failed",
    "declared_of_another_code": "failed",
    "declared_and_passing": "failed",
    "declared_and_broken": "failed",
    "plain": "passed",
    "plain_and_refused": "failed",
    "plain_and_not_set_up": "failed",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = "session"\n')
    (tmp_path / "test_few.py").write_text(SUITE)
    return tmp_path


def judged(folder: Path, deviations: list[dict[str, Any]]) -> Run:
    """What the plugin makes of the suite."""
    (folder / "deviations.json").write_text(json.dumps(deviations))
    return run(folder, ["test_few.py"], "http://nowhere", folder / "outcomes.json", deviations=folder / "deviations.json")


def test_a_declared_deviation_passes_on_exactly_its_answer(folder: Path) -> None:
    done = judged(folder, [DECLARED])
    assert done.tests == {f"test_few.py::test_{name}": outcome for name, outcome in OUTCOMES.items()}
    assert done.exit_code == pytest.ExitCode.TESTS_FAILED
    assert "it passes, and" in done.output
    assert "so says the reference" in done.output


@pytest.mark.parametrize(
    ("deviations", "said"),
    [
        ([DECLARED, {**DECLARED, "tests": "test_few.py::test_gone"}], "test_few.py::test_gone matches 0 tests and not 6"),
        ([{**DECLARED, "count": 5}], "test_few.py::test_declared_* matches 6 tests and not 5"),
        ([DECLARED, DECLARED], "test_declared_as_declared is declared more than once"),
    ],
    ids=["an entry that matches nothing", "another number", "twice"],
)
def test_deviations_that_do_not_fit_the_suite_end_the_run(folder: Path, deviations: list[dict[str, Any]], said: str) -> None:
    done = judged(folder, deviations)
    assert (done.exit_code, done.tests) == (pytest.ExitCode.USAGE_ERROR, {})
    assert said in done.output
