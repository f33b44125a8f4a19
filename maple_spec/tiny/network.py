"""The trainable twin of maple_spec.model.Maple: batched, with ternary weights made anew from float32 ones at every step.

Latent weights are float32; the forward pass sees what the checkpoint will hold: {-alpha, 0, +alpha} rows for attention and
experts (kernels.quantise_rows), 4-bit groups of 64 for embedding and head. Gradients pass straight through both. Products run
in HALF, sums and norms in float32. Written for CPUs: attention is two plain matrix products with an additive mask (the
fused attention's backward pass is several times slower at these lengths).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maple_spec import kernels
from maple_spec.checkpoints.weights import TERNARY
from maple_spec.tiny.experts import through_experts
from maple_spec.tiny.fused import apply, fused
from maple_spec.tiny.precision import HALF


@dataclass(frozen=True)
class Shape:
    """Sizes of maple-tiny. Every ternary row is a multiple of 256 long, so that each file format can hold it."""

    vocab_size: int = 2048
    hidden_size: int = 256
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    moe_intermediate_size: int = 256
    num_experts: int = 6
    num_experts_per_tok: int = 2
    sliding_window: int = 256
    layers: str = "SSFSSFSF"  # S: sliding attention with RoPE, F: full attention without positions
    rope_theta: float = 10000.0
    swiglu_limit: float = 7.0
    rms_norm_eps: float = 1e-6
    context: int = 8192

    def config(self, special: dict[str, int]) -> dict[str, Any]:
        """config.json in the words of the published checkpoint; special maps control tokens to ids."""
        names = {"S": "sliding_attention", "F": "full_attention"}
        sizes = asdict(self)
        for own in ("layers", "context", "swiglu_limit"):
            del sizes[own]
        return {
            "architectures": ["MapleForCausalLM"],
            "model_type": "maple",
            "dtype": "bfloat16",
            **sizes,
            "num_hidden_layers": len(self.layers),
            "layer_types": [names[kind] for kind in self.layers],
            "partial_rotary_factor": 0.5,
            "nope_on_global_attention": True,
            "norm_topk_prob": True,
            "num_shared_experts": 0,
            "router_dtype": "fp32",
            "moe_router_enable_expert_bias": False,
            "max_position_embeddings": self.context,
            "use_qk_norm": True,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "bos_token_id": special["<|endoftext|>"],
            "eos_token_id": special["<|im_end|>"],
            "pad_token_id": None,
        }


class _StraightThrough(torch.autograd.Function):
    """Forward: the given rounding of a weight, in HALF. Backward: the gradient as it comes."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rounded: Tensor) -> Tensor:
        return rounded

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].float(), None


def ternary(weight: Tensor) -> Tensor:
    """The weight as kernels.quantise_rows rounds it, in HALF."""
    rounded: Tensor = _ternary(weight)
    return rounded.to(HALF)


# It ends in bfloat16: within one compiled function a scale that is rounded to it and widened again is not rounded at all.
@fused
def _ternary(weight: Tensor) -> Tensor:
    signs, row_scale = kernels.quantise_rows(weight)
    return signs.to(torch.bfloat16) * row_scale[..., None]


def four_bit(weight: Tensor) -> Tensor:
    """The weight as kernels.affine_codes rounds it in groups of 64, then to bfloat16, in HALF. Not compiled, as said above."""
    codes, scales, biases = kernels.affine_codes(weight, 64)
    return (codes * scales.float()[..., None] + biases.float()[..., None]).flatten(-2).to(torch.bfloat16).to(HALF)


class Layer(nn.Module):
    """Latent weights of one layer, experts stacked on axis 0."""

    def __init__(self, shape: Shape, full: bool) -> None:
        super().__init__()
        hidden, inner, experts = shape.hidden_size, shape.moe_intermediate_size, shape.num_experts
        queries, keys = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        self.full = full
        self.input_layernorm, self.post_attention_layernorm = _ones(hidden), _ones(hidden)
        self.q_norm, self.k_norm = _ones(shape.head_dim), _ones(shape.head_dim)
        self.q_proj, self.k_proj = _normal(queries, hidden), _normal(keys, hidden)
        self.v_proj, self.o_proj = _normal(keys, hidden), _normal(hidden, queries, gain=0.5)
        self.gate = _normal(experts, hidden)
        self.gate_proj, self.up_proj = _normal(experts, inner, hidden), _normal(experts, inner, hidden)
        self.down_proj = _normal(experts, hidden, inner, gain=0.5)


def _ones(size: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(size))


def _normal(*size: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size) * gain * size[-1] ** -0.5)


@fused
def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight).to(HALF)


