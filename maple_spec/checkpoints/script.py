"""A script in place of a model: a JSON file that says what is answered, read whole and checked when the server starts.

    script = [ entry, ... ]
    entry  = {"output": [ item, ... ] or a text, "when"?, "after_tool"?, "end"?, "delay_ms"?}
    item   = a text, or {"hex": bytes as hexadecimal digits}; it is one token

Every fault is one line that names the file, the entry and the item, each counted from 1, and the field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from maple_spec.errors import CheckpointError

LONGEST_DELAY = 86_400_000  # a day, in milliseconds


class End(StrEnum):
    """How a played output ends."""

    EOS = "eos"
    LENGTH = "length"  # as if the cap of tokens were reached
    ERROR = "error"  # as if the model crashed


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer and the requests that it fits.

    when: bytes that the last user message or the raw prompt holds. after_tool: bytes that the tool results hold with which the
    conversation ends; None: whether there are any plays no part. delay: seconds before each token.
    """

    output: tuple[bytes, ...]
    when: bytes = b""
    after_tool: bytes | None = None
    end: End = End.EOS
    delay: float = 0.0


def read_script(path: Path) -> tuple[Entry, ...]:
    """The entries of a script, in order. Raises CheckpointError where the file is missing or anything in it is wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; name a script, a JSON list of entries") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({' '.join(str(error).split())})") from None
    if not isinstance(content, list) or not content:
        raise CheckpointError(f"{path}: must hold a list of at least one entry, as {_shown([{'output': ['Hello']}])}")
    return tuple(_Place(f"{path}: entry {number}").entry(value) for number, value in enumerate(content, start=1))


class _Place:
    """Where in the script the reading is; what is wrong is told from here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _wrong(self, field: str, wanted: str, value: Any) -> NoReturn:
        raise CheckpointError(f"{self._name}: {field} must be {wanted}, not {_shown(value)}")

    def entry(self, value: Any) -> Entry:
        if not isinstance(value, dict):
            raise CheckpointError(f'{self._name} must be an object with an "output", not {_shown(value)}')
        given = dict(value)
        if "output" not in given:
            raise CheckpointError(f"{self._name}: output is missing: what the model emits, a list of texts")
        entry = Entry(
            output=self._output(given.pop("output")),
            when=self._text("when", given.pop("when", "")),
            after_tool=self._text("after_tool", given.pop("after_tool")) if "after_tool" in given else None,
            end=self._end(given.pop("end", End.EOS)),
            delay=self._milliseconds(given.pop("delay_ms", 0)) / 1000,
        )
        if given:
            raise CheckpointError(
                f"{self._name}: {_shown(next(iter(given)))} is no field; there are when, after_tool, output, end and delay_ms"
            )
        return entry

    def _output(self, value: Any) -> tuple[bytes, ...]:
        if not isinstance(value, list | str):
            self._wrong("output", "a list of items or a text", value)
        return tuple(self._item(f"output item {number}", item) for number, item in enumerate(value, start=1))

    def _item(self, field: str, value: Any) -> bytes:
        if isinstance(value, str):
            return self._text(field, value)
        if not isinstance(value, dict) or set(value) != {"hex"}:
            self._wrong(field, 'a text or {"hex": "f09f"}', value)
        try:
            return bytes.fromhex(value["hex"])
        except (TypeError, ValueError):
            self._wrong(f"{field}: hex", "pairs of hexadecimal digits", value["hex"])

    def _text(self, field: str, value: Any) -> bytes:
        if not isinstance(value, str):
            self._wrong(field, "a text", value)
        try:
            return value.encode()
        except UnicodeEncodeError:
            self._wrong(field, 'text without half a surrogate pair (bytes are written as {"hex": "f09f"})', value)

    def _end(self, value: Any) -> End:
        if value not in list(End):
            self._wrong("end", "one of " + ", ".join(End), value)
        return End(value)

    def _milliseconds(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_DELAY:
            self._wrong("delay_ms", f"a number from 0 to {LONGEST_DELAY}", value)
        return float(value)


def _shown(value: Any) -> str:
    """A value as the script spells it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
