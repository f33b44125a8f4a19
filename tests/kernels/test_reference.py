"""The reference operations against the formats' definitions, written out weight by weight."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from maple_spec import kernels

BITS = st.sampled_from([2, 4, 8])


@st.composite
def code_rows(draw: st.DrawFn, bits: int) -> list[list[int]]:
    """A matrix of codes whose rows fill whole words."""
    width = draw(st.integers(1, 5)) * (32 // bits)
    row = st.lists(st.integers(0, (1 << bits) - 1), min_size=width, max_size=width)
    return draw(st.lists(row, min_size=1, max_size=4))


@st.composite
def ternary_rows(draw: st.DrawFn) -> Tensor:
    """A float32 matrix of rows {-alpha, 0, alpha} with bfloat16 alphas; zeros of either sign, rows of zeros among them."""
    width = draw(st.integers(1, 4)) * 16
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        alpha = draw(st.floats(0, 8, width=32))
        signs = draw(st.lists(st.sampled_from([-1.0, -0.0, 0.0, 1.0]), min_size=width, max_size=width))
        rows.append(torch.tensor(alpha).bfloat16().float() * torch.tensor(signs))
    return torch.stack(rows)


@given(st.data(), BITS)
def test_unpacking_undoes_packing(data: st.DataObject, bits: int) -> None:
    codes = torch.tensor(data.draw(code_rows(bits)), dtype=torch.uint8)
    words = kernels.pack_codes(codes, bits)
    assert words.dtype == torch.uint32
    assert words.shape == (codes.shape[0], codes.shape[1] * bits // 32)
    assert torch.equal(kernels.unpack_codes(words, bits), codes)


@given(st.data(), BITS)
def test_a_word_holds_its_codes_least_significant_first(data: st.DataObject, bits: int) -> None:
    codes = data.draw(code_rows(bits))
    words = kernels.pack_codes(torch.tensor(codes, dtype=torch.uint8), bits).tolist()
    per_word = 32 // bits
    for row, packed in zip(codes, words, strict=True):
        for index, word in enumerate(packed):
            assert word == sum(code << bits * lane for lane, code in enumerate(row[per_word * index : per_word * (index + 1)]))


def test_a_known_word() -> None:
    """The official layout: 0 -> -alpha, 1 -> 0, 2 -> +alpha; the first column is in the lowest bits, the sign bit is in use."""
    words = torch.tensor([[0b10_00_01_10_10_01_00_10_01_01_01_01_01_01_00_10]], dtype=torch.uint32)
    assert kernels.unpack_ternary(words).tolist() == [[1, -1, 0, 0, 0, 0, 0, 0, 1, -1, 0, 1, 1, 0, -1, 1]]


@pytest.mark.parametrize("codes", [[3] + [1] * 15, [1] * 15 + [3]])
def test_code_3_is_refused(codes: list[int]) -> None:
    with pytest.raises(ValueError, match="code 3"):
        kernels.unpack_ternary(kernels.pack_codes(torch.tensor(codes, dtype=torch.uint8), 2))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="15 codes do not fill whole words"):
        kernels.pack_codes(torch.zeros(15, dtype=torch.uint8), 2)
    with pytest.raises(ValueError, match="code 4 does not fit 2 bits"):
        kernels.pack_codes(torch.full((16,), 4, dtype=torch.uint8), 2)
    with pytest.raises(ValueError, match="10 columns"):
        kernels.quantise_affine(torch.zeros(1, 10), 8)


@given(ternary_rows())
def test_taking_ternary_rows_apart_loses_nothing(weight: Tensor) -> None:
    signs, row_scale, exact = kernels.split_ternary_rows(weight)
    assert bool(exact.all())
    assert torch.equal(signs.float() * row_scale.unsqueeze(-1), weight)
    assert torch.equal(kernels.unpack_ternary(kernels.pack_ternary(signs)), signs)


@given(ternary_rows())
def test_the_quantiser_leaves_ternary_rows_as_they_are(weight: Tensor) -> None:
    """mean|w| <= alpha, so every nonzero weight passes 0.7 mean|w|, and the mean of equal weights is their value."""
    signs, row_scale = kernels.quantise_rows(weight)
    assert row_scale.dtype == torch.bfloat16
    assert torch.equal(signs.float() * row_scale.float().unsqueeze(-1), weight)


@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=24))
def test_the_quantiser_is_the_row_rule(row: list[float]) -> None:
    signs, row_scale = kernels.quantise_rows(torch.tensor([row], dtype=torch.float32))
    threshold = 0.7 * math.fsum(abs(w) for w in row) / len(row)
    # float32 and exact arithmetic may disagree on a weight that stands on the threshold.
    if any(math.isclose(abs(w), threshold, rel_tol=1e-5) for w in row):
        return
    kept = [w for w in row if abs(w) > threshold]
    assert signs.tolist()[0] == [0 if abs(w) <= threshold else int(math.copysign(1, w)) for w in row]
    alpha = math.fsum(abs(w) for w in kept) / max(len(kept), 1)
    assert math.isclose(float(row_scale), alpha, rel_tol=2**-8, abs_tol=1e-37)


@pytest.mark.parametrize("row", [[1.0, 0.5], [1.0, float("nan")], [float("nan"), float("nan")]])
def test_other_rows_are_seen(row: list[float]) -> None:
    assert kernels.split_ternary_rows(torch.tensor([row, [0.0, 0.0]]))[2].tolist() == [False, True]


@given(ternary_rows(), st.integers(0, 3), st.integers(0, 2**32))
def test_the_ternary_product_is_the_product_with_the_weights(weight: Tensor, rows: int, seed: int) -> None:
    signs, row_scale, _ = kernels.split_ternary_rows(weight)
    x = torch.randn(rows, weight.shape[1], generator=torch.Generator().manual_seed(seed))
    product = kernels.ternary_matmul(x, kernels.pack_ternary(signs), row_scale.bfloat16())
    torch.testing.assert_close(product.double(), x.double() @ weight.double().T, rtol=1e-5, atol=1e-4)


@given(st.data())
def test_affine_weights_are_code_times_scale_plus_bias(data: st.DataObject) -> None:
    codes = data.draw(code_rows(4))
    groups = data.draw(st.sampled_from([1, 2]))
    row = st.lists(st.floats(-4, 4, width=16), min_size=groups, max_size=groups)
    table = torch.tensor(data.draw(st.lists(row, min_size=len(codes), max_size=len(codes))))
    scales, biases = table.bfloat16(), (table * -2).bfloat16()
    weight = kernels.dequantise_affine(kernels.pack_codes(torch.tensor(codes, dtype=torch.uint8), 4), scales, biases)
    size = len(codes[0]) // groups
    for line, scale, bias, values in zip(codes, scales.tolist(), biases.tolist(), weight.tolist(), strict=True):
        expected = [code * scale[column // size] + bias[column // size] for column, code in enumerate(line)]
        assert values == pytest.approx(expected, rel=1e-6)


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.sampled_from([8, 32]))
def test_affine_quantisation_is_off_by_little_more_than_half_a_step(seed: int, size: float, group: int) -> None:
    weight = torch.randn(3, 64, generator=torch.Generator().manual_seed(seed)) * size
    words, scales, biases = kernels.quantise_affine(weight, group)
    assert scales.dtype == biases.dtype == torch.bfloat16
    step = scales.float().repeat_interleave(group, dim=1)
    # Rounding scale and bias to bfloat16 moves the ends of the range by up to 2^-8 of their size.
    slack = 2**-7 * weight.abs().amax()
    assert bool(((kernels.dequantise_affine(words, scales, biases) - weight).abs() <= step / 2 + slack).all())


@given(st.floats(-8, 8, width=16))
def test_a_group_of_equal_weights_is_exact(value: float) -> None:
    weight = torch.full((2, 16), value).bfloat16().float()
    assert torch.equal(kernels.dequantise_affine(*kernels.quantise_affine(weight, 8)), weight)
