"""What the scripted server plays for outputs.json: each output as it is cut there, as finely as can be, and in one piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.reports.catalogue import data

CASES: list[dict[str, Any]] = data("outputs")
FORMS = ("as cut", "one character a piece", "in one piece")


def question(case: Mapping[str, Any], form: str) -> str:
    """The user's message that the script answers with this output."""
    return f"{case['id']}, {form}"


def script() -> Iterator[dict[str, Any]]:
    """The entries of the script."""
    for case in CASES:
        for form in FORMS:
            yield {"when": question(case, form), "output": pieces(case["output"], form), "end": case.get("end", "eos")}


def pieces(output: list[Any], form: str) -> list[Any]:
    """The output in another form; bytes stay bytes, and are their own finest cut."""
    if form == "as cut":
        return output
    whole = b"".join(bytes.fromhex(piece["hex"]) if isinstance(piece, dict) else piece.encode() for piece in output)
    if form == "in one piece":
        return [{"hex": whole.hex()}]
    if any(isinstance(piece, dict) for piece in output):
        return [{"hex": f"{byte:02x}"} for byte in whole]
    return list(whole.decode())
