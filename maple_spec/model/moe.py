"""The mixture of experts of a Maple layer: a float32 router, top-k experts, each a clamped SwiGLU.

The published per-expert matrices are views of two stacked ones, gate over up [experts, 2 * width, hidden] and down
[experts, hidden, width].
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from maple_spec.model.attention import Projection
from maple_spec.model.config import ModelConfig


class Expert(nn.Module):
    """The three matrices of one expert; the arithmetic is MoE's."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = Projection(width, hidden)
        self.up_proj = Projection(width, hidden)
        self.down_proj = Projection(hidden, width)


class MoE(nn.Module):
    """sum over the chosen experts of weight * down(silu(min(gate x, limit)) * clamp(up x, -limit, limit))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.moe_intermediate_size
        self.top_k = config.num_experts_per_tok
        self.normalise = config.norm_topk_prob
        self.limit = config.swiglu_limit
        self.width = width
        self.gate = Projection(config.num_experts, hidden)
        self.experts = nn.ModuleList(Expert(hidden, width) for _ in range(config.num_experts))
        self.fuse()

    def fuse(self) -> None:
        """Stack the experts' matrices, their parameters becoming views. Needed again after parameters were replaced."""
        with torch.inference_mode(False), torch.no_grad():
            self._gate_up, self._down = self._stack()
            for expert, gate_up, down in zip(self._each(), self._gate_up, self._down, strict=True):
                expert.gate_proj.weight.data, expert.up_proj.weight.data = gate_up.split(self.width)
                expert.down_proj.weight.data = down

    def forward(self, x: Tensor) -> Tensor:
        """x [T, hidden] normalised -> [T, hidden], before the residual is added."""
        topk_weights, topk_ids = self.route(x)
        gate_up, down = self._stack() if torch.is_grad_enabled() else (self._gate_up, self._down)
        if x.shape[0] == 1:
            return self._one_token(x, topk_weights, topk_ids, gate_up, down)
        return self._many_tokens(x, topk_weights, topk_ids, gate_up, down)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, hidden] -> (topk_weights float32 [T, k], topk_ids int64 [T, k]).

        softmax over all experts, the k largest, divided by their sum: the same as a softmax over the k largest logits.
        """
        router_logits = functional.linear(x.float(), self.gate.weight.float())
        if self.normalise:
            best, topk_ids = router_logits.topk(self.top_k)
            return best.softmax(-1), topk_ids
        topk_weights, topk_ids = router_logits.softmax(-1).topk(self.top_k)
        return topk_weights, topk_ids

    def _activate(self, gate_up: Tensor) -> Tensor:
        """[..., 2 * width] -> [..., width]: the gate is clamped from above only."""
        gate, up = torch.split(gate_up, self.width, dim=-1)
        return functional.silu(gate.clamp(max=self.limit)) * up.clamp(-self.limit, self.limit)

    def _one_token(self, x: Tensor, weights: Tensor, ids: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        """A vector through each chosen matrix: no gathering, no sorting."""
        chosen = ids[0].tolist()
        active = self._activate(torch.stack([torch.mv(gate_up[expert], x[0]) for expert in chosen]))
        active = active * weights[0].unsqueeze(-1).to(active.dtype)
        out = torch.mv(down[chosen[0]], active[0])
        for row, expert in enumerate(chosen[1:], start=1):
            out = torch.addmv(out, down[expert], active[row])
        return out.unsqueeze(0)

    def _many_tokens(self, x: Tensor, weights: Tensor, ids: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        """Tokens sorted by expert, so that every expert is read once."""
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        order = ids.flatten().argsort(stable=True)
        tokens = order // self.top_k
        shares = weights.flatten()[order].unsqueeze(-1)
        counts = ids.flatten().bincount(minlength=gate_up.shape[0]).tolist()
        start = 0
        for expert, count in enumerate(counts):
            if count:
                rows = tokens[start : start + count]
                active = self._activate(functional.linear(x[rows], gate_up[expert]))
                result = functional.linear(active, down[expert]).float()
                out = out.index_add(0, rows, result * shares[start : start + count])
                start += count
        return out.to(x.dtype)

    def _each(self) -> list[Expert]:
        return [expert for expert in self.experts if isinstance(expert, Expert)]

    def _stack(self) -> tuple[Tensor, Tensor]:
        experts = self._each()
        gate_up = torch.stack([torch.cat((expert.gate_proj.weight, expert.up_proj.weight)) for expert in experts])
        return gate_up, torch.stack([expert.down_proj.weight for expert in experts])
