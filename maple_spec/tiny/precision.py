"""What training computes its matrix products in."""

from __future__ import annotations

import torch

# bfloat16 where the processor multiplies it; elsewhere float32, since torch then multiplies bfloat16 a hundred times slower.
HALF = (
    torch.bfloat16
    if any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    else torch.float32
)
