"""Grouped-query attention of a Maple layer: QK norm, partial rotary embedding on sliding layers, none on full ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from maple_spec.model.config import ModelConfig
from maple_spec.model.kv_cache import LayerCache


class Projection(nn.Linear):
    """x W^T without a bias; the weight's memory is not initialised, since a checkpoint is copied into it."""

    def __init__(self, out_features: int, in_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class RMSNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + eps) over the last axis, in float32 inside."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] -> the same shape and dtype, rounded once."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight.float()).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The turn of each position: cos and sin float32 [T, 1, head_dim], and the partner of each dimension, int64 [head_dim].

    Dimension j of the first half of the rotary part is paired with j + half; those behind the rotary part have cos 1, sin 0.
    """

    cos: Tensor
    sin: Tensor
    partner: Tensor

    @classmethod
    def of(cls, config: ModelConfig, start: int, count: int, device: torch.device) -> Rotation:
        """The turns of positions start .. start + count - 1: angle p * theta^(-2j / rotary_dim), computed in float64."""
        half, still = config.rotary_dim // 2, config.head_dim - config.rotary_dim
        exponent = torch.arange(half, dtype=torch.float64, device=device) * (-2 / max(config.rotary_dim, 1))
        positions = torch.arange(start, start + count, dtype=torch.float64, device=device)
        angle = positions[:, None, None] * torch.pow(config.rope_theta, exponent)
        cos, sin = angle.cos(), angle.sin()
        dims = torch.arange(config.head_dim, device=device)
        return cls(
            cos=functional.pad(torch.cat((cos, cos), -1), (0, still), value=1.0).float(),
            sin=functional.pad(torch.cat((-sin, sin), -1), (0, still), value=0.0).float(),
            partner=torch.cat((dims[half : 2 * half], dims[:half], dims[2 * half :])),
        )

    def apply(self, heads: Tensor) -> Tensor:
        """Turn [T, heads, head_dim]."""
        return torch.addcmul(heads * self.cos, heads.index_select(-1, self.partner), self.sin).to(heads.dtype)


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
    """softmax(q k^T / sqrt(head_dim)) v; consecutive query heads share a key head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, head_dim = config.hidden_size, config.head_dim
        queries, keys = config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim
        self.head_dim = head_dim
        self.q_proj = Projection(queries, hidden)
        self.k_proj = Projection(keys, hidden)
        self.v_proj = Projection(keys, hidden)
        self.o_proj = Projection(hidden, queries)
        self.q_norm = RMSNorm(head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(head_dim, config.rms_norm_eps)

    def forward(self, x: Tensor, turn: Rotation | None, seen: Tensor | None, cache: LayerCache | None) -> Tensor:
        """x [T, hidden] normalised -> [T, hidden], before the residual is added."""
        queries = self.q_norm(self._heads(self.q_proj(x)))
        keys = self.k_norm(self._heads(self.k_proj(x)))
        values = self._heads(self.v_proj(x)).transpose(0, 1)
        if turn is not None:
            queries, keys = turn.apply(queries), turn.apply(keys)
        queries, keys = queries.transpose(0, 1), keys.transpose(0, 1)
        if cache is not None:
            keys, values = cache.append(keys, values)
        mixed = functional.scaled_dot_product_attention(
            queries[None], keys[None], values[None], attn_mask=seen, enable_gqa=True
        )
        return self.o_proj(mixed[0].transpose(0, 1).flatten(1))  # type: ignore[no-any-return]

    def _heads(self, projected: Tensor) -> Tensor:
        """[T, heads * head_dim] -> [T, heads, head_dim]."""
        return projected.view(projected.shape[0], -1, self.head_dim)
