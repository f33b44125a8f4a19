"""A script is read whole; whatever is wrong with it is one line that names file, entry, item and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maple_spec.checkpoints.script import LONGEST_DELAY, End, Entry, read_script
from maple_spec.errors import CheckpointError


def read(folder: Path, content: Any) -> tuple[Entry, ...]:
    path = folder / "answers.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_script(path)


def test_an_entry_needs_its_output_alone(tmp_path: Path) -> None:
    assert read(tmp_path, [{"output": []}]) == (Entry(output=(), when=b"", after_tool=None, end=End.EOS, delay=0.0),)


def test_every_field_is_read_and_the_order_is_kept(tmp_path: Path) -> None:
    full = {
        "when": "Wetter in Köln",
        "after_tool": "5 °C",
        "output": ["one item", " = one token", "", {"hex": "f09f"}, {"hex": "99 82"}],
        "end": "length",
        "delay_ms": 2.5,
    }
    assert read(tmp_path, [full, {"output": ["x"], "end": "error"}]) == (
        Entry(
            output=(b"one item", b" = one token", b"", b"\xf0\x9f", b"\x99\x82"),
            when="Wetter in Köln".encode(),
            after_tool="5 °C".encode(),
            end=End.LENGTH,
            delay=0.0025,
        ),
        Entry(output=(b"x",), end=End.ERROR),
    )


def test_an_output_that_is_one_text_has_a_token_for_each_character(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, [{"output": "né🙂"}])
    assert entry.output == (b"n", "é".encode(), "🙂".encode())


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, '\ufeff[{"output": ["x"]}]') == (Entry(output=(b"x",)),)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", " cannot be read as JSON (Expecting value: line 1 column 1 (char 0))"),
        ([], ' must hold a list of at least one entry, as [{"output": ["Hello"]}]'),
        ({"output": ["x"]}, ' must hold a list of at least one entry, as [{"output": ["Hello"]}]'),
        (["x"], ' entry 1 must be an object with an "output", not "x"'),
        ([{"output": []}, {"when": "a"}], " entry 2: output is missing: what the model emits, a list of texts"),
        ([{"output": None}], " entry 1: output must be a list of items or a text, not null"),
        ([{"output": ["a", 3]}], ' entry 1: output item 2 must be a text or {"hex": "f09f"}, not 3'),
        ([{"output": [{}]}], ' entry 1: output item 1 must be a text or {"hex": "f09f"}, not {}'),
        ([{"output": [{"hex": "f"}]}], ' entry 1: output item 1: hex must be pairs of hexadecimal digits, not "f"'),
        ([{"output": [{"hex": 9}]}], " entry 1: output item 1: hex must be pairs of hexadecimal digits, not 9"),
        ([{"output": [], "when": None}], " entry 1: when must be a text, not null"),
        ([{"output": [], "after_tool": ["x"]}], ' entry 1: after_tool must be a text, not ["x"]'),
        ([{"output": [], "end": "stop"}], ' entry 1: end must be one of eos, length, error, not "stop"'),
        ([{"output": [], "end": {}}], " entry 1: end must be one of eos, length, error, not {}"),
        ([{"output": [], "delay_ms": -1}], f" entry 1: delay_ms must be a number from 0 to {LONGEST_DELAY}, not -1"),
        ([{"output": [], "delay_ms": True}], f" entry 1: delay_ms must be a number from 0 to {LONGEST_DELAY}, not true"),
        ([{"output": [], "delay_ms": "9"}], f' entry 1: delay_ms must be a number from 0 to {LONGEST_DELAY}, not "9"'),
        ('[{"output": [], "delay_ms": NaN}]', f" entry 1: delay_ms must be a number from 0 to {LONGEST_DELAY}, not NaN"),
        ('[{"output": [], "delay_ms": 1e999}]', f" entry 1: delay_ms must be a number from 0 to {LONGEST_DELAY}, not Infinity"),
        (
            [{"output": [], "delay": 5}],
            ' entry 1: "delay" is no field; there are when, after_tool, output, end and delay_ms',
        ),
        (
            '[{"output": ["\\ud83d"]}]',
            " entry 1: output item 1 must be text without half a surrogate pair "
            '(bytes are written as {"hex": "f09f"}), not "\\ud83d"',
        ),
    ],
)
def test_a_fault_is_one_line_that_names_its_place(tmp_path: Path, content: Any, fault: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        read(tmp_path, content)
    assert str(raised.value).removeprefix(f"{tmp_path}/answers.json:") == fault


@pytest.mark.parametrize("content", ["[" * 100_000, b"\xff\xfe", '[{"output": [' + "1" * 5000 + "]}]"])
def test_what_no_json_reader_takes_is_one_line_too(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "answers.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError, match=r"^[^\n]*answers\.json: cannot be read as JSON \([^\n]+\)$"):
        read_script(path)


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as raised:
        read(tmp_path, [{"output": [], "end": "x" * 1000}])
    assert len(str(raised.value)) < len(str(tmp_path)) + 200


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.json: no such file; name a script, a JSON list of entries"):
        read_script(tmp_path / "absent.json")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        read_script(tmp_path)
