"""The contract as tests use it: openapi.yaml with its references resolved, and values held against its schemas."""

from __future__ import annotations

import functools
from typing import Any

from connexion.json_schema import Draft4ResponseValidator
from connexion.spec import Specification

from maple_spec.server.contract import spec_path


@functools.cache
def contract() -> Any:
    """The document, its references resolved."""
    return Specification.load(spec_path())


def schema(name: str) -> dict[str, Any]:
    """A schema of the components."""
    found: dict[str, Any] = contract()["components"]["schemas"][name]
    return found


def assert_fits(value: Any, name: str) -> None:
    """Fail where the value does not fit that schema."""
    faults = [
        f"{list(fault.absolute_path)}: {fault.message}" for fault in Draft4ResponseValidator(schema(name)).iter_errors(value)
    ]
    assert not faults, (faults, value)


def body_schema(path: str) -> dict[str, Any]:
    """The schema of a request's body."""
    found: dict[str, Any] = contract()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return found
