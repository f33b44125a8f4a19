"""The parser's laws, and the reported failures that it must not repeat."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maple_spec.text import Detokenizer, OutputParser, StopMatcher
from maple_spec.types import ContentDelta, Delta, FinishReason, ReasoningDelta, ToolCallDelta

CASES = json.loads((Path(__file__).parents[2] / "conformance" / "reports" / "outputs.json").read_text(encoding="utf-8"))
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'

# Texts made of what the grammar is made of, so that nearly every one comes close to a marker, a block or a string in a block.
FRAGMENTS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<", "</", "<tool", "_call>", "</thi", "nk>", "think>"),
    *(
        '{"name": "f", "arguments": {"a": 1}}',
        '{"name":"f"',
        ',"arguments":',
        "{}",
        '{"a":',
        '"',
        "\\",
        '\\"',
        "}",
        "{",
        "[",
        "]",
    ),
    *(":", ",", "1", "-0.5e3", "null", "true", '"\\u00e9"', '""', " ", "\n", "\t", "\u00a0", "a", "word", "é", "🙂", "\ufffd"),
    *(CALL, '<tool_call>{"name": "g"}</tool_call>', '<tool_call>{"a": "</tool_call>"}</tool_call>'),
)
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=25).map("".join)


@dataclass(frozen=True)
class Parsed:
    """A whole output: neighbouring deltas of one kind joined."""

    deltas: tuple[Delta, ...]
    finish_reason: FinishReason | None

    @property
    def reasoning(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, ReasoningDelta))

    @property
    def content(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, ContentDelta))

    @property
    def tool_calls(self) -> list[ToolCallDelta]:
        return [delta for delta in self.deltas if isinstance(delta, ToolCallDelta)]


def join(deltas: Iterable[Delta]) -> tuple[Delta, ...]:
    joined: list[Delta] = []
    for kind, run in groupby(deltas, type):
        same = list(run)
        joined += same if kind is ToolCallDelta else [kind("".join(delta.text for delta in same))]
    return tuple(joined)


def parse(
    pieces: Iterable[str], thinking: bool = True, parse_tool_calls: bool = True, end: FinishReason = FinishReason.STOP
) -> Parsed:
    parser = OutputParser(thinking, parse_tool_calls)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.finish(end)
    assert all(isinstance(delta, ToolCallDelta) or delta.text for delta in deltas), "a delta is empty"
    return Parsed(join(deltas), parser.finish_reason)


def cut(text: str, places: Iterable[int]) -> list[str]:
    bounds = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[begin:end] for begin, end in pairwise(bounds)]


@given(texts, st.lists(st.integers(min_value=0), max_size=20), st.booleans(), st.booleans())
@example("<tool_call>{<tool_call>", [], False, True)
def test_any_cutting_of_any_text_gives_the_same_result(text: str, places: list[int], thinking: bool, tools: bool) -> None:
    whole = parse([text], thinking, tools)
    assert parse(cut(text, places), thinking, tools) == whole
    assert parse(text, thinking, tools) == whole, "one character a piece"


@given(texts, st.booleans())
def test_nothing_is_lost_but_markers_of_parsed_blocks_and_white_space(text: str, thinking: bool) -> None:
    """The text is the deltas one after the other, with nothing but markers between; white space is looked at below."""
    parsed = parse([text], thinking)
    expected = "(?:<think>)?" if not thinking or parsed.reasoning else "(?:<think>)?(?:</think>)?"
    if not any(isinstance(delta, ReasoningDelta) for delta in parsed.deltas):
        expected += "(?:</think>)?"
    for delta in parsed.deltas:
        if isinstance(delta, ToolCallDelta):
            expected += r"<tool_call>\{.*?\}</tool_call>"
        else:
            expected += re.escape(without_white_space(delta.text))
            expected += "(?:</think>)?" if isinstance(delta, ReasoningDelta) else ""
    assert re.fullmatch(expected, without_white_space(text), re.DOTALL)


def without_white_space(text: str) -> str:
    return "".join(text.split())


@given(texts)
def test_without_markers_everything_is_text_at_once_but_white_space_at_its_end(text: str) -> None:
    text = text.replace("<", "(")
    parser = OutputParser(thinking=False)
    assert "".join(delta.text for delta in parser.feed("x" + text)) == ("x" + text).rstrip()  # type: ignore[union-attr]
    assert "".join(delta.text for delta in parser.finish(FinishReason.STOP)) == text[len(("x" + text).rstrip()) - 1 :]  # type: ignore[union-attr]


@given(texts, st.booleans())
def test_without_tool_parsing_no_call_is_found_and_blocks_stay(text: str, thinking: bool) -> None:
    parsed = parse([text], thinking, parse_tool_calls=False)
    assert parsed.tool_calls == []
    if not thinking and not text.lstrip().startswith("<think>"):
        assert parsed.content == text


@given(st.text(), st.text(), st.booleans())
def test_text_is_held_back_only_while_it_might_be_a_marker(before: str, after: str, thinking: bool) -> None:
    """A "<" that the next character proves harmless leaves with that character."""
    parser = OutputParser(thinking)
    fed = "x" + before.replace("<", "") + "<" + "y"
    shown = "".join(delta.text for delta in parser.feed(fed))  # type: ignore[union-attr]
    assert shown == fed


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


@given(
    st.text(min_size=1).filter(lambda name: name.isprintable()),
    st.dictionaries(st.text(), json_values, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_every_call_comes_out_with_its_arguments_as_they_were_written(
    name: str, arguments: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    written = json.dumps(arguments, ensure_ascii=ascii_only, indent=indent)
    body = f'{{"name": {json.dumps(name)}, "arguments": {written}}}'
    assert parse([f"t</think>a<tool_call>\n{body}\n</tool_call>b"]).deltas == (
        ReasoningDelta("t"),
        ContentDelta("a"),
        ToolCallDelta(name, written),
        ContentDelta("b"),
    )


@pytest.mark.parametrize(
    ("body", "name_and_arguments"),
    [
        ('{"name": "f", "arguments": {}}', ("f", "{}")),
        ('{"arguments": {"a" :  1}, "name": "f"}', ("f", '{"a" :  1}')),
        ('{"name": "f"}', ("f", "{}")),
        ('{"name": "f", "arguments": null}', ("f", "{}")),
        ('{"name": "f", "arguments": ""}', ("f", "{}")),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', ("f", '{"a": 1}')),
        ('{"name": "f", "parameters": {"a": 1}}', ("f", '{"a": 1}')),
        ('{"id": "1", "type": "function", "name": "f", "arguments": {}}', ("f", "{}")),
        ('{"n\\u0061me": "\\u0066", "arguments": {}}', ("f", "{}")),
        ('{"name": "f", "name": "g", "arguments": {}}', ("g", "{}")),
        ('{"name": "f", "city": "Oslo"}', None),  # a call without its values would do something else
        ('{"name": "f", "arguments": [1]}', None),
        ('{"name": "f", "arguments": 3}', None),
        ('{"name": "f", "arguments": "Oslo"}', None),
        ('{"name": "", "arguments": {}}', None),
        ('{"name": 3, "arguments": {}}', None),
        ('{"name": "\\ud83d", "arguments": {}}', None),  # half an emoji is no text
        ('{"arguments": {}}', None),
        ("{}", None),
        ("", None),
        ('[{"name": "f"}]', None),
        ('{"name": "f"} {"name": "g"}', None),
        ('{"name": "f", "arguments": {"a": NaN}}', None),
        ('{"name": "f", "arguments": {"a": 01}}', None),
        ('{"name": "f", "arguments": {"a": 1,}}', None),
        ('{"name": "f", "arguments": {"a": "\n"}}', None),
        ("{'name': 'f'}", None),
        ('{"name": "f", "arguments": {"a": [1, 2}}', None),
        ('so: {"name": "f"}', None),
        ('{"name": "f"} </think>', None),
    ],
)
def test_a_block_is_a_call_where_it_is_one_object_with_a_name_and_text_otherwise(
    body: str, name_and_arguments: tuple[str, str] | None
) -> None:
    block = f"<tool_call>{body}</tool_call>"
    parsed = parse([block], thinking=False)
    if name_and_arguments is None:
        assert parsed == Parsed((ContentDelta(block),), FinishReason.STOP)
    else:
        assert parsed == Parsed((ToolCallDelta(*name_and_arguments),), FinishReason.TOOL_CALLS)


def test_a_good_block_behind_a_broken_one_is_a_call() -> None:
    parsed = parse(['<tool_call>{"name": oops}</tool_call>\n' + CALL], thinking=False)
    assert parsed.content == '<tool_call>{"name": oops}</tool_call>'
    assert parsed.tool_calls == [ToolCallDelta("f", '{"a": 1}')]


def test_a_think_block_that_the_model_opens_itself_is_reasoning() -> None:
    parsed = parse(["<think>\nhm\n</think>\n\nyes"], thinking=False)
    assert (parsed.reasoning, parsed.content) == ("hm", "yes")


def test_markers_of_the_thought_are_text_in_the_answer() -> None:
    parsed = parse(["a</think>b <think>c</think> d"])
    assert (parsed.reasoning, parsed.content) == ("a", "b <think>c</think> d")


def test_a_call_makes_the_reason_tool_calls_unless_the_cap_cut_the_answer() -> None:
    assert parse([CALL], thinking=False).finish_reason == FinishReason.TOOL_CALLS
    assert parse([CALL], thinking=False, end=FinishReason.LENGTH).finish_reason == FinishReason.LENGTH
    assert parse(["x"], thinking=False).finish_reason == FinishReason.STOP


@pytest.mark.parametrize("text", ["ab</think>c", "<think>a</think>", "</think>", "x" * 9 + "</think></think>"])
def test_reasoning_end_is_where_the_closing_marker_begins(text: str) -> None:
    for pieces in ([text], list(text), cut(text, [3, 5])):
        parser = OutputParser(thinking=True)
        for piece in pieces:
            parser.feed(piece)
        assert parser.reasoning_end == text.index("</think>")


MEGABYTE = 1_000_000
BODY = '<tool_call>{"name":"f","arguments":'
LONG: dict[str, str] = {
    "prose": "We add 2 and 3, so the sum is 5.\n" * (MEGABYTE // 33),
    "angle brackets": "a < b </ <t " * (MEGABYTE // 12),
    "white space": " " * MEGABYTE,
    "calls": CALL * (MEGABYTE // len(CALL)),
    "opening markers": "<tool_call>" * (MEGABYTE // 11),
    "open blocks": "<tool_call>{" * (MEGABYTE // 12),
    "open blocks in strings": '<tool_call>{"' * (MEGABYTE // 13),
    "blocks that are each other's strings": '<tool_call>{":1,' + '":1,' * (MEGABYTE // 4),
    "one long string": BODY + '{"a":"' + "x" * MEGABYTE + '"}}</tool_call>',
    "one long list": BODY + '{"a":[' + "1," * (MEGABYTE // 2),
    "deep brackets": BODY + '{"a":' + "[" * MEGABYTE,
    "deep objects": BODY + '{"":' * (MEGABYTE // 4),
    "many members": BODY + "{" + '"":1,' * (MEGABYTE // 5),
    "many outer members": "<tool_call>{" + '"":1,' * (MEGABYTE // 5),
    "escapes": BODY + '{"a":"' + "\\n" * (MEGABYTE // 2) + '"}}</tool_call>',
}


def takes_less_than(limit: float, run: Callable[[], object]) -> bool:
    """In seconds of processor time, since what else the machine does says nothing about the parser; a second try is granted."""
    for _ in range(2):
        began = time.process_time()
        run()
        if time.process_time() - began < limit:
            return True
    return False


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_megabyte_takes_less_than_a_second_whatever_it_is(text: str) -> None:
    assert takes_less_than(1.0, lambda: parse([text], thinking=False))


@pytest.mark.parametrize("name", ["prose", "white space", "one long string"])
def test_a_megabyte_in_tokens_takes_little_longer(name: str) -> None:
    tokens = [LONG[name][begin : begin + 4] for begin in range(0, MEGABYTE, 4)]
    assert takes_less_than(2.0, lambda: parse(tokens, thinking=False))


def pieces_of(case: dict[str, Any], form: str) -> list[str]:
    """The case's output as cut, one character a piece, or in one piece; token bytes become text on the way."""
    detokenizer = Detokenizer()
    pieces = [piece if isinstance(piece, str) else detokenizer.feed(bytes.fromhex(piece["hex"])) for piece in case["output"]]
    pieces.append(detokenizer.finish())
    return {"as cut": pieces, "by character": list("".join(pieces)), "whole": ["".join(pieces)]}[form]


@pytest.mark.parametrize("form", ["as cut", "by character", "whole"])
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_reported_failures_do_not_happen_here(case: dict[str, Any], form: str) -> None:
    """Over HTTP the same cases are played by conformance/reports."""
    asked, expected = case.get("request", {}), case["expected"]
    stops = asked.get("stop", [])
    stop = StopMatcher([stops] if isinstance(stops, str) else stops)
    passed = [stop.feed(piece) for piece in pieces_of(case, form)]
    passed.append(stop.finish())
    thinking = asked.get("chat_template_kwargs", {}).get("enable_thinking", True)
    end = FinishReason.LENGTH if case.get("end") == "length" and not stop.matched else FinishReason.STOP
    parsed = parse(passed, thinking, asked.get("tool_choice") != "none", end)
    assert parsed.reasoning.strip() == (expected["reasoning"] or "").strip()
    assert parsed.content.strip() == (expected["content"] or "").strip()
    calls = [{"name": call.name, "arguments": call.arguments} for call in parsed.tool_calls]
    assert calls == expected["tool_calls"]
    assert parsed.finish_reason == expected["finish_reason"]
