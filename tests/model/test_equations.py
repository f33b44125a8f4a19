"""The model computes the published equations: compared with loops over Python numbers, for any sizes and layer types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from maple_spec.model import Maple, ModelConfig
from tests.model import naive
from tests.model.published import PUBLISHED
from tests.model.random_model import BASE, assert_logits, configs, random_model, random_tensors, random_tokens


def naive_logits(config: dict[str, Any], seed: int, tokens: Tensor) -> Tensor:
    """What the equations say, float64 [T, vocab_size]."""
    weights = {name: tensor.double().tolist() for name, tensor in random_tensors(config, seed).items()}
    return torch.tensor(naive.forward(config, weights, tokens.tolist()), dtype=torch.float64)


@settings(max_examples=20)
@given(configs(), st.integers(1, 12), st.integers(0, 2**16))
def test_logits_are_those_of_the_equations(config: dict[str, Any], count: int, seed: int) -> None:
    tokens = random_tokens(config, count, seed)
    logits = random_model(config, seed)(tokens)
    assert logits.dtype == torch.float32
    assert_logits(logits, naive_logits(config, seed, tokens), config, seed, tokens, atol=2e-4)


@settings(max_examples=15)
@given(configs(), st.integers(2, 12), st.integers(0, 2**16))
def test_decoding_steps_are_those_of_the_equations(config: dict[str, Any], count: int, seed: int) -> None:
    tokens = random_tokens(config, count, seed)
    model = random_model(config, seed)
    model.prepare_decoding()
    cache = model.new_cache()
    logits = torch.cat([model(tokens[position : position + 1], cache) for position in range(count)])
    assert_logits(logits, naive_logits(config, seed, tokens), config, seed, tokens, atol=2e-4)


@pytest.mark.parametrize("extra", [0, 1])
def test_the_window_has_512_keys_or_513(extra: int) -> None:
    """A query at position p of a single sliding layer sees p - 511 .. p, with the option p - 512 .. p, and nothing before."""
    config = BASE | {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": 512}
    config["window_keys"] = 512 + extra
    model, tokens = random_model(config), random_tokens(config, 516)
    logits = model(tokens)
    for first in (515 - 512 - extra, 515 - 511 - extra):
        changed = tokens.clone()
        changed[first] = (changed[first] + 1) % config["vocab_size"]
        same = torch.equal(model(changed)[-1], logits[-1])
        assert same == (first < 515 - 511 - extra)


def test_the_gate_is_clamped_from_above_only_and_up_on_both_sides() -> None:
    """One hidden dimension of the expert at a time, far outside the clamps."""
    config = BASE | {"num_experts": 1, "num_experts_per_tok": 1}
    expert = random_model(config).model.decoder_layers()[0].mlp.each_expert()[0]
    x = torch.zeros(1, config["hidden_size"])
    x[0, 0] = 1.0

    def through(gate: float, up: float) -> float:
        for projection, value in ((expert.gate_proj, gate), (expert.up_proj, up), (expert.down_proj, 1.0)):
            projection.weight.zero_()
            projection.weight[0, 0] = value
        return float(expert(x)[0, 0])

    silu_7 = 7 / (1 + torch.tensor(-7.0).exp().item())
    assert through(50, 50) == pytest.approx(silu_7 * 7)
    assert through(50, -50) == pytest.approx(silu_7 * -7)
    assert through(-8, 1) == pytest.approx(-8 / (1 + torch.tensor(8.0).exp().item()))


@given(configs(), st.integers(1, 20))
@settings(max_examples=10)
def test_no_token_sees_a_later_one(config: dict[str, Any], count: int) -> None:
    model, tokens = random_model(config), random_tokens(config, count + 3)
    torch.testing.assert_close(model(tokens)[:count], model(tokens[:count]), rtol=1e-4, atol=1e-4)


def test_the_last_position_alone_is_the_last_row() -> None:
    model, tokens = random_model(BASE), random_tokens(BASE, 9)
    alone = model(tokens, last_only=True)
    assert alone.shape == (1, BASE["vocab_size"])
    torch.testing.assert_close(alone, model(tokens)[-1:], rtol=1e-5, atol=1e-5)


def test_gradients_reach_every_parameter() -> None:
    model, tokens = random_model(BASE), random_tokens(BASE, 60)
    model.requires_grad_(True)
    torch.nn.functional.cross_entropy(model(tokens[:-1]), tokens[1:]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name


def test_tied_embeddings_are_one_parameter() -> None:
    model = Maple(ModelConfig.from_dict(BASE | {"tie_word_embeddings": True}))
    assert model.lm_head.weight is model.model.word_embeddings.weight
    assert "lm_head.weight" not in dict(model.named_parameters())


def test_the_published_sizes_give_the_published_tensors() -> None:
    """18,651 tensors and 20,214,030,336 parameters, under the names of the BF16 checkpoint."""
    with torch.device("meta"):
        shapes = {name: list(p.shape) for name, p in Maple(ModelConfig.from_dict(PUBLISHED)).named_parameters()}
    assert len(shapes) == 18_651
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == 20_214_030_336
    attention, mlp = "model.layers.23.self_attn", "model.layers.23.mlp"
    expected = {
        "model.word_embeddings.weight": [151936, 2048],
        "model.layers.0.input_layernorm.weight": [2048],
        "model.layers.0.post_attention_layernorm.weight": [2048],
        f"{attention}.q_proj.weight": [2048, 2048],
        f"{attention}.k_proj.weight": [512, 2048],
        f"{attention}.v_proj.weight": [512, 2048],
        f"{attention}.o_proj.weight": [2048, 2048],
        f"{attention}.q_norm.weight": [128],
        f"{attention}.k_norm.weight": [128],
        f"{mlp}.gate.weight": [256, 2048],
        f"{mlp}.experts.255.gate_proj.weight": [512, 2048],
        f"{mlp}.experts.255.up_proj.weight": [512, 2048],
        f"{mlp}.experts.255.down_proj.weight": [2048, 512],
        "model.norm.weight": [2048],
        "lm_head.weight": [151936, 2048],
    }
    assert {name: shapes[name] for name in expected} == expected