@fused
def _heads(qk: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    """QK norm, then half-split rotary on the first half of each head. qk [B, T, heads, dim], weight [heads, dim]."""
    x = qk.float()
    x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
    quarter = x.shape[-1] // 4
    a, b, rest = x[..., :quarter], x[..., quarter : 2 * quarter], x[..., 2 * quarter :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1).transpose(1, 2).to(HALF).contiguous()


@fused
def _combine(x: Tensor, out: Tensor, topk_weights: Tensor) -> Tensor:
    """Residual x [N, H] float32 plus the experts' answers out [N, K, H] weighted by topk_weights [N, K]."""
    return x + (out.float() * topk_weights[..., None]).sum(1)


class Network(nn.Module):
    """Latent weights and the batched forward pass over what is made of them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.word_embeddings = nn.Parameter(torch.randn(shape.vocab_size, shape.hidden_size) * 0.5)
        self.lm_head = nn.Parameter(torch.randn(shape.vocab_size, shape.hidden_size) * 0.5 * shape.hidden_size**-0.5)
        self.norm = _ones(shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, kind == "F") for kind in shape.layers)
        self._rotations: dict[tuple[int, bool], tuple[Tensor, Tensor]] = {}
        self._masks: dict[tuple[int, bool], Tensor] = {}

    def rounded(self) -> dict[str, Tensor]:
        """What the checkpoint will hold, by latent name, attached to the latent weights by straight-through gradients."""
        out = {"word_embeddings": apply(_StraightThrough, self.word_embeddings, four_bit(self.word_embeddings.detach()))}
        out["lm_head"] = apply(_StraightThrough, self.lm_head, four_bit(self.lm_head.detach()))
        for index, layer in enumerate(self.layers):
            made = {}
            for name in TERNARY:
                weight = getattr(layer, name)
                made[name] = apply(_StraightThrough, weight, ternary(weight.detach()))
            out[f"{index}.qkv"] = torch.cat([made["q_proj"], made["k_proj"], made["v_proj"]])
            out[f"{index}.o"] = made["o_proj"]
            out[f"{index}.gate_up"] = torch.cat([made["gate_proj"], made["up_proj"]], 1)
            out[f"{index}.down"] = made["down_proj"]
        return out

    def _rotation(self, length: int, full: bool) -> tuple[Tensor, Tensor]:
        key = (length, full)
        if key not in self._rotations:
            rotated = self.shape.head_dim // 2
            frequency = self.shape.rope_theta ** (-torch.arange(0, rotated, 2).float() / rotated)
            angle = torch.arange(length).float()[:, None, None] * frequency * (not full)
            self._rotations[key] = (angle.cos(), angle.sin())
        return self._rotations[key]

    def _mask(self, length: int, full: bool) -> Tensor:
        key = (length, full)
        if key not in self._masks:
            distance = torch.arange(length)[:, None] - torch.arange(length)
            seen = (distance >= 0) & ((distance < self.shape.sliding_window) | full)
            mask = torch.zeros(length, length).masked_fill(~seen, -1e4).to(HALF)
            self._masks[key] = mask.repeat(self.shape.num_attention_heads // self.shape.num_key_value_heads, 1)[None]
        return self._masks[key]

    def _attention(self, layer: Layer, weights: tuple[Tensor, Tensor], x: Tensor, batch: int, length: int) -> Tensor:
        s = self.shape
        heads, groups, dim = s.num_attention_heads, s.num_key_value_heads, s.head_dim
        shared = heads // groups
        qkv = F.linear(x, weights[0]).view(batch, length, heads + 2 * groups, dim)
        gains = torch.cat([layer.q_norm.expand(heads, dim), layer.k_norm.expand(groups, dim)])
        qk = _heads(qkv[:, :, : heads + groups], gains, *self._rotation(length, layer.full), s.rms_norm_eps)
        q = qk[:, :heads].reshape(batch * groups, shared * length, dim)
        k = qk[:, heads:].reshape(batch * groups, length, dim)
        v = qkv[:, :, heads + groups :].transpose(1, 2).reshape(batch * groups, length, dim)
        scores = torch.baddbmm(self._mask(length, layer.full), q, k.transpose(1, 2), alpha=dim**-0.5)
        out = torch.bmm(torch.softmax(scores, -1), v)
        out = out.view(batch, heads, length, dim).transpose(1, 2).reshape(batch * length, heads * dim)
        return F.linear(out, weights[1])

    def _mixture(self, layer: Layer, weights: tuple[Tensor, Tensor], x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        tokens, top = x.shape[0], self.shape.num_experts_per_tok
        probabilities = torch.softmax(F.linear(x.float(), layer.gate), -1)
        topk_weights, topk_ids = probabilities.topk(top, -1)
        topk_weights = topk_weights / topk_weights.sum(-1, keepdim=True)
        answers, counts = through_experts(x, topk_ids, *weights, self.shape.swiglu_limit)
        out = _combine(residual, answers, topk_weights)
        return out, self.shape.num_experts * (counts / (tokens * top) * probabilities.mean(0)).sum()

    def forward(self, token_ids: Tensor, made: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """token_ids [B, T] and rounded() -> HALF logits [B * T, V] and the mean balance of the experts, 1 when even."""
        batch, length = token_ids.shape
        eps = self.shape.rms_norm_eps
        x = F.embedding(token_ids.reshape(-1), made["word_embeddings"]).float()
        balance = torch.zeros(())
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            normed = _norm(x, layer.input_layernorm, eps)
            x = x + self._attention(layer, (made[f"{index}.qkv"], made[f"{index}.o"]), normed, batch, length)
            normed = _norm(x, layer.post_attention_layernorm, eps)
            x, even = self._mixture(layer, (made[f"{index}.gate_up"], made[f"{index}.down"]), normed, x)
            balance = balance + even
        return F.linear(_norm(x, self.norm, eps), made["lm_head"]), balance / len(self.layers)
