"""Packing moves words and loses nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.kernels.packed import AffineRows, pack_head, pack_ternary_rows, unpack_ternary_rows

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 3), st.integers(1, 70), st.integers(1, 5))
def test_unpacking_undoes_packing_for_any_rows_and_columns(seed: int, matrices: int, rows: int, units: int) -> None:
    draw = np.random.default_rng(seed)
    words = draw.integers(0, 2**32, (matrices, rows, units), dtype=np.uint32)
    scales = draw.random((matrices, rows), np.float32) * draw.integers(0, 2, (matrices, rows)).astype(np.float32)
    packed = pack_ternary_rows(words, scales)
    again, scales_again = unpack_ternary_rows(packed)
    assert np.array_equal(again, words)
    assert np.array_equal(scales_again, scales)
    assert packed.codes.shape == (matrices, -(-rows // 32), units, 32)


@given(SEEDS, st.integers(1, 40), st.integers(1, 3), st.sampled_from([16, 32, 64]), st.sampled_from([4, 8]))
def test_a_packed_head_holds_each_code_where_the_kernel_looks_for_it(
    seed: int, rows: int, groups: int, group_size: int, bits: int
) -> None:
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 2**bits, (rows, groups, group_size), dtype=np.uint8)
    flat = codes.reshape(rows, -1)
    bytes_ = flat if bits == 8 else flat[:, ::2] | flat[:, 1::2] << 4
    scales, biases = (draw.integers(0, 2**16, (rows, groups), dtype=np.uint16) for _ in range(2))
    packed = pack_head(AffineRows(np.ascontiguousarray(bytes_).view(np.uint32), scales, biases, bits)).data
    block = bits * group_size // 32 * 64
    padded = -(-rows // 16) * 16
    stored = packed.reshape(padded // 16, groups, block + 64)
    for row in range(rows):
        place = row % 16
        for group in range(groups):
            part = stored[row // 16, group]
            ends = part[block:].view(np.uint16)
            assert (ends[place], ends[16 + place]) == (scales[row, group], biases[row, group])
            words = part[:block].reshape(-1, 16, 4)[:, place].reshape(-1)
            half = group_size // 2
            found = words if bits == 8 else np.concatenate([words[:half] & 15, words[:half] >> 4])
            assert np.array_equal(found, codes[row, group])
