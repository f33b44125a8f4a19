"""The SDK's suite, as published and then without the fields that the reference refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.conftest import serving
from conformance.openai_sdk.release import Release, fetched
from conformance.openai_sdk.suite_run import HERE, run

SUITE: dict[str, Any] = json.loads((HERE / "suite.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The pinned release, or the one of OPENAI_SDK_VERSION."""
    version = os.environ.get("OPENAI_SDK_VERSION") or SUITE["version"]
    sha256 = SUITE["sha256"] if version == SUITE["version"] else None
    return fetched(version, sha256, tmp_path_factory.mktemp("openai"))


@pytest.fixture(scope="module")
def url(release: Release) -> Iterator[str]:
    """A server with the key and the model id that the suite has."""
    given = os.environ.get("CONFORMANCE_URL")
    if given is None:
        with serving(model_id=release.model, api_key=release.key, max_new_tokens="8") as started:
            yield started
    elif os.environ.get("CONFORMANCE_KEY") == release.key:
        yield given.rstrip("/")
    else:
        pytest.skip(f"the suite's key is {release.key!r}, and it asks for the model {release.model!r}")


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], "as_published"), (["--without-refused-fields"], "without_refused_fields")],
    ids=["as published", "without the refused fields"],
)
def test_the_sdk_s_own_suite_passes_but_for_the_declared_deviations(
    release: Release, url: str, tmp_path: Path, options: list[str], expected: str
) -> None:
    done = run(release.folder, SUITE["files"], url, tmp_path / "outcomes.json", *options)
    print(f"openai {done.version}: {dict(done.counts)}")
    assert done.exit_code == 0, done.output
    assert done.version == release.version  # the sdist's own SDK, and no other that is installed
    assert done.counts == SUITE[expected], done.output
