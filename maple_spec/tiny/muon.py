"""Muon: momentum whose matrix is replaced by its nearest orthogonal one, by a few Newton-Schulz steps in HALF.

After Keller Jordan, "Muon: an optimizer for hidden layers" (2024); the five coefficient triples follow the minimax schedule
of Amsel et al., "The Polar Express" (2025). Matrices of one shape are treated as one batch; with several processes each
treats its share.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from maple_spec.tiny.precision import HALF

COEFFICIENTS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)


def orthogonalized(matrices: Tensor) -> Tensor:
    """[N, rows, columns] -> the nearest (semi-)orthogonal matrices, in HALF."""
    x = matrices.to(HALF)
    tall = x.shape[1] > x.shape[2]
    x = x.transpose(1, 2).contiguous() if tall else x
    x = x / (x.float().norm(dim=(1, 2), keepdim=True).to(HALF) + 1e-7)
    for a, b, c in COEFFICIENTS:
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """Steps of size lr along the orthogonalised Nesterov momentum of [rows, columns] or stacked [E, rows, columns]."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 0.02, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # Any: torch overloads it by the closure, which Muon does not take
        """One step; every process must call it with equal gradients."""
        for group in self.param_groups:
            by_size: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["momentum"], group["momentum"])
                rows, columns = parameter.shape[-2:]
                by_size.setdefault((rows, columns), []).append((parameter, update.view(-1, rows, columns)))
            for (rows, columns), entries in by_size.items():
                updates = torch.split(_shared(torch.cat([u for _, u in entries])), [len(u) for _, u in entries])
                scale = group["lr"] * max(1.0, rows / columns) ** 0.5
                for (parameter, _), update in zip(entries, updates, strict=True):
                    parameter.add_(update.reshape(parameter.shape), alpha=-scale)


def _shared(matrices: Tensor) -> Tensor:
    """Orthogonalise, each process its share, and give everybody all of them."""
    if not dist.is_initialized():
        return orthogonalized(matrices).float()
    world, size = dist.get_world_size(), len(matrices)
    share = -(-size // world)
    padded = (
        torch.cat([matrices, matrices.new_zeros(share * world - size, *matrices.shape[1:])])
        if share * world > size
        else matrices
    )
    mine = orthogonalized(padded[dist.get_rank() * share :][:share]).contiguous()
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)
    return torch.cat(parts)[:size].float()
