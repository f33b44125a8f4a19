"""The trainable twin of maple_spec.model.Maple: batched, with ternary weights made anew from float32 ones at every step.

Latent weights are float32; the forward pass sees what the checkpoint will hold: {-alpha, 0, +alpha} rows for attention and
experts (kernels.quantise_rows), 4-bit groups of 64 for embedding and head. Gradients pass straight
through both. Products run in bfloat16, sums and norms in float32. Written for CPUs: attention is two plain matrix products
with an additive mask (the fused attention's backward pass is several times slower at these lengths), experts are products
over rows sorted by expert.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HALF = torch.bfloat16
ALIGN = 64  # rows


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through torch.compile, at its first call, where there is a C++ compiler: it halves the time of a step.

    Without a compiler, or with TORCH_COMPILE_DISABLE=1, it runs as it is written.
    """
    made: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not made:
            plain = os.environ.get("TORCH_COMPILE_DISABLE") == "1" or shutil.which("g++") is None
            made.append(function if plain else torch.compile(function, dynamic=True))
        return made[0](*args)

    return call


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


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """function.apply, which torch leaves untyped."""
    out: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return out


class _StraightThrough(torch.autograd.Function):
    """Forward: the given rounding of a weight, in bfloat16. Backward: the gradient as it comes."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rounded: Tensor) -> Tensor:
        return rounded

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].float(), None


@fused
def ternary(weight: Tensor) -> Tensor:
    """The rounding of kernels.quantise_rows: the mean of what is above 0.7 mean|w| in bfloat16, its sign, and 0."""
    magnitude = weight.abs()
    kept = magnitude > 0.7 * magnitude.mean(-1, keepdim=True)
    alpha = (magnitude * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
    return (torch.sign(weight) * kept).to(HALF) * alpha.to(HALF)


@fused
def four_bit(weight: Tensor) -> Tensor:
    """The rounding of kernels.quantise_affine: 4 bits in groups of 64 along the row, scale and bias in bfloat16."""
    groups = weight.view(weight.shape[0], -1, 64)
    bias = groups.amin(-1, keepdim=True).to(HALF).float()
    scale = ((groups.amax(-1, keepdim=True) - bias) / 15).to(HALF).float().clamp(min=1e-30)
    codes = ((groups - bias) / scale).round().clamp(0, 15)
    return (codes * scale + bias).view_as(weight).to(HALF)


class _Experts(torch.autograd.Function):
    """Clamped SwiGLU experts: one product an expert and matrix over its own rows, written in place.

    rows [R, H] are sorted by expert, each expert's part padded to a multiple of ALIGN rows: products of ever new sizes would
    have the matrix library build a new kernel for each, which takes longer than the product.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 -- autograd passes by position
        ctx: Any, rows: Tensor, gate_up: Tensor, down: Tensor, ends: list[int], limit: float
    ) -> Tensor:
        inner = rows.new_empty(rows.shape[0], gate_up.shape[1])
        out = torch.empty_like(rows)
        parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        for expert, part in enumerate(parts):
            torch.mm(rows[part], gate_up[expert].t(), out=inner[part])
        act = _swiglu(inner, limit)
        for expert, part in enumerate(parts):
            torch.mm(act[part], down[expert].t(), out=out[part])
        ctx.save_for_backward(rows, gate_up, down, inner, act)
        ctx.parts, ctx.limit = parts, limit
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rows, gate_up, down, inner, act = ctx.saved_tensors
        d_out = grads[0].contiguous()
        d_act, d_rows = torch.empty_like(act), torch.empty_like(rows)
        d_gate_up, d_down = torch.empty_like(gate_up), torch.empty_like(down)
        for expert, part in enumerate(ctx.parts):
            torch.mm(d_out[part], down[expert], out=d_act[part])
            torch.mm(d_out[part].t(), act[part], out=d_down[expert])
        d_inner = _swiglu_backward(d_act, inner, ctx.limit)
        for expert, part in enumerate(ctx.parts):
            torch.mm(d_inner[part], gate_up[expert], out=d_rows[part])
            torch.mm(d_inner[part].t(), rows[part], out=d_gate_up[expert])
        return d_rows, d_gate_up, d_down, None, None


@fused
def _swiglu(inner: Tensor, limit: float) -> Tensor:
    gate, up = inner.float().chunk(2, -1)
    return (F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)).to(inner.dtype)


@fused
def _swiglu_backward(d_act: Tensor, inner: Tensor, limit: float) -> Tensor:
    gate, up = inner.float().chunk(2, -1)
    sigmoid = torch.sigmoid(gate)
    silu = F.silu(gate.clamp(max=limit))
    d_gate = d_act * up.clamp(-limit, limit) * (sigmoid + gate * sigmoid * (1 - sigmoid)) * (gate < limit)
    d_up = d_act * silu * (up.abs() < limit)
    return torch.cat([d_gate, d_up], -1).to(inner.dtype)


class _Dispatch(torch.autograd.Function):
    """Rows to their experts: out[slots[i, j]] = rows[i]; the slots that nobody takes hold row 0 and get no gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, slots: Tensor, source: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return rows.index_select(0, source)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (slots,) = ctx.saved_tensors
        return grads[0].index_select(0, slots.view(-1)).view(*slots.shape, -1).sum(1), None, None


class _Collect(torch.autograd.Function):
    """The way back: out[i, j] = rows[slots[i, j]]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.size = rows.shape
        return rows.index_select(0, slots.view(-1)).view(*slots.shape, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (slots,) = ctx.saved_tensors
        out = grads[0].new_zeros(ctx.size)
        return out.index_copy_(0, slots.view(-1), grads[0].reshape(slots.numel(), -1)), None


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


TERNARY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


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
        out = {"word_embeddings": _apply(_StraightThrough, self.word_embeddings, four_bit(self.word_embeddings.detach()))}
        out["lm_head"] = _apply(_StraightThrough, self.lm_head, four_bit(self.lm_head.detach()))
        for index, layer in enumerate(self.layers):
            made = {}
            for name in TERNARY:
                weight = getattr(layer, name)
                made[name] = _apply(_StraightThrough, weight, ternary(weight.detach()))
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
        slots, source, ends, counts = _places(topk_ids, self.shape.num_experts)
        rows = _apply(_Experts, _apply(_Dispatch, x, slots, source), *weights, ends, self.shape.swiglu_limit)
        out = _combine(residual, _apply(_Collect, rows, slots), topk_weights)
        return out, self.shape.num_experts * (counts / (tokens * top) * probabilities.mean(0)).sum()

    def forward(self, token_ids: Tensor, made: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """token_ids [B, T] and rounded() -> bfloat16 logits [B * T, V] and the mean balance of the experts, 1 when even."""
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


def _places(topk_ids: Tensor, experts: int) -> tuple[Tensor, Tensor, list[int], Tensor]:
    """topk_ids [N, K] -> each choice's slot [N, K], each slot's row, the end of each expert's padded part, its choices."""
    choice = topk_ids.reshape(-1)
    counts = torch.bincount(choice, minlength=experts)
    padded = ((counts + ALIGN - 1) // ALIGN * ALIGN).clamp(min=ALIGN)
    ends = padded.cumsum(0)
    order = torch.argsort(choice, stable=True)
    shift = (ends - padded) - (counts.cumsum(0) - counts)
    slots = torch.empty_like(choice)
    slots[order] = torch.arange(choice.numel()) + shift[choice[order]]
    size = ends.tolist()
    source = torch.zeros(size[-1], dtype=torch.long)
    source[slots] = torch.arange(choice.numel()) // topk_ids.shape[1]
    return slots.view_as(topk_ids), source, size, counts
