"""What may be chosen, and how probable it is, is what transformers' processors make of the same logits."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from maple_spec.engine.logits_processors import RepetitionPenalty, best_ids, candidates
from maple_spec.engine.sampler import Sampler
from maple_spec.types import SamplingParams

NONE_UNUSED = np.array([], dtype=np.int64)

params_of_all_kinds = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.01, 0.6, 1.0, 1.7, 2.0]),
    top_k=st.sampled_from([0, 1, 2, 20, 255, 5000, 10**9]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.95, 0.999, 1.0]),
    repetition_penalty=st.sampled_from([0.5, 1.0, 1.3]),
)


def random_logits(seed: int, size: int, spread: float) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def as_transformers(logits: torch.Tensor, params: SamplingParams, seen: list[int]) -> torch.Tensor:
    """The probabilities from which generate(do_sample=True) draws, float64 [vocab_size]."""
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    return torch.softmax(processors(torch.tensor([seen]), logits[None].clone())[0].double(), dim=-1)


def ours(logits: torch.Tensor, params: SamplingParams, seen: list[int]) -> torch.Tensor:
    array = logits.clone().numpy()
    if params.repetition_penalty != 1.0:
        RepetitionPenalty(params.repetition_penalty, seen).apply(array)
    left = candidates(array, temperature=params.temperature, top_k=params.top_k, top_p=params.top_p)
    probabilities = torch.zeros(len(logits), dtype=torch.float64)
    probabilities[torch.from_numpy(left.ids)] = torch.from_numpy(left.weights / left.weights.sum())
    return probabilities


@given(
    seed=st.integers(0, 2**32),
    size=st.sampled_from([3, 64, 300, 2048, 20_000, 9_999]),
    spread=st.sampled_from([0.1, 1.0, 4.0, 12.0]),
    params=params_of_all_kinds,
    seen=st.lists(st.integers(0, 2), min_size=1, max_size=5),
)
def test_the_probabilities_are_those_of_transformers(
    seed: int, size: int, spread: float, params: SamplingParams, seen: list[int]
) -> None:
    logits = random_logits(seed, size, spread)
    expected, actual = as_transformers(logits, params, seen), ours(logits, params, seen)
    differing = ((expected > 0) != (actual > 0)).nonzero()
    if len(differing):
        # Their sums are float32: a token at the very edge of the nucleus may fall on its other side.
        assert len(differing) == 1
        assert max(float(expected[differing]), float(actual[differing])) < 0.01
    else:
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("size", [300, 20_000])
def test_ties_with_the_last_of_the_best_stay_as_in_transformers(size: int) -> None:
    logits = torch.zeros(size)
    logits[7] = 1.0
    params = SamplingParams(temperature=1.0, top_k=2, top_p=1.0)
    torch.testing.assert_close(ours(logits, params, []).float(), as_transformers(logits, params, []).float())


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 50), st.booleans())
def test_the_best_are_found_without_sorting(values: list[int], count: int, large: bool) -> None:
    logits = np.array(values, dtype=np.float32)
    if large:
        logits = np.concatenate([logits, np.full(20_000, -4, dtype=np.float32), logits])
    ranked = np.sort(logits)[::-1]
    expected = ranked[ranked >= ranked[min(count, len(ranked)) - 1]]
    np.testing.assert_array_equal(logits[best_ids(logits, count)], expected)


@given(seed=st.integers(0, 2**32), params=params_of_all_kinds)
def test_greedy_is_the_largest_logit_after_the_penalty(seed: int, params: SamplingParams) -> None:
    logits = random_logits(seed, 500, 3.0)
    expected = as_transformers(logits, SamplingParams(temperature=1, top_k=0, top_p=1), [0])
    for temperature in (0.0, -0.0, 5e-324, 1e-12):
        greedy = SamplingParams(temperature=temperature, top_k=params.top_k, top_p=params.top_p)
        assert Sampler(greedy, [0], unused_ids=NONE_UNUSED).next_token(logits.clone()) == int(expected.argmax())


@pytest.mark.parametrize("changes", [{"top_k": 1}, {"top_p": 0.0}, {"temperature": 0.0001}, {"top_p": 0.0001}])
def test_the_narrowest_settings_equal_greedy(changes: dict[str, float]) -> None:
    logits = random_logits(1, 2048, 3.0)
    sampler = Sampler(SamplingParams(**{"temperature": 1.0, **changes}), [0], unused_ids=NONE_UNUSED)  # type: ignore[arg-type]
    assert {sampler.next_token(logits.clone()) for _ in range(50)} == {int(logits.argmax())}


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    logits = torch.log(torch.tensor([0.5, 0.25, 0.2, 0.05]))
    for top_k in (0, 4):
        params = SamplingParams(temperature=1.0, top_k=top_k, top_p=1.0, seed=5)
        sampler = Sampler(params, [0], unused_ids=NONE_UNUSED)
        drawn = Counter(sampler.next_token(logits.clone()) for _ in range(4000))
        for token_id, share in enumerate((0.5, 0.25, 0.2, 0.05)):
            assert abs(drawn[token_id] / 4000 - share) < 0.03


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 10**40])
def test_a_seed_repeats_the_choice_and_none_does_not(seed: int) -> None:
    def choices(seed: int | None) -> list[int]:
        params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, seed=seed)
        sampler = Sampler(params, [0], unused_ids=NONE_UNUSED)
        return [sampler.next_token(torch.zeros(500)) for _ in range(12)]

    assert choices(seed) == choices(seed)
    assert choices(None) != choices(None)
    assert choices(seed) != choices(seed + 1)


@given(params=params_of_all_kinds, seed=st.integers(0, 1000))
def test_ids_without_a_token_are_never_chosen(params: SamplingParams, seed: int) -> None:
    logits = random_logits(seed, 300, 1.0)
    logits[200:] += 50.0
    sampler = Sampler(params, [0], unused_ids=np.arange(200, 300))
    assert sampler.next_token(logits.clone()) < 200


@given(st.lists(st.integers(0, 99), min_size=1, max_size=300))
def test_the_penalty_counts_prompt_and_output_once_each(token_ids: list[int]) -> None:
    logits = random_logits(3, 100, 2.0)
    penalty = RepetitionPenalty(1.5, token_ids[: len(token_ids) // 2])
    for token_id in token_ids[len(token_ids) // 2 :]:
        penalty.add(token_id)
    array = logits.clone().numpy()
    penalty.apply(array)
    expected = RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([token_ids]), logits[None].clone())[0]
    np.testing.assert_array_equal(array, expected.numpy())


def test_a_penalty_makes_greedy_output_move_on() -> None:
    params = SamplingParams(temperature=0, repetition_penalty=2.0)
    sampler = Sampler(params, [0], unused_ids=NONE_UNUSED)
    logits = torch.tensor([1.0, 3.0, 2.9, -1.0])
    assert [sampler.next_token(logits.clone()) for _ in range(3)] == [1, 2, 1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_are_an_error_and_no_token(value: float) -> None:
    logits = torch.full((10,), value)
    for temperature in (0.0, 1.0):
        with pytest.raises(ArithmeticError):
            Sampler(SamplingParams(temperature=temperature), [0], unused_ids=NONE_UNUSED).next_token(logits.clone())
