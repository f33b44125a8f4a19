"""The mixture's way through its experts in training: rows to their experts, one product an expert and matrix, and back."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maple_spec.tiny.fused import apply, fused

ALIGN = 64  # rows


def through_experts(x: Tensor, topk_ids: Tensor, gate_up: Tensor, down: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """x [N, H] and the experts chosen for each row, topk_ids [N, K] -> answers [N, K, H], choices an expert [E].

    gate_up [E, 2 W, H] and down [E, H, W]; limit clamps as in the published SwiGLU.
    """
    slots, source, ends, counts = _places(topk_ids, gate_up.shape[0])
    rows = apply(_Experts, apply(_Dispatch, x, slots, source), gate_up, down, ends, limit)
    return apply(_Collect, rows, slots), counts


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
