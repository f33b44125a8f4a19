"""Grouped-query attention of a Maple layer: QK norm, partial rotary embedding on sliding layers, none on full ones.

The published q_proj, k_proj and v_proj are views of one matrix, so that a token costs one multiplication instead of three.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from maple_spec.model.config import ModelConfig
from maple_spec.model.kv_cache import LayerCache


class Projection(nn.Module):
    """A matrix without a bias, y = x W^T; its memory is not initialised."""

    def __init__(self, out_features: int, in_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))

    def forward(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]."""
        return functional.linear(x, self.weight)


class RMSNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + eps) over the last axis, in float32 inside."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> the same shape and dtype."""
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight * x / sqrt(mean(x^2) + eps) over the last axis; weight broadcasts against x; float32 inside, rounded once."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The turn of each position: cos and sin [T, 1, head_dim] and the partner of each dimension [head_dim].

    Dimension j of the first half of the rotary part is paired with j + half; those behind the rotary part have cos 1, sin 0.
    """

    cos: Tensor
    sin: Tensor
    partner: Tensor

    def apply(self, heads: Tensor) -> Tensor:
        """Turn [T, heads, head_dim]."""
        turned = torch.addcmul(heads * self.cos, heads.index_select(-1, self.partner), self.sin)
        return turned.to(heads.dtype)


def rotation(config: ModelConfig, start: int, count: int, device: torch.device) -> Rotation:
    """The rotation of positions start .. start + count - 1: angle p * theta^(-2j / rotary_dim), computed in float64."""
    half = config.rotary_dim // 2
    exponent = torch.arange(half, dtype=torch.float64, device=device) * (-2 / max(config.rotary_dim, 1))
    positions = torch.arange(start, start + count, dtype=torch.float64, device=device)
    angle = positions[:, None, None] * torch.pow(config.rope_theta, exponent)
    still = config.head_dim - config.rotary_dim
    cos, sin = angle.cos(), angle.sin()
    cos = functional.pad(torch.cat((cos, cos), -1), (0, still), value=1.0)
    sin = functional.pad(torch.cat((-sin, sin), -1), (0, still), value=0.0)
    dims = torch.arange(config.head_dim, device=device)
    partner = torch.cat((dims[half : 2 * half], dims[:half], dims[2 * half :]))
    return Rotation(cos.float(), sin.float(), partner)


def visibility(reach: int, count: int, window: int | None, device: torch.device) -> Tensor | None:
    """Which keys each of `count` queries sees, bool [count, reach + count], or None where each sees all.

    The keys are the `reach` positions before the first query and the queries' own; a query sees itself and what lies before it,
    on a sliding layer the last `window` of these, itself included.
    """
    total = reach + count
    if count == 1 and (window is None or total <= window):
        return None
    distance = torch.arange(reach, total, device=device)[:, None] - torch.arange(total, device=device)
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


class Attention(nn.Module):
    """softmax(q k^T / sqrt(head_dim)) v over grouped heads, between a fused q/k/v projection and an output projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, head_dim = config.hidden_size, config.head_dim
        self.num_heads = config.num_attention_heads
        self.num_kv_heads = config.num_key_value_heads
        self.head_dim = head_dim
        self.eps = config.rms_norm_eps
        self.q_proj = Projection(self.num_heads * head_dim, hidden)
        self.k_proj = Projection(self.num_kv_heads * head_dim, hidden)
        self.v_proj = Projection(self.num_kv_heads * head_dim, hidden)
        self.o_proj = Projection(hidden, self.num_heads * head_dim)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps)
        self.fuse()

    def fuse(self) -> None:
        """Lay q, k and v out as one matrix that their parameters are views of. Needed again after parameters were replaced."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        with torch.inference_mode(False), torch.no_grad():
            self._qkv_weight = torch.cat([part.weight for part in parts])
            sizes = [part.weight.shape[0] for part in parts]
            for part, view in zip(parts, self._qkv_weight.split(sizes), strict=True):
                part.weight.data = view

    def forward(self, x: Tensor, turn: Rotation | None, seen: Tensor | None, cache: LayerCache | None) -> Tensor:
        """x [T, hidden] normalised -> [T, hidden], before the residual is added."""
        count = x.shape[0]
        qk_heads = self.num_heads + self.num_kv_heads
        heads = functional.linear(x, self._qkv()).view(count, qk_heads + self.num_kv_heads, self.head_dim)
        queries_keys = rms_norm(heads[:, :qk_heads], self._qk_norm(), self.eps)
        if turn is not None:
            queries_keys = turn.apply(queries_keys)
        queries, keys = torch.split(queries_keys.transpose(0, 1), (self.num_heads, self.num_kv_heads))
        values = heads[:, qk_heads:].transpose(0, 1)
        if cache is not None:
            keys, values = cache.append(keys, values)
        if seen is None:
            mixed = self._attend_all(queries, keys, values)
        else:
            mixed = functional.scaled_dot_product_attention(
                queries[None], keys[None], values[None], attn_mask=seen, enable_gqa=True
            )[0]
        return self.o_proj(mixed.transpose(0, 1).reshape(count, self.num_heads * self.head_dim))

    def _attend_all(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """One query a head that sees every key: the heads of a group are rows of one product."""
        grouped = queries.reshape(self.num_kv_heads, -1, self.head_dim)
        scores = torch.bmm(grouped * self.head_dim**-0.5, keys.transpose(1, 2))
        return torch.bmm(scores.softmax(-1), values).view(self.num_heads, 1, self.head_dim)

    def _qkv(self) -> Tensor:
        """The fused matrix; rebuilt from the parameters where gradients must reach them."""
        if torch.is_grad_enabled():
            return torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        return self._qkv_weight

    def _qk_norm(self) -> Tensor:
        """QK norm gains per head, [heads + kv_heads, head_dim]."""
        gains = (self.q_norm.weight.expand(self.num_heads, -1), self.k_norm.weight.expand(self.num_kv_heads, -1))
        return torch.cat(gains)
