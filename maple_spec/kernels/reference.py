"""The ternary and 4-bit operations in plain torch: slow, obvious, the judge of every faster kernel.

Formats (MLX affine, as the official 2-bit checkpoint holds them): codes are packed least significant first into 32-bit words,
so code j of word i is the column 16 i + j (2 bits) or 8 i + j (4 bits). A ternary weight is alpha * (code - 1) with one alpha
a row; code 3 is unused. A 4-bit weight is code * scale + bias with one scale and bias a group of columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

TERNARY_BITS = 2
AFFINE_BITS = 4
TWN_THRESHOLD = 0.7  # of the row's mean absolute weight


def unpack_codes(words: Tensor, bits: int) -> Tensor:
    """Codes of packed words: uint32 [..., n * bits / 32] -> uint8 [..., n]."""
    # Torch shifts no uint32. The arithmetic shift of int32 smears the sign, which the mask removes again.
    signed = words.view(torch.int32).unsqueeze(-1)
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    codes = (signed >> shifts) & ((1 << bits) - 1)
    return codes.to(torch.uint8).flatten(-2)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """The inverse of unpack_codes: uint8 [..., n] -> uint32 [..., n * bits / 32].

    Raises ValueError when n does not fill whole words or a code does not fit its bits.
    """
    per_word = 32 // bits
    if codes.shape[-1] % per_word:
        raise ValueError(f"{codes.shape[-1]} codes do not fill whole words of {per_word}")
    if codes.numel() and int(codes.max()) >= 1 << bits:
        raise ValueError(f"code {int(codes.max())} does not fit {bits} bits")
    lanes = torch.unflatten(codes.to(torch.int64), -1, (-1, per_word))
    shifts = torch.arange(0, 32, bits, dtype=torch.int64, device=codes.device)
    words = (lanes << shifts).sum(-1)
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words)
    return signed.to(torch.int32).view(torch.uint32)


def unpack_ternary(words: Tensor) -> Tensor:
    """Signs of 2-bit words: uint32 [..., n / 16] -> int8 [..., n] in {-1, 0, 1}. Raises ValueError on the unused code 3."""
    codes = unpack_codes(words, TERNARY_BITS)
    if bool((codes == 3).any()):
        raise ValueError("code 3 stands in a 2-bit word; ternary weights use the codes 0, 1 and 2")
    return codes.to(torch.int8) - 1


def pack_ternary(signs: Tensor) -> Tensor:
    """The inverse of unpack_ternary: int8 [..., n] in {-1, 0, 1} -> uint32 [..., n / 16]."""
    return pack_codes((signs + 1).to(torch.uint8), TERNARY_BITS)


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The row-TWN quantiser of the model's training: float [..., n] -> (signs int8 [..., n], row_scale bfloat16 [...]).

    In float32: t = 0.7 mean|w|; a weight is kept where |w| > t (strict); alpha is the mean of the kept |w|, rounded to
    bfloat16. A row of zeros has alpha 0. On a row that is already {-alpha, 0, alpha} with a bfloat16 alpha it changes nothing.
    """
    magnitude = weight.float().abs()
    kept = magnitude > TWN_THRESHOLD * magnitude.mean(-1, keepdim=True)
    row_scale = (magnitude * kept).sum(-1) / kept.sum(-1).clamp(min=1)
    signs = weight.sign().to(torch.int8) * kept
    return signs, row_scale.to(torch.bfloat16)


def split_ternary_rows(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take ternary rows apart without loss: float [..., n] -> (signs int8 [..., n], row_scale [...], exact bool [...]).

    row_scale is the largest |w| of the row, in weight's dtype; exact tells which rows hold nothing but {-alpha, 0, alpha}
    (-0.0 is a zero). A NaN makes its row inexact.
    """
    magnitude = weight.abs()
    row_scale = magnitude.amax(-1)
    exact = ((magnitude == 0) | (magnitude == row_scale.unsqueeze(-1))).all(-1)
    return weight.sign().to(torch.int8), row_scale, exact


def ternary_matmul(x: Tensor, words: Tensor, row_scale: Tensor) -> Tensor:
    """x W^T for W = row_scale * signs: x [..., n], words uint32 [m, n / 16], row_scale [m] -> [..., m] in x's dtype."""
    signs = unpack_ternary(words).to(x.dtype)
    return (x @ signs.T) * row_scale.to(x.dtype)


def dequantise_affine(words: Tensor, scales: Tensor, biases: Tensor, bits: int = AFFINE_BITS) -> Tensor:
    """code * scale + bias in float32: words uint32 [m, n * bits / 32], scales and biases [m, n / group] -> float32 [m, n]."""
    codes = unpack_codes(words, bits).float()
    groups = torch.unflatten(codes, -1, (scales.shape[-1], -1))
    return (groups * scales.float().unsqueeze(-1) + biases.float().unsqueeze(-1)).flatten(-2)


def quantise_affine(weight: Tensor, group_size: int, bits: int = AFFINE_BITS) -> tuple[Tensor, Tensor, Tensor]:
    """Packed affine codes: float [m, n] -> (words uint32 [m, n * bits / 32], scales, biases bfloat16 [m, n / group_size]).

    Raises ValueError when groups do not divide the columns.
    """
    codes, scales, biases = affine_codes(weight, group_size, bits)
    return pack_codes(codes.flatten(-2).to(torch.uint8), bits), scales, biases


def affine_codes(weight: Tensor, group_size: int, bits: int = AFFINE_BITS) -> tuple[Tensor, Tensor, Tensor]:
    """Nearest affine codes: float [m, n] -> (codes float32 [m, groups, group_size], scales, biases bfloat16 [m, groups]).

    The group's smallest weight maps to code 0 and its largest to the last code. Codes are chosen against the rounded bfloat16
    scale and bias, since those are what a reader multiplies with. Raises ValueError when groups do not divide the columns.
    """
    if weight.shape[-1] % group_size:
        raise ValueError(f"{weight.shape[-1]} columns are not a multiple of the group size {group_size}")
    groups = torch.unflatten(weight.float(), -1, (-1, group_size))
    last_code = (1 << bits) - 1
    biases = groups.amin(-1).to(torch.bfloat16)
    scales = ((groups.amax(-1) - biases.float()) / last_code).to(torch.bfloat16)
    safe_scales = torch.where(scales == 0, torch.ones_like(scales), scales).float()
    codes = ((groups - biases.float().unsqueeze(-1)) / safe_scales.unsqueeze(-1)).round().clamp(0, last_code)
    return codes, scales, biases
