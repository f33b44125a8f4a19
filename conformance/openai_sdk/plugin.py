"""The pytest plugin that holds the SDK's suite to the declared deviations.

A test of a declared group passes on exactly the declared answer, and on nothing else: an answer of another status, param or
code fails it, and so does success. A group that matches another number of tests than it says ends the run before it begins.
With --without-refused-fields only the tests whose refused fields are known are run. Each field is first seen to be refused by
its name, then the request goes out without them, and the test must pass as its authors wrote it.
"""

from __future__ import annotations

import fnmatch
import inspect
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.resources import chat, completions

Deviation = dict[str, Any]

DECLARED = pytest.StashKey[Deviation | None]()
CREATORS = (
    chat.completions.Completions,
    chat.completions.AsyncCompletions,
    completions.Completions,
    completions.AsyncCompletions,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the deviations are read, where the outcomes are written, and which of the two passes it is."""
    parser.addoption("--deviations", type=Path, required=True)
    parser.addoption("--outcomes", type=Path, required=True)
    parser.addoption("--without-refused-fields", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to keep the outcomes."""
    config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test learns which deviation is declared for it."""
    deviations: list[Deviation] = json.loads(config.getoption("--deviations").read_text(encoding="utf-8"))
    counts = [0] * len(deviations)
    for item in items:
        fitting = [index for index, one in enumerate(deviations) if fnmatch.fnmatchcase(item.nodeid, one["tests"])]
        if len(fitting) > 1:
            raise pytest.UsageError(f"{item.nodeid} is declared more than once")
        for index in fitting:
            counts[index] += 1
        item.stash[DECLARED] = deviations[fitting[0]] if fitting else None
    for deviation, count in zip(deviations, counts, strict=True):
        if count != deviation["count"]:
            raise pytest.UsageError(f"{deviation['tests']} matches {count} tests and not {deviation['count']}")
    if config.getoption("--without-refused-fields"):
        chosen = [item for item in items if (item.stash[DECLARED] or {}).get("refused_fields")]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test; where a deviation is declared, its answer is what must come."""
    declared = pyfuncitem.stash[DECLARED]
    if declared is None or pyfuncitem.config.getoption("--without-refused-fields"):
        return (yield)
    try:
        yield
    except openai.APIStatusError as error:
        answer = {"status": error.status_code, "param": error.param, "code": error.code}
        if answer != declared["answer"]:
            pytest.fail(f"declared is {declared['answer']}, and {answer} came: {declared['reason']}")
        pyfuncitem.user_properties.append(("deviated", True))
        return True
    pytest.fail(f"it passes, and {declared['answer']} was declared: {declared['reason']}")


@pytest.fixture(autouse=True)
def refused_fields_are_refused_and_left_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second pass, `create` does without the fields, after it has seen each of them refused."""
    if request.config.getoption("--without-refused-fields"):
        for creator in CREATORS:
            monkeypatch.setattr(creator, "create", _lenient(creator.create, request.node.stash[DECLARED]["refused_fields"]))


def _lenient(create: Callable[..., Any], refused: list[str]) -> Callable[..., Any]:
    def sent(fields: dict[str, Any], one: str | None = None) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name not in refused or name == one}

    def synchronous(self: Any, **fields: Any) -> Any:
        for name in refused:
            with _refusal(name):
                create(self, **sent(fields, name))
        return create(self, **sent(fields))

    async def asynchronous(self: Any, **fields: Any) -> Any:
        for name in refused:
            with _refusal(name):
                await create(self, **sent(fields, name))
        return await create(self, **sent(fields))

    return asynchronous if inspect.iscoroutinefunction(inspect.unwrap(create)) else synchronous


@contextmanager
def _refusal(name: str) -> Iterator[None]:
    """What is sent in here is refused, and the refusal names the field."""
    with pytest.raises(openai.BadRequestError) as refusal:
        yield
    assert refusal.value.param == name, refusal.value


class Outcomes:
    """What came of every test: passed, deviated, or else; written as JSON at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is what its call says, or the first of its phases that does not pass."""
        if self.outcomes.get(report.nodeid, "passed") == "passed" and (report.when == "call" or not report.passed):
            deviated = report.passed and ("deviated", True) in report.user_properties
            self.outcomes[report.nodeid] = "deviated" if deviated else report.outcome

    def pytest_sessionfinish(self) -> None:
        """Write them."""
        told = {"openai": openai.__version__, "tests": self.outcomes}
        self.path.write_text(json.dumps(told), encoding="utf-8")
