"""Sampling fields, caps and stop strings."""

from __future__ import annotations

from typing import Any

import pytest

from maple_spec.settings import Settings, default_settings
from maple_spec.types import SamplingParams
from maple_spec.wire.parameters import sampling_params, stop_strings

DEFAULTS = default_settings()
NULLS = dict.fromkeys(
    ("temperature", "top_p", "top_k", "repetition_penalty", "seed", "max_tokens", "max_completion_tokens", "stop")
)


@pytest.mark.parametrize("body", [{}, NULLS])
def test_what_is_not_given_comes_from_the_settings(body: dict[str, Any]) -> None:
    assert sampling_params(body, DEFAULTS) == SamplingParams()
    told = Settings(temperature=0.1, top_p=0.2, top_k=3, max_new_tokens=4)
    assert sampling_params(body, told) == SamplingParams(temperature=0.1, top_p=0.2, top_k=3, max_new_tokens=4)


def test_what_is_given_is_taken() -> None:
    body = {"temperature": 0, "top_p": 1, "top_k": 7, "repetition_penalty": 2, "seed": -5, "max_tokens": 9}
    assert sampling_params(body, DEFAULTS) == SamplingParams(0.0, 1.0, 7, 2.0, -5, 9)


@pytest.mark.parametrize("top_k", [0, -1])
def test_0_and_minus_1_both_mean_no_top_k(top_k: int) -> None:
    assert sampling_params({"top_k": top_k}, DEFAULTS).top_k == 0
    assert sampling_params({}, Settings(top_k=top_k)).top_k == 0


@pytest.mark.parametrize(
    ("body", "cap"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": 10**100}, 100),
        ({}, 50),
    ],
)
def test_the_newer_cap_comes_first_and_the_limit_holds_for_all(body: dict[str, Any], cap: int) -> None:
    assert sampling_params(body, Settings(max_new_tokens=50, max_new_tokens_limit=100)).max_new_tokens == cap


def test_the_default_cap_is_held_to_the_limit_too() -> None:
    assert sampling_params({}, Settings(max_new_tokens=50, max_new_tokens_limit=10)).max_new_tokens == 10


@pytest.mark.parametrize(("given", "taken"), [(10**400, 1e30), (5e-324, 1e-30), (1.2, 1.2)])
def test_a_penalty_beyond_all_measure_is_held_to_what_logits_can_bear(given: float, taken: float) -> None:
    assert sampling_params({"repetition_penalty": given}, DEFAULTS).repetition_penalty == taken


@pytest.mark.parametrize(
    ("stop", "strings"),
    [(None, ()), ("", ()), ([], ()), ("x", ("x",)), (["a", "", "b"], ("a", "b")), ("\nUser:", ("\nUser:",))],
)
def test_stop_is_a_string_or_a_list_and_empty_ones_do_not_count(stop: Any, strings: tuple[str, ...]) -> None:
    assert stop_strings({"stop": stop}) == strings
