"""A stop string ends the text exactly where it begins, however the text is cut, and holds nothing else back."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.text import StopMatcher

# Few letters, so that stop strings begin, overlap and nearly appear everywhere.
texts = st.text("ab\n", max_size=30)
stop_lists = st.lists(st.text("ab\n", max_size=5), max_size=4)


def passed(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    text = "".join(matcher.feed(piece) for piece in pieces)
    return text + matcher.finish(), matcher.matched


def by_the_book(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text up to the stop string that is complete first; of several complete at once, the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


@given(texts, stop_lists, st.lists(st.integers(0, 30), max_size=8))
def test_any_cutting_gives_the_text_up_to_the_first_stop_string(text: str, stops: list[str], places: list[int]) -> None:
    bounds = sorted({0, len(text), *(min(place, len(text)) for place in places)})
    pieces = [text[begin:end] for begin, end in pairwise(bounds)]
    assert passed(pieces, stops) == by_the_book(text, stops)
    assert passed(list(text), stops) == by_the_book(text, stops)


@given(texts, stop_lists)
def test_only_what_might_begin_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for end, character in enumerate(text, 1):
        shown += matcher.feed(character)
        if matcher.matched:
            return
        begun = [size for stop in stops for size in range(len(stop)) if text[:end].endswith(stop[:size])]
        assert shown == text[: end - max(begun, default=0)]


@pytest.mark.parametrize("stop", ["", " ", "\n\n", "🙂", "</think>"])
def test_a_stop_string_may_be_anything_and_an_empty_one_is_ignored(stop: str) -> None:
    assert passed(["a", stop, "b"], [stop]) == (("a", True) if stop else ("ab", False))


def test_nothing_passes_after_a_match() -> None:
    matcher = StopMatcher(["."])
    assert matcher.feed("a.b") == "a"
    assert matcher.feed("c") == ""
    assert matcher.finish() == ""


def test_time_is_linear_for_stop_strings_that_nearly_match_everywhere() -> None:
    matcher = StopMatcher(["a" * 10_000 + "b"])
    began = time.process_time()
    for _ in range(1000):
        matcher.feed("a" * 100)
    assert time.process_time() - began < 2
    assert not matcher.matched
    assert len(matcher.finish()) == 10_000
