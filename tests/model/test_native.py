"""The native forward pass is the float32 model's but for rounding, and its bits depend on nothing but the tokens."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from maple_spec import checkpoints
from maple_spec.checkpoints import Weights, mlx_2bit, safetensors_bf16
from maple_spec.kernels.native import ModelWeights, NativeModel, variants
from maple_spec.model import Maple, ModelConfig
from tests.model.random_model import BASE, random_tensors

Logits = NDArray[np.float32]
EVERY = pytest.mark.parametrize("variant", variants())


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A config.json of any sizes that the kernels take."""
    layer_types = draw(st.lists(st.sampled_from(["sliding_attention", "full_attention"]), min_size=1, max_size=3))
    kv_heads, experts = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    window = draw(st.integers(1, 20))
    return BASE | {
        "vocab_size": draw(st.integers(20, 50)),
        "hidden_size": draw(st.sampled_from([16, 48, 64])),
        "num_hidden_layers": len(layer_types),
        "layer_types": layer_types,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.integers(1, 9)),
        "head_dim": draw(st.sampled_from([16, 32])),
        "moe_intermediate_size": draw(st.sampled_from([16, 48])),
        "num_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "sliding_window": window,
        "window_keys": window + draw(st.integers(0, 1)),
        "partial_rotary_factor": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "nope_on_global_attention": draw(st.booleans()),
        "norm_topk_prob": draw(st.booleans()),
    }


def written(config: dict[str, Any], seed: int, layout: Any) -> tuple[Maple, ModelWeights]:
    """A random model, written in a layout and read back both ways."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layout.write(folder, config, random_tensors(config, seed))
        read = ModelConfig.from_dict(config)
        return Weights(folder).model(read), Weights(folder).packed(read)


def logits(model: NativeModel, tokens: list[int], cuts: list[int]) -> Logits:
    """The logits behind each token, the tokens cut before those places."""
    cache = model.new_cache(len(tokens))
    places = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(tokens)), len(tokens)]
    return np.concatenate([model.forward(tokens[begin:end], cache, every=True) for begin, end in pairwise(places)])


@EVERY
@settings(max_examples=10)
@given(configs(), st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from([mlx_2bit, safetensors_bf16]))
def test_its_logits_are_those_of_the_float32_model(
    variant: str, config: dict[str, Any], seed: int, count: int, layout: Any
) -> None:
    plain, weights = written(config, seed % 1000, layout)
    tokens = np.random.default_rng(seed).integers(0, config["vocab_size"], count).tolist()
    with torch.inference_mode():
        expected = plain(torch.tensor(tokens)).numpy()
    found = logits(NativeModel(weights, variant=variant), tokens, [])
    # Where two experts are all but equal, rounding may choose another one: most positions must agree closely, not all. The
    # measure is the model's own: how far it moves when its embedding moves by what 16-bit activations are rounded by.
    assert typical(found - expected) < 8 * max(typical(nudged(plain, tokens, nudge) - expected) for nudge in range(3)) + 1e-5


def typical(difference: Logits) -> float:
    """The largest difference behind a token, at the median of the tokens."""
    return float(np.median(np.abs(difference).max(axis=1)))


def nudged(plain: Maple, tokens: list[int], seed: int) -> Logits:
    """The logits with an embedding that is off by about three hundred-thousandths."""
    embedding = plain.model.word_embeddings.weight
    exact = embedding.clone()
    with torch.inference_mode():
        embedding.mul_(1 + 3e-5 * torch.randn(embedding.shape, generator=torch.Generator().manual_seed(seed)))
        moved: Logits = plain(torch.tensor(tokens)).numpy()
        embedding.copy_(exact)
    return moved


@EVERY
@settings(max_examples=10)
@given(
    configs(),
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.lists(st.integers(1, 59), max_size=6),
    st.sampled_from([2, 3, 7]),
    st.sampled_from([1, 2]),
)
def test_its_bits_depend_neither_on_threads_nor_on_cuts(
    variant: str, config: dict[str, Any], seed: int, count: int, cuts: list[int], threads: int, planes: int
) -> None:
    _, weights = written(config, seed % 1000, mlx_2bit)
    tokens = np.random.default_rng(seed).integers(0, config["vocab_size"], count).tolist()
    whole = logits(NativeModel(weights, variant=variant, planes=planes), tokens, [])
    cut = logits(NativeModel(weights, variant=variant, planes=planes, threads=threads), tokens, cuts)
    each = logits(NativeModel(weights, variant=variant, planes=planes), tokens, list(range(count)))
    assert np.array_equal(whole, cut)
    assert np.array_equal(whole, each)


@pytest.mark.parametrize("count", [511, 512, 513, 1025])
def test_maple_tiny_beyond_its_window_is_still_the_float32_model(count: int) -> None:
    plain, weights = checkpoints.load().model, checkpoints.load_packed().weights
    tokens = np.random.default_rng(count).integers(0, 2000, count).tolist()
    with torch.inference_mode():
        expected = torch.log_softmax(plain(torch.tensor(tokens)), -1).double()
    found = torch.log_softmax(torch.tensor(logits(NativeModel(weights), tokens, [512, 1024])), -1).double()
    divergence = (expected.exp() * (expected - found)).sum(-1)
    assert float(divergence.median()) < 1e-7
    assert float(divergence.mean()) < 3e-5, "two experts that are all but equal may change places, behind a token or two"


def test_maple_tiny_says_the_same_greedy_tokens_in_every_instruction_set() -> None:
    weights = checkpoints.load_packed().weights
    prompt = list(range(5, 60))
    said = []
    for variant in variants():
        model = NativeModel(weights, variant=variant)
        cache = model.new_cache(200)
        tokens = [int(model.forward(prompt, cache).argmax())]
        while len(tokens) < 60:
            tokens.append(int(model.forward(tokens[-1:], cache).argmax()))
        said.append(tokens)
    assert said.count(said[0]) == len(said)


def test_an_interrupted_call_returns_soon_and_the_next_sequence_is_whole() -> None:
    model = NativeModel(checkpoints.load_packed().weights)
    tokens = list(range(300))
    expected = model.forward(tokens, model.new_cache(400))
    cache = model.new_cache(400)
    cache.interrupt()
    model.forward(tokens, cache)
    assert np.array_equal(model.forward(tokens, model.new_cache(400)), expected)


@pytest.mark.parametrize("bad", [[], [0] * 513, [-1], [2048]])
def test_calls_that_the_kernels_could_not_take_are_refused_before_them(bad: list[int]) -> None:
    model = NativeModel(checkpoints.load_packed().weights)
    with pytest.raises(ValueError):
        model.forward(bad, model.new_cache(4000))
    with pytest.raises(ValueError):
        model.forward([1, 2], model.new_cache(1))
