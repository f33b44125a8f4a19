"""The native kernels one by one: the library's table of functions, called with NumPy arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maple_spec.kernels import native

# In the order of csrc/maple.h: a letter an argument (p pointer, i int, l 64-bit int, f float).
SIGNATURES = {
    "quantise": "piippp",
    "quantise_plain": "piiippp",
    "ternary_rows": "ppiiipfip",
    "ternary_tile": "piipp",
    "finish": "pifipp",
    "affine_rows": "piiiiippfp",
    "bfloat16_rows": "piiippi",
    "norm": "ppifp",
    "norm_and_turn": "ppifppifp",
    "remember": "pilpp",
    "attend": "piippppp",
    "swiglu": "ppifp",
    "add_scaled": "pfpi",
    "read_all": "pl",
}
TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "f": ctypes.c_float}


class Memory(ctypes.Structure):
    """Keys and values of one head."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("keys", "key_scale", "values", "value_scale")] + [
        ("capacity", ctypes.c_int64)
    ]


class Kernels:
    """One variant's functions; arrays are handed over as pointers."""

    def __init__(self, variant: str) -> None:
        library = native.library()
        assert library is not None, "the kernels are not built"
        library.maple_kernels.restype = ctypes.POINTER(ctypes.c_void_p * (len(SIGNATURES) + 1))
        library.maple_kernels.argtypes = [ctypes.c_char_p]
        table = library.maple_kernels(variant.encode()).contents
        self.name = ctypes.string_at(table[0]).decode()
        self._functions = {
            name: ctypes.CFUNCTYPE(None, *(TYPES[letter] for letter in letters))(table[index])
            for index, (name, letters) in enumerate(SIGNATURES.items(), 1)
        }

    def __getattr__(self, name: str) -> Any:
        function = self._functions[name]

        def call(*arguments: Any) -> None:
            function(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments))

        return call

    def fixed_point(self, x: NDArray[np.float32], planes: int) -> tuple[NDArray[np.int8], float, int]:
        """Digits [planes * columns], scale and sum."""
        digits, scale, total = np.zeros(planes * len(x), np.int8), np.zeros(1, np.float32), np.zeros(1, np.int32)
        self.quantise(x, len(x), planes, digits, scale, total)
        return digits, float(scale[0]), int(total[0])


def plain_order(digits: NDArray[np.int8], planes: int) -> NDArray[np.int64]:
    """The fixed-point numbers that digits spell, in the order of the columns."""
    planes_of = digits.reshape(planes, -1, 4, 4).transpose(0, 1, 3, 2).reshape(planes, -1).astype(np.int64)
    return planes_of[0] * 256 + planes_of[1] if planes == 2 else planes_of[0]
