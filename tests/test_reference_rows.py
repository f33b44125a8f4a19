"""Each sentence of the API reference names the tests that hold it (reference_rows.json), and these tests exist."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = json.loads((ROOT / "tests" / "reference_rows.json").read_text(encoding="utf-8"))


@cache
def functions(file: str) -> set[str]:
    """The tests of a file."""
    return {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


@cache
def cases(file: str) -> str:
    """Where the cases of a file's tests are written: in the file itself, or in the data beside it."""
    path = ROOT / file
    beside = path.parent.glob("*.json") if path.parent.name == "reports" else ()
    return "".join(source.read_text(encoding="utf-8") for source in (path, *beside))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["row"][:60])
def test_a_sentence_of_the_reference_is_held_by_tests_that_exist(row: dict[str, list[str]]) -> None:
    assert row["held_by"]
    for test in row["held_by"]:
        named = re.fullmatch(r"([\w/]+\.py)::(test_\w+)(?:\[(.+)\])?", test)
        assert named, test
        file, function, case = named.groups()
        assert function in functions(file), f"{file} has no {function}"
        assert case is None or json.dumps(case) in cases(file), f"{function} has no case {case!r}"
