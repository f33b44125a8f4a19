"""A model of the published sizes with random ternary weights, packed as it is drawn: about 5 GB, never the float32 weights.

It says nothing sensible, but a token costs what the real model's token costs: its weights are as many, and its router spreads
tokens over all experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maple_spec.kernels.native import LayerWeights, ModelWeights
from maple_spec.kernels.packed import GROUP_ROWS, HEAD_ROWS, UNIT_COLUMNS, AffineRows, PackedHead, PackedTernary

_BLOCK = 1 << 26  # bytes drawn; larger arrays repeat them, which memory does not notice
_BFLOAT16_TENTH = 0x3DCD  # about 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The published model's."""

    vocabulary: int = 151936
    hidden: int = 2048
    layers: int = 24
    heads: int = 16
    kv_heads: int = 4
    head_dim: int = 128
    width: int = 512
    experts: int = 256
    experts_per_token: int = 8
    window: int = 512
    group_size: int = 64

    def slides(self, layer: int) -> bool:
        """Whether a layer sees the window alone: three of four do."""
        return layer % 4 != 3


def synthetic_weights(sizes: Sizes, head_bits: int = 4, seed: int = 0) -> Iterator[ModelWeights | str]:
    """Yield what is being drawn, in words, and at last the weights."""
    draw = np.random.default_rng(seed)
    block = draw.integers(0, 2**32, _BLOCK // 4, dtype=np.uint32)
    low = block & np.uint32(0x55555555)
    # 0, 1 or 2 in every pair of bits, never 3.
    codes: NDArray[np.uint32] = low | (np.roll(block, 1) & np.uint32(0xAAAAAAAA) & ~(low << np.uint32(1)))
    layers = []
    for index in range(sizes.layers):
        yield f"layer {index + 1} of {sizes.layers}"
        layers.append(_layer(sizes, index, draw, codes))
    yield "embedding and head"
    groups = sizes.hidden // sizes.group_size
    ends = np.full((sizes.vocabulary, groups), _BFLOAT16_TENTH, np.uint16)
    words = np.resize(block, (sizes.vocabulary, sizes.hidden // 8))
    yield ModelWeights(
        layers=layers,
        embedding=AffineRows(words, ends, ends.copy(), 4),
        head=_head(sizes, head_bits, block),
        final_norm=np.ones(sizes.hidden, np.float32),
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        width=sizes.width,
        experts=sizes.experts,
        experts_per_token=sizes.experts_per_token,
        rotary_dim=sizes.head_dim // 2,
        norm_topk_prob=True,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        swiglu_limit=7.0,
    )


def _layer(sizes: Sizes, index: int, draw: np.random.Generator, codes: NDArray[np.uint32]) -> LayerWeights:
    def matrix(matrices: int, rows: int, columns: int) -> PackedTernary:
        shape = (matrices, rows // GROUP_ROWS, columns // UNIT_COLUMNS, GROUP_ROWS)
        scale = np.full((matrices, rows), columns**-0.5, np.float32)
        return PackedTernary(np.resize(np.roll(codes, int(draw.integers(len(codes)))), shape), scale, rows, columns)

    mixed = sizes.heads * sizes.head_dim
    router = draw.standard_normal((sizes.experts, sizes.hidden), np.float32)
    return LayerWeights(
        qkv=matrix(1, mixed + 2 * sizes.kv_heads * sizes.head_dim, sizes.hidden),
        out=matrix(1, sizes.hidden, mixed),
        gate_up=matrix(sizes.experts, 2 * sizes.width, sizes.hidden),
        down=matrix(sizes.experts, sizes.hidden, sizes.width),
        router=np.ascontiguousarray(router.view(np.uint32) >> 16).astype(np.uint16),
        attention_norm=np.ones(sizes.hidden, np.float32),
        expert_norm=np.ones(sizes.hidden, np.float32),
        query_gain=np.ones(sizes.head_dim, np.float32),
        key_gain=np.ones(sizes.head_dim, np.float32),
        window=sizes.window if sizes.slides(index) else None,
        turns=sizes.slides(index),
    )


def _head(sizes: Sizes, bits: int, block: NDArray[np.uint32]) -> PackedHead | NDArray[np.uint16]:
    if bits == 16:
        small = block.view(np.uint16) & 0x807F | 0x3D00  # numbers of about 0.03 to 0.06, of either sign
        return np.resize(small, (sizes.vocabulary, sizes.hidden))
    groups, rows = sizes.hidden // sizes.group_size, sizes.vocabulary
    part = HEAD_ROWS * sizes.group_size * bits // 8
    data = np.empty((rows // HEAD_ROWS, groups, part + 4 * HEAD_ROWS), np.uint8)
    data[..., :part] = np.resize(block.view(np.uint8), (rows // HEAD_ROWS, groups, part))
    data[..., part:].view(np.uint16)[:] = _BFLOAT16_TENTH
    return PackedHead(data.reshape(-1), rows, sizes.hidden, bits, sizes.group_size)
