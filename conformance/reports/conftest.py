"""The servers that cases ask for, each started once for the whole run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest

from conformance.conftest import serving_process
from conformance.reports import outputs
from conformance.reports.catalogue import data
from conformance.reports.target import Target

TargetOf = Callable[[str], Target]


@pytest.fixture(scope="session")
def given(base_url: str) -> Target:
    """The server under test, whatever its settings are."""
    return Target(base_url, os.environ.get("CONFORMANCE_KEY"))


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server that plays our script, with the settings of servers.json."""
    if os.environ.get("CONFORMANCE_URL"):
        pytest.skip("the case needs a server of our own settings: those of servers.json")
    script = tmp_path_factory.mktemp("reports") / "script.json"
    script.write_text(json.dumps([*outputs.script(), *data("script")]), encoding="utf-8")
    variables = {name: value.replace("SCRIPT", str(script)) for name, value in data("servers")["scripted"].items()}
    settings = {name.removeprefix("MAPLE_").lower(): value for name, value in variables.items()}
    with serving_process(**settings) as (url, pid):
        yield Target(url, variables["MAPLE_API_KEY"], pid)


@pytest.fixture
def target_of(request: pytest.FixtureRequest) -> TargetOf:
    """The server of that name, which is started when it is first asked for."""
    return request.getfixturevalue
