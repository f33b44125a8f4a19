"""Generation with a cache gives the logits of the full forward pass, however the tokens are split into steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maple_spec.model import KVCache, Maple, ModelConfig
from maple_spec.model.kv_cache import FIRST_CAPACITY
from tests.model.random_model import BASE, assert_logits, configs, random_model, random_tokens


@st.composite
def splits(draw: st.DrawFn, longest: int = 24) -> list[int]:
    """The sizes of consecutive steps, single tokens among them as often as not."""
    sizes = draw(st.lists(st.one_of(st.just(1), st.integers(1, longest)), min_size=1, max_size=10))
    return sizes if len(sizes) > 1 or sizes[0] > 1 else [*sizes, 1]


def in_steps(model: Maple, tokens: Tensor, sizes: list[int], cache: KVCache) -> Tensor:
    """The logits of all tokens, computed step by step."""
    return torch.cat([model(step, cache) for step in tokens.split(sizes)])


def assert_same_logits(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=40)
@given(configs(), splits(), st.booleans(), st.booleans(), st.integers(0, 2**16))
def test_any_split_gives_the_logits_of_the_whole(
    config: dict[str, Any], sizes: list[int], ring: bool, fast: bool, seed: int
) -> None:
    """Windows are 1 to 8 keys and steps up to 24 tokens, so that steps end before, on and behind the edge of the window."""
    model, tokens = random_model(config, seed), random_tokens(config, sum(sizes), seed)
    whole = model(tokens)
    if fast:
        model.prepare_decoding()
    cache = KVCache(model.config, ring=ring)
    assert_logits(in_steps(model, tokens, sizes, cache), whole, config, seed, tokens, atol=1e-4)
    assert cache.length == len(tokens)


@pytest.mark.parametrize("window_keys", [512, 513])
@pytest.mark.parametrize("sizes", [[511, 1, 1, 1, 6], [512, 2, 6], [513, 7], [300, 200, 10, 1, 1, 1, 1, 6], [1, 518, 1], [520]])
def test_the_published_window_and_its_edge(window_keys: int, sizes: list[int]) -> None:
    config = BASE | {"sliding_window": 512, "window_keys": window_keys}
    model, tokens = random_model(config), random_tokens(config, 520)
    whole = model(tokens)
    model.prepare_decoding()
    for ring in (True, False):
        assert_same_logits(in_steps(model, tokens, sizes, KVCache(model.config, ring=ring)), whole)


def test_stores_grow_and_rotations_are_computed_in_blocks_without_a_seam() -> None:
    model, tokens = random_model(BASE), random_tokens(BASE, 1030)
    whole = model(tokens)
    model.prepare_decoding()
    assert FIRST_CAPACITY < 1000
    assert_same_logits(
        in_steps(model, tokens, [FIRST_CAPACITY - 1, 1, 1, 1021 - FIRST_CAPACITY, *[1] * 8], model.new_cache()), whole
    )


@settings(max_examples=15)
@given(splits(), splits(), st.booleans())
def test_a_reset_cache_is_a_new_one(first: list[int], second: list[int], ring: bool) -> None:
    model = random_model(BASE)
    cache = KVCache(model.config, ring=ring)
    in_steps(model, random_tokens(BASE, sum(first), seed=1), first, cache)
    cache.reset()
    tokens = random_tokens(BASE, sum(second), seed=2)
    assert_same_logits(in_steps(model, tokens, second, cache), model(tokens))


def test_a_cache_without_a_ring_goes_back_to_any_length() -> None:
    model, tokens = random_model(BASE), random_tokens(BASE, 20)
    cache = KVCache(model.config, ring=False)
    model(tokens, cache)
    cache.truncate(11)
    assert_same_logits(model(tokens[11:], cache), model(tokens)[11:])


def test_a_ring_goes_back_only_while_it_has_lost_nothing() -> None:
    model, tokens = random_model(BASE), random_tokens(BASE, BASE["sliding_window"] + 1)
    cache = model.new_cache()
    model(tokens[:-1], cache)
    cache.truncate(2)
    assert_same_logits(model(tokens[2:], cache), model(tokens)[2:])
    with pytest.raises(AssertionError, match="overwritten"):
        cache.truncate(2)


def test_a_clone_goes_its_own_way() -> None:
    model, tokens, others = random_model(BASE), random_tokens(BASE, 16, seed=1), random_tokens(BASE, 16, seed=2)
    cache = model.new_cache()
    model(tokens[:8], cache)
    twin = cache.clone()
    model(others[8:], cache)
    assert_same_logits(model(tokens[8:], twin), model(tokens)[8:])


def test_a_ring_holds_its_window_and_no_more() -> None:
    """The memory of sliding layers does not grow with the sequence."""
    model = random_model(BASE)
    cache = model.new_cache()
    before = [layer._store.numel() for layer in cache.layers]  # type: ignore[attr-defined]
    model(random_tokens(BASE, 3 * FIRST_CAPACITY), cache)
    after = [layer._store.numel() for layer in cache.layers]  # type: ignore[attr-defined]
    grown = [new > old for old, new in zip(before, after, strict=True)]
    assert grown == [not model.config.is_sliding(layer) for layer in range(len(grown))]


def test_preparing_changes_no_parameter_and_holds_no_matrix_twice() -> None:
    model = random_model(BASE)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    model.prepare_decoding()
    storages = {}
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name
        storages[parameter.untyped_storage().data_ptr()] = parameter.untyped_storage().nbytes()
    assert sum(storages.values()) == sum(parameter.nbytes for parameter in before.values())


def test_a_model_in_another_dtype_keeps_the_general_path() -> None:
    model, tokens = random_model(BASE).to(torch.bfloat16), random_tokens(BASE, 12)
    model.prepare_decoding()
    cache = model.new_cache()
    logits = in_steps(model, tokens, [4, *[1] * 8], cache)
    assert logits.dtype == torch.bfloat16
    assert cache.length == 12


def test_a_cache_made_in_inference_mode_works_outside_it() -> None:
    model, tokens = random_model(BASE), random_tokens(BASE, 12)
    with torch.inference_mode():
        cache = model.new_cache()
        model(tokens[:8], cache)
    assert_same_logits(model(tokens[8:], cache), model(tokens)[8:])


def test_sequences_do_not_share_anything() -> None:
    """Two sequences decoded in turn through one model give what each gives alone."""
    model = random_model(BASE)
    a, b = random_tokens(BASE, 14, seed=1), random_tokens(BASE, 14, seed=2)
    whole = model(a), model(b)
    model.prepare_decoding()
    caches = model.new_cache(), model.new_cache()
    steps = [(model(a[i : i + 1], caches[0]), model(b[i : i + 1], caches[1])) for i in range(14)]
    assert_same_logits(torch.cat([step[0] for step in steps]), whole[0])
    assert_same_logits(torch.cat([step[1] for step in steps]), whole[1])


def test_the_default_window_is_the_configs() -> None:
    assert ModelConfig.from_dict({key: value for key, value in BASE.items() if key != "window_keys"}).window_keys == 5
