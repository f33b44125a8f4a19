"""The mixture of experts of a Maple layer: a float32 router, top-k experts, each a clamped SwiGLU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from maple_spec.model.attention import Projection
from maple_spec.model.config import ModelConfig


class Expert(nn.Module):
    """down(silu(min(gate x, limit)) * clamp(up x, -limit, limit)): the gate is clamped from above only."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.moe_intermediate_size
        self.limit = config.swiglu_limit
        self.gate_proj = Projection(width, hidden)
        self.up_proj = Projection(width, hidden)
        self.down_proj = Projection(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        gate = self.gate_proj(x).clamp(max=self.limit)
        up = self.up_proj(x).clamp(-self.limit, self.limit)
        return self.down_proj(functional.silu(gate) * up)  # type: ignore[no-any-return]


class MoE(nn.Module):
    """The weighted sum of the top-k experts of each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.normalise = config.norm_topk_prob
        self.gate = Projection(config.num_experts, config.hidden_size)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config.num_experts))

    def forward(self, x: Tensor) -> Tensor:
        """x [T, hidden] normalised -> [T, hidden], before the residual is added.

        Tokens are sorted by expert, so that every expert is read once.
        """
        topk_weights, topk_ids = self.route(x)
        assignments = topk_ids.flatten()
        order = assignments.argsort(stable=True)
        counts = assignments.bincount(minlength=len(self.experts)).tolist()
        pieces = torch.split(x[order // self.top_k], counts)
        sorted_results = torch.cat([expert(piece) for expert, piece in zip(self.experts, pieces, strict=True)])
        results = sorted_results[order.argsort()].view(*topk_ids.shape, -1)
        return (results.float() * topk_weights.unsqueeze(-1)).sum(1).to(x.dtype)

    def each_expert(self) -> list[Expert]:
        """The experts in order."""
        return [expert for expert in self.experts if isinstance(expert, Expert)]

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, hidden] -> (topk_weights float32 [T, k], topk_ids int64 [T, k]), computed in float32.

        softmax over all experts, the k largest, divided by their sum: the same as a softmax over the k largest logits.
        """
        router_logits = functional.linear(x.float(), self.gate.weight.float())
        if self.normalise:
            best, topk_ids = router_logits.topk(self.top_k)
            return best.softmax(-1), topk_ids
        topk_weights, topk_ids = router_logits.softmax(-1).topk(self.top_k)
        return topk_weights, topk_ids
