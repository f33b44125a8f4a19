"""Maple models of any small size with random weights, for laws that hold for all of them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from maple_spec import kernels
from maple_spec.model import Maple, ModelConfig

BASE: dict[str, Any] = {
    "architectures": ["MapleForCausalLM"],
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "moe_intermediate_size": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "sliding_window": 5,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "nope_on_global_attention": True,
    "norm_topk_prob": True,
    "eos_token_id": 3,
}


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A config.json of any sizes, layer types and switches; its window has sliding_window keys or one more."""
    layer_types = draw(st.lists(st.sampled_from(["sliding_attention", "full_attention"]), min_size=1, max_size=4))
    kv_heads, experts = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    window = draw(st.integers(1, 7))
    return BASE | {
        "hidden_size": draw(st.sampled_from([16, 32])),
        "num_hidden_layers": len(layer_types),
        "layer_types": layer_types,
        "num_key_value_heads": kv_heads,
        "num_attention_heads": kv_heads * draw(st.integers(1, 3)),
        "head_dim": draw(st.sampled_from([4, 8, 16])),
        "moe_intermediate_size": draw(st.sampled_from([16, 32])),
        "num_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "sliding_window": window,
        "window_keys": window + draw(st.integers(0, 1)),
        "partial_rotary_factor": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "nope_on_global_attention": draw(st.booleans()),
        "norm_topk_prob": draw(st.booleans()),
    }


def random_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Weights by published name, float32 that bfloat16 holds exactly; projections ternary, large enough to reach the clamps."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, parameter in Maple(ModelConfig.from_dict(config)).named_parameters():
        weight = torch.randn(parameter.shape, generator=generator)
        if "_proj." in name:
            signs, row_scale = kernels.quantise_rows(weight * (0.7 if "self_attn" in name else 2.0))
            weight = signs.float() * row_scale.float().unsqueeze(-1)
        elif weight.dim() == 1:
            weight = 1 + weight / 4
        tensors[name] = weight.bfloat16().float()
    return tensors


def random_model(config: dict[str, Any], seed: int = 0) -> Maple:
    """A model with these weights, without gradients."""
    model = Maple(ModelConfig.from_dict(config)).requires_grad_(False)
    for name, tensor in random_tensors(config, seed).items():
        model.get_parameter(name).copy_(tensor)
    return model


def random_tokens(config: dict[str, Any], count: int, seed: int = 0) -> Tensor:
    """Token ids, int64 [count]."""
    return torch.randint(config["vocab_size"], (count,), generator=torch.Generator().manual_seed(seed))


def assert_logits(actual: Tensor, expected: Tensor, config: dict[str, Any], seed: int, tokens: Tensor, *, atol: float) -> None:
    """Both are the logits of random_model(config, seed) for the tokens, but for float32 rounding.

    Few of these models are so sensitive that rounding alone moves their logits further than atol: one in two hundred, whose
    plain forward pass is as far from the exact result as any other way to compute it. There the measure is how far the
    logits move when the embedding moves by a millionth, some eight units in the last place.
    """
    if torch.allclose(actual.float(), expected.float(), rtol=1e-4, atol=atol):
        return
    moved = [_nudged(config, seed, nudge)(tokens) - random_model(config, seed)(tokens) for nudge in range(2)]
    torch.testing.assert_close(actual.double(), expected.double(), rtol=0, atol=max(float(m.abs().max()) for m in moved))


def _nudged(config: dict[str, Any], seed: int, nudge: int) -> Maple:
    model = random_model(config, seed)
    embedding = model.model.word_embeddings.weight
    embedding.mul_(1 + 1e-6 * torch.randn(embedding.shape, generator=torch.Generator().manual_seed(nudge)))
    return model
