"""The written steps that maple-tiny learns are true, each of them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from maple_spec.tiny import arithmetic
from maple_spec.tiny.words import Draw, is_held_out

NUMBER = st.integers(0, 99999)


def assert_true_steps(text: str) -> None:
    """Every `expression=value` in the text holds; a quotient may name its rest."""
    found = re.findall(r"([\d+*/ -]*\d[+*/-][\d+*/-]*)=(\d+)(?: r(\d+))?", text)
    assert found, text
    for expression, value, rest in found:
        term = expression.strip().split(" ")[-1]
        if "/" in term:
            a, b = map(int, term.split("/"))
            assert (a // b, a % b) == (int(value), int(rest)), text
        else:
            numbers = [int(n) for n in re.findall(r"\d+", term)]
            signs = re.findall(r"[+*-]", term)
            total = numbers[0] * numbers[1] if signs[0] == "*" else numbers[0]
            for sign, number in list(zip(signs, numbers[1:], strict=True))[int(signs[0] == "*") :]:
                total += number if sign == "+" else -number
            assert total == int(value), text


@given(NUMBER, NUMBER)
def test_the_steps_of_a_sum_are_true_and_end_in_the_sum(a: int, b: int) -> None:
    steps = arithmetic.add_steps(a, b)
    assert_true_steps(steps)
    assert steps.endswith(f"-> {a + b}")


@given(NUMBER, NUMBER)
def test_the_steps_of_a_difference_are_true_and_end_in_it_below_zero_too(a: int, b: int) -> None:
    steps = arithmetic.subtract_steps(a, b)
    assert_true_steps(steps)
    assert steps.endswith(f"-> {a - b}")


@given(st.integers(0, 999), st.integers(0, 999))
def test_the_steps_of_a_product_are_true_and_end_in_the_product(a: int, b: int) -> None:
    steps = arithmetic.multiply_steps(a, b)
    assert_true_steps(steps)
    assert f"-> {a * b}" in steps.split("\n")[-1]


@given(st.integers(0, 9999), st.integers(1, 9))
def test_the_steps_of_a_quotient_are_true(a: int, b: int) -> None:
    steps = arithmetic.divide_steps(a, b)
    assert_true_steps(steps)
    assert f"-> {a // b}" in steps


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from("+-*/"))
def test_training_and_evaluation_never_share_an_operand_pair(seed: int, held_out: bool, op: str) -> None:
    a, b = arithmetic.operands(Draw(seed, held_out), op)
    assert is_held_out(f"{a}{op}{b}") == held_out
