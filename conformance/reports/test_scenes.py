"""The scenes, and that no case of the catalogue is left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from conformance.reports.catalogue import data
from conformance.reports.conftest import TargetOf
from conformance.reports.scenes import SCENES

CASES: list[dict[str, Any]] = data("scenes")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_scene_ends_as_it_must(target_of: TargetOf, case: dict[str, Any]) -> None:
    SCENES[case["id"]](target_of(case.get("server", "given")))


def test_every_one_of_the_92_cases_is_played_once() -> None:
    """Outputs and requests are played by the tests that draw on them; scenes need a function each."""
    kinds = {kind: [case["id"] for case in data(kind)] for kind in ("outputs", "requests", "scenes")}
    assert {kind: len(ids) for kind, ids in kinds.items()} == {"outputs": 31, "requests": 48, "scenes": 13}
    assert max(Counter(case_id for ids in kinds.values() for case_id in ids).values()) == 1
    assert SCENES.keys() == set(kinds["scenes"])
    assert all(case["law"].endswith(".") for kind in kinds for case in data(kind))
