"""Operations on packed weights. Torch enters the project here."""

from maple_spec.kernels.reference import (
    AFFINE_BITS,
    TERNARY_BITS,
    affine_codes,
    dequantise_affine,
    pack_codes,
    pack_ternary,
    quantise_affine,
    quantise_rows,
    split_ternary_rows,
    ternary_matmul,
    unpack_codes,
    unpack_ternary,
)

__all__ = [
    "AFFINE_BITS",
    "TERNARY_BITS",
    "affine_codes",
    "dequantise_affine",
    "pack_codes",
    "pack_ternary",
    "quantise_affine",
    "quantise_rows",
    "split_ternary_rows",
    "ternary_matmul",
    "unpack_codes",
    "unpack_ternary",
]
