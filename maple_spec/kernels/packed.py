"""Packed weights: the layouts in which the native kernels read them, made from the checkpoint's codes without loss.

Ternary rows come in groups of 32 and columns in units of 16, padded with zero weights; a group's units follow each other, 32
words each, one a row. That is a transpose of the official 2-bit words, so packing moves words and never touches a bit. Head
rows come in groups of 16. csrc/maple.h states both layouts to the byte.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GROUP_ROWS = 32
UNIT_COLUMNS = 16
HEAD_ROWS = 16
ZERO_WORD = 0x55555555  # sixteen times code 1

Words = NDArray[np.uint32]
Bytes = NDArray[np.uint8]
Halves = NDArray[np.uint16]  # bfloat16, by its bits
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PackedTernary:
    """A ternary matrix, or several of one shape after each other. weight = row_scale * (code - 1).

    codes: uint32 [matrices, groups, columns / 16, 32]; row_scale: float32 [matrices, 32 * groups], 0 in padding.
    """

    codes: Words
    row_scale: Floats
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        """Bytes that a product with all matrices reads."""
        return self.codes.nbytes + self.row_scale.nbytes


def pack_ternary_rows(words: Words, row_scale: Floats) -> PackedTernary:
    """words: uint32 [matrices, rows, columns / 16] as the official layout has them; row_scale: float32 [matrices, rows]."""
    matrices, rows, units = words.shape
    padding = -rows % GROUP_ROWS
    if padding:
        words = np.concatenate([words, np.full((matrices, padding, units), ZERO_WORD, np.uint32)], axis=1)
        row_scale = np.concatenate([row_scale, np.zeros((matrices, padding), np.float32)], axis=1)
    grouped = words.reshape(matrices, -1, GROUP_ROWS, units)
    codes = np.ascontiguousarray(grouped.transpose(0, 1, 3, 2))
    return PackedTernary(codes, np.ascontiguousarray(row_scale, dtype=np.float32), rows, units * UNIT_COLUMNS)


def unpack_ternary_rows(packed: PackedTernary) -> tuple[Words, Floats]:
    """The inverse of pack_ternary_rows: words [matrices, rows, columns / 16] and row_scale [matrices, rows]."""
    matrices = packed.codes.shape[0]
    words = packed.codes.transpose(0, 1, 3, 2).reshape(matrices, -1, packed.columns // UNIT_COLUMNS)
    return np.ascontiguousarray(words[:, : packed.rows]), packed.row_scale[:, : packed.rows]


@dataclass(frozen=True, slots=True)
class AffineRows:
    """Rows in 4 or 8 bits as a checkpoint holds them: weight = code * scale + bias, one of each a group of columns.

    words: uint32 [rows, columns * bits / 32], codes least significant first; scales, biases: bfloat16 [rows, groups].
    """

    words: Words
    scales: Halves
    biases: Halves
    bits: int

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.words.nbytes + self.scales.nbytes + self.biases.nbytes

    @property
    def columns(self) -> int:
        """Weights of a row."""
        return int(self.words.shape[1]) * 32 // self.bits

    @property
    def group_size(self) -> int:
        """Columns of a group."""
        return self.columns // int(self.scales.shape[1])


@dataclass(frozen=True, slots=True)
class PackedHead:
    """Affine rows in the order in which the head kernel reads them: one group of 16 rows after the other."""

    data: Bytes
    rows: int
    columns: int
    bits: int
    group_size: int

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.data.nbytes


def pack_head(rows: AffineRows) -> PackedHead:
    """Affine rows, packed; the last group is filled with rows of zeros."""
    count, columns, group = len(rows.words), rows.columns, rows.group_size
    groups, padding = columns // group, -count % HEAD_ROWS
    step = 4096  # rows at a time: the codes are unpacked to bytes on the way
    parts = []
    for start in range(0, count + padding, step):
        words = _padded(rows.words[start : start + step], start, step, count + padding)
        scales = _padded(rows.scales[start : start + step], start, step, count + padding)
        biases = _padded(rows.biases[start : start + step], start, step, count + padding)
        codes: Bytes = words.view(np.uint8)
        if rows.bits == 4:
            halves = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(words), groups, 2, group // 2)
            codes = (halves[:, :, 0] | halves[:, :, 1] << 4).astype(np.uint8)
        blocks = codes.reshape(-1, HEAD_ROWS, groups, rows.bits * group // 32, 4).transpose(0, 2, 3, 1, 4)
        ends = np.stack([scales, biases], axis=-1).reshape(-1, HEAD_ROWS, groups, 2).transpose(0, 2, 3, 1)
        parts.append(
            np.concatenate(
                [
                    blocks.reshape(len(blocks), groups, -1),
                    np.ascontiguousarray(ends).view(np.uint8).reshape(len(blocks), groups, -1),
                ],
                axis=2,
            ).reshape(-1)
        )
    return PackedHead(np.concatenate(parts), count, columns, rows.bits, group)


def _padded(part: NDArray[np.generic], start: int, step: int, total: int) -> NDArray[np.generic]:
    missing = min(step, total - start) - len(part)
    return np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)]) if missing else part
