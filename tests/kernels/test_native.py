"""Each native kernel against its definition, and the instruction sets against each other, bit for bit where integers decide."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from maple_spec.kernels.native import variants
from maple_spec.kernels.packed import AffineRows, PackedTernary, pack_head, pack_ternary_rows
from tests.kernels.native_calls import Kernels, Memory, plain_order

SEEDS = st.integers(0, 2**32 - 1)
PLANES = st.sampled_from([1, 2])
EVERY = pytest.mark.parametrize("variant", variants())


def test_the_native_kernels_were_built() -> None:
    assert variants()[-1] == "plain"


def random_matrix(draw: np.random.Generator, rows: int, columns: int) -> tuple[NDArray[np.int64], PackedTernary]:
    """Signs [rows, columns] and the packed matrix; some rows are zeros."""
    signs = draw.integers(-1, 2, (rows, columns))
    signs[draw.random(rows) < 0.1] = 0
    codes = (signs + 1).astype(np.uint32).reshape(1, rows, columns // 16, 16)
    words = (codes << np.arange(0, 32, 2, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    scale = draw.random((1, rows), np.float32)
    return signs, pack_ternary_rows(words, scale)


def random_vector(draw: np.random.Generator, size: int, kind: str) -> NDArray[np.float32]:
    """Ordinary numbers, zeros, one outlier, or all at the ends of the range."""
    x = draw.standard_normal(size, np.float32)
    if kind == "zeros":
        x[:] = 0
    if kind == "outlier":
        x[draw.integers(size)] = 1000
    if kind == "ends":
        x = np.where(x > 0, np.float32(3), np.float32(-3))
    return x


KINDS = st.sampled_from(["ordinary", "zeros", "outlier", "ends"])


@EVERY
@given(SEEDS, st.integers(1, 20), PLANES, KINDS)
def test_fixed_point_is_the_nearest_and_its_digits_spell_it(
    variant: str, seed: int, units: int, planes: int, kind: str
) -> None:
    x = random_vector(np.random.default_rng(seed), 16 * units, kind)
    digits, scale, total = Kernels(variant).fixed_point(x, planes)
    q = plain_order(digits, planes)
    assert total == q.sum()
    assert np.abs(q).max() <= (127 if planes == 1 else 32512)
    assert np.abs(q * scale - x).max() <= scale * 0.505


@EVERY
@given(SEEDS, st.integers(1, 70), st.integers(1, 9), PLANES, KINDS)
def test_a_ternary_product_is_exact_in_integers(variant: str, seed: int, rows: int, units: int, planes: int, kind: str) -> None:
    draw, kernels = np.random.default_rng(seed), Kernels(variant)
    signs, packed = random_matrix(draw, rows, 16 * units)
    digits, scale, total = kernels.fixed_point(random_vector(draw, 16 * units, kind), planes)
    y = np.empty(packed.row_scale.size, np.float32)
    groups = len(y) // 32
    kernels.ternary_rows(packed.codes, packed.row_scale, groups, 16 * units, planes, digits, scale, total, y)
    sums = signs @ plain_order(digits, planes)
    expected = sums.astype(np.float32) * np.float32(scale) * packed.row_scale[0, :rows]
    assert np.array_equal(y[:rows], expected)
    assert not y[rows:].any()


@EVERY
@given(SEEDS, st.integers(1, 5), st.integers(1, 4), PLANES)
def test_a_tile_of_vectors_gives_each_the_bits_that_it_has_alone(
    variant: str, seed: int, units: int, count: int, planes: int
) -> None:
    draw, kernels, columns = np.random.default_rng(seed), Kernels(variant), 16 * units
    _, packed = random_matrix(draw, 32, columns)
    vectors = [kernels.fixed_point(random_vector(draw, columns, "ordinary"), planes) for _ in range(count)]
    words = np.stack([digits.reshape(planes, -1).view(np.int32) for digits, _, _ in vectors])
    tile = np.ascontiguousarray(words.transpose(2, 0, 1))  # [columns / 4, count, planes]
    sums = np.empty((count, planes, 32), np.int32)
    kernels.ternary_tile(packed.codes, columns, count * planes, tile, sums)
    for (digits, scale, total), own in zip(vectors, sums, strict=True):
        together, alone = np.empty(32, np.float32), np.empty(32, np.float32)
        kernels.finish(np.ascontiguousarray(own), planes, scale, total, packed.row_scale, together)
        kernels.ternary_rows(packed.codes, packed.row_scale, 1, columns, planes, digits, scale, total, alone)
        assert np.array_equal(together, alone)


@EVERY
@pytest.mark.parametrize("digit", [-128, 127])
@pytest.mark.parametrize("code", [0, 2])
@pytest.mark.parametrize("columns", [16, 112, 128, 144, 2048])
def test_the_largest_digits_and_codes_of_all_do_not_overflow(variant: str, digit: int, code: int, columns: int) -> None:
    kernels = Kernels(variant)
    signs = np.full((32, columns), code - 1)
    words = np.full((1, 32, columns // 16), 0x55555555 * code, np.uint32)
    packed = pack_ternary_rows(words, np.ones((1, 32), np.float32))
    digits = np.full(2 * columns, digit, np.int8)
    total = 257 * digit * columns
    y = np.empty(32, np.float32)
    kernels.ternary_rows(packed.codes, packed.row_scale, 1, columns, 2, digits, 1.0, total, y)
    assert np.array_equal(y, (signs.sum(1) * 257 * digit).astype(np.float32))
    tile, sums = np.full((columns // 4, 8), 0x01010101 * (digit % 256), np.uint32).view(np.int32), np.empty((8, 32), np.int32)
    kernels.ternary_tile(packed.codes, columns, 8, tile, sums)
    assert (sums == code * digit * columns).all()


@pytest.mark.parametrize("planes", [1, 2])
def test_ternary_products_have_the_same_bits_in_every_instruction_set(planes: int) -> None:
    draw = np.random.default_rng(7)
    _, packed = random_matrix(draw, 96, 2048)
    x = random_vector(draw, 2048, "outlier")
    results = []
    for variant in variants():
        kernels, y = Kernels(variant), np.empty(96, np.float32)
        digits, scale, total = kernels.fixed_point(x, planes)
        kernels.ternary_rows(packed.codes, packed.row_scale, 3, 2048, planes, digits, scale, total, y)
        results.append((digits.tobytes(), scale, y.tobytes()))
    assert results.count(results[0]) == len(results)


@EVERY
@given(SEEDS, st.integers(1, 40), st.integers(1, 3), st.sampled_from([16, 32, 64]), st.sampled_from([4, 8]), PLANES)
def test_an_affine_head_is_code_times_scale_plus_bias(
    variant: str, seed: int, rows: int, groups: int, group_size: int, bits: int, planes: int
) -> None:
    draw, kernels, columns = np.random.default_rng(seed), Kernels(variant), groups * group_size
    codes = draw.integers(0, 2**bits, (rows, columns), dtype=np.uint8)
    bytes_ = codes if bits == 8 else codes[:, ::2] | codes[:, 1::2] << 4
    scales, biases = (bfloat16(draw.standard_normal((rows, groups), np.float32)) for _ in range(2))
    packed = pack_head(AffineRows(np.ascontiguousarray(bytes_).view(np.uint32), scales, biases, bits)).data
    x = random_vector(draw, columns, "ordinary")
    digits, scale, sums = np.empty(planes * columns, np.int8), np.empty(1, np.float32), np.empty(groups, np.int32)
    kernels.quantise_plain(x, columns, group_size, planes, digits, scale, sums)
    y = np.empty(-(-rows // 16) * 16, np.float32)
    kernels.affine_rows(packed, len(y) // 16, columns, group_size, bits, planes, digits, sums, float(scale[0]), y)
    q = digits.astype(np.int64).reshape(planes, columns)
    fixed = (q[0] * 256 + q[1] if planes == 2 else q[0]) * np.float64(scale[0])
    weights = codes.reshape(rows, groups, group_size) * widened(scales)[..., None] + widened(biases)[..., None]
    expected = weights.reshape(rows, columns) @ fixed
    bound = np.abs(weights.reshape(rows, columns)) @ np.abs(fixed) * 1e-5 + 1e-6
    assert (np.abs(y[:rows] - expected) <= bound).all()


@EVERY
@given(SEEDS, st.integers(1, 9), st.integers(1, 7), st.integers(1, 9))
def test_bfloat16_rows_give_a_vector_the_same_bits_alone_and_among_others(
    variant: str, seed: int, rows: int, units: int, vectors: int
) -> None:
    draw, kernels, columns = np.random.default_rng(seed), Kernels(variant), 16 * units
    weights = bfloat16(draw.standard_normal((rows, columns), np.float32))
    x = draw.standard_normal((vectors, columns), np.float32)
    y = np.empty((vectors, rows), np.float32)
    kernels.bfloat16_rows(weights, rows, columns, vectors, x, y, rows)
    np.testing.assert_allclose(y, x.astype(np.float64) @ widened(weights).T.astype(np.float64), rtol=1e-4, atol=1e-4)
    for i in range(vectors):
        alone = np.empty(rows, np.float32)
        kernels.bfloat16_rows(weights, rows, columns, 1, x[i].copy(), alone, 0)
        assert np.array_equal(alone, y[i])


@EVERY
@settings(max_examples=40)
@given(SEEDS, st.sampled_from([16, 32, 48]), st.integers(1, 8), st.integers(0, 90), st.integers(1, 40), st.booleans())
def test_attention_is_the_softmax_over_the_positions_that_a_query_sees(
    variant: str, seed: int, dim: int, count: int, last: int, window: int, ring: bool
) -> None:
    draw, kernels = np.random.default_rng(seed), Kernels(variant)
    capacity = -(-(window + count + 16) // 16) * 16 if ring else 112
    buffers = [np.zeros(capacity * dim, np.int16), np.zeros(capacity, np.float32)] * 2
    buffers = [buffer.copy() for buffer in buffers]
    memory = Memory(*(buffer.ctypes.data for buffer in buffers), capacity)
    keys, values = (draw.standard_normal((last + 1, dim), np.float32) for _ in range(2))
    for position in range(last + 1):
        kernels.remember(ctypes.addressof(memory), dim, position, keys[position].copy(), values[position].copy())
    queries = draw.standard_normal((count, dim), np.float32)
    lasts = np.maximum(0, last - np.arange(count))[::-1].astype(np.int64).copy()
    firsts = np.maximum(0, lasts - window + 1)
    out = np.empty((count, dim), np.float32)
    scores = np.empty(count * (last // 16 + 2) * 16, np.float32)
    kernels.attend(ctypes.addressof(memory), dim, count, queries, firsts, lasts, scores, out)
    for i in range(count):
        seen = slice(int(firsts[i]), int(lasts[i]) + 1)
        weights = np.exp(queries[i].astype(np.float64) @ keys[seen].T - (queries[i] @ keys[seen].T).max())
        np.testing.assert_allclose(out[i], weights @ values[seen] / weights.sum(), rtol=1e-3, atol=2e-3)
        alone = np.empty(dim, np.float32)
        kernels.attend(ctypes.addressof(memory), dim, 1, queries[i].copy(), firsts[i:].copy(), lasts[i:].copy(), scores, alone)
        assert np.array_equal(alone, out[i]), "a query beside others must not see another result"


@EVERY
@given(SEEDS, st.integers(1, 8))
def test_swiglu_clamps_the_gate_above_and_the_up_on_both_sides(variant: str, seed: int, units: int) -> None:
    draw, size = np.random.default_rng(seed), 16 * units
    gate, up = (draw.standard_normal(size, np.float32) * 20 for _ in range(2))
    out = np.empty(size, np.float32)
    Kernels(variant).swiglu(gate, up, size, 7.0, out)
    g = np.minimum(gate.astype(np.float64), 7)
    np.testing.assert_allclose(out, g / (1 + np.exp(-g)) * np.clip(up, -7, 7), rtol=3e-6, atol=1e-7)


@EVERY
@given(SEEDS, st.integers(1, 8), st.integers(0, 8))
def test_a_norm_divides_by_the_root_of_the_mean_square_and_a_turn_keeps_lengths(
    variant: str, seed: int, units: int, half: int
) -> None:
    draw, kernels, size = np.random.default_rng(seed), Kernels(variant), 16 * units
    x, weight = (draw.standard_normal(size, np.float32) for _ in range(2))
    out, turned = np.empty(size, np.float32), np.empty(size, np.float32)
    kernels.norm(x, weight, size, 1e-6, out)
    np.testing.assert_allclose(out, x * weight / np.sqrt((x.astype(np.float64) ** 2).mean() + 1e-6), rtol=1e-5, atol=1e-7)
    angle = draw.random(max(half, 1), np.float32) * 6
    kernels.norm_and_turn(x, weight, size, 1e-6, np.cos(angle), np.sin(angle), half, 0.5, turned)
    pairs = (out[:half] + 1j * out[half : 2 * half]) * np.exp(1j * angle[:half])
    expected = np.concatenate([pairs.real, pairs.imag, out[2 * half :]]) * 0.5
    np.testing.assert_allclose(turned, expected, rtol=1e-4, atol=1e-5)


def bfloat16(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of the bits."""
    return np.ascontiguousarray(x.view(np.uint32) >> 16).astype(np.uint16)


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers that bfloat16 bits mean."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
