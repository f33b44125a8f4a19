"""The binding to the native kernels: loads the library, checks shapes once, and hands over pointers.

The library is plain C underneath, so that building it needs neither torch nor Python headers. Where it was not built, or the
processor runs none of its variants, `variants()` is empty and the reference serves.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maple_spec.kernels.packed import AffineRows, Floats, Halves, PackedHead, PackedTernary

LIBRARY = "libmaple_kernels.so"
PLANES = {"int8": 1, "int16": 2}  # digits of an activation, by the name of its format
BLOCK = 16  # positions of a sequence that are copied together; csrc's kLanes
LARGEST_HEAD = 1024  # dimensions of a head; csrc/forward.cpp keeps so much on its stack


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("qkv", "out", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("qkv_scale", "out_scale", "gate_up_scale", "down_scale")),
        ("router", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("attention_norm", "expert_norm", "query_gain", "key_gain")),
        ("window", ctypes.c_int32),
        ("turns", ctypes.c_int32),
    ]


class _Matrix(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "scales", "biases")),
        *((name, ctypes.c_int32) for name in ("bits", "group_size")),
    ]


_SIZES = (
    "vocabulary",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "width",
    "experts",
    "experts_per_token",
    "layers",
    "rotary_half",
)


class _Description(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in (*_SIZES, "planes", "threads", "chunk", "shares_of_chosen")),
        *((name, ctypes.c_float) for name in ("eps", "theta", "limit")),
        ("layer", ctypes.POINTER(_Layer)),
        ("final_norm", ctypes.c_void_p),
        ("embedding", _Matrix),
        ("head", _Matrix),
    ]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The weights of a layer. qkv: queries', keys' and values' rows below each other; gate_up: an expert's gate, then its up.

    router: bfloat16 bits [experts, hidden]; norms float32 [hidden]; gains float32 [head_dim]. window: keys seen, None is all.
    """

    qkv: PackedTernary
    out: PackedTernary
    gate_up: PackedTernary
    down: PackedTernary
    router: Halves
    attention_norm: Floats
    expert_norm: Floats
    query_gain: Floats
    key_gain: Floats
    window: int | None
    turns: bool


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """A whole model. embedding, head: in 4 or 8 bits, or bfloat16 bits [vocabulary, hidden]."""

    layers: Sequence[LayerWeights]
    embedding: AffineRows | Halves
    head: PackedHead | Halves
    final_norm: Floats
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    experts: int
    experts_per_token: int
    rotary_dim: int
    norm_topk_prob: bool
    rms_norm_eps: float
    rope_theta: float
    swiglu_limit: float

    @property
    def bytes_a_token(self) -> int:
        """Bytes of weights that one decoded token reads, the experts' share of those that it chooses."""
        chosen = self.experts_per_token / self.experts
        layers = sum(
            layer.qkv.nbytes + layer.out.nbytes + layer.router.nbytes + chosen * (layer.gate_up.nbytes + layer.down.nbytes)
            for layer in self.layers
        )
        return int(layers) + self.head.nbytes


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None where it was not built."""
    for path in _places():
        if path.is_file():
            return _declared(ctypes.CDLL(str(path)))
    return None


def _places() -> list[Path]:
    """Beside this file in an installed package; in an editable install, where the installer put it."""
    places = [Path(__file__).with_name(LIBRARY)]
    try:
        files = importlib.metadata.files("maple-openapi") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    return [*places, *(Path(str(file.locate())) for file in files if file.name == LIBRARY)]


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int
    loaded.maple_variants.restype = ctypes.c_char_p
    loaded.maple_model_new.restype = pointer
    loaded.maple_model_new.argtypes = [ctypes.POINTER(_Description), ctypes.c_char_p]
    loaded.maple_model_free.argtypes = [pointer]
    loaded.maple_model_free.restype = None
    loaded.maple_cache_new.restype = pointer
    loaded.maple_cache_new.argtypes = [pointer, ctypes.c_int64]
    loaded.maple_cache_free.argtypes = [pointer]
    loaded.maple_cache_free.restype = None
    loaded.maple_cache_reset.argtypes = [pointer]
    loaded.maple_cache_reset.restype = None
    loaded.maple_cache_block_bytes.argtypes = [pointer]
    loaded.maple_cache_block_bytes.restype = ctypes.c_int64
    loaded.maple_cache_interrupted.argtypes = [pointer]
    loaded.maple_cache_copy_out.argtypes = [pointer, ctypes.c_int64, pointer]
    loaded.maple_cache_copy_out.restype = None
    loaded.maple_cache_copy_in.argtypes = [pointer, pointer, ctypes.c_int64]
    loaded.maple_cache_copy_in.restype = None
    loaded.maple_cache_seek.argtypes = [pointer, ctypes.c_int64]
    loaded.maple_cache_seek.restype = None
    loaded.maple_read.argtypes = [ctypes.c_char_p, pointer, ctypes.c_int64, number]
    loaded.maple_read.restype = ctypes.c_uint32
    loaded.maple_cache_interrupt.argtypes = [pointer]
    loaded.maple_cache_interrupt.restype = None
    loaded.maple_forward.argtypes = [pointer, pointer, pointer, number, pointer, number]
    loaded.maple_forward.restype = None
    return loaded


@cache
def variants() -> tuple[str, ...]:
    """The instruction sets that library and processor have in common, best first."""
    loaded = library()
    return tuple(loaded.maple_variants().decode().split(",")) if loaded is not None else ()


def read_memory(memory: NDArray[np.uint8], *, variant: str, threads: int) -> None:
    """Read memory as fast as the threads can; for measurements. Bytes behind the last whole 256 are left out."""
    loaded = library()
    assert loaded is not None, "variants() is empty then"
    loaded.maple_read(variant.encode(), memory.ctypes.data, memory.nbytes // 256 * 256, threads)


class NativeModel:
    """A model in the native kernels. One thread at a time may call it."""

    def __init__(
        self, weights: ModelWeights, *, variant: str | None = None, planes: int = 2, threads: int = 1, chunk: int = 512
    ) -> None:
        """variant: an instruction set of variants(), the best by default. planes: digits of an activation, 1 (int8), 2 (int16).

        chunk: most tokens of one call. Raises ValueError where a size is none that the kernels take.
        """
        loaded = library()
        if loaded is None:
            raise ValueError("the native kernels were not built")
        self._library, self.weights = loaded, weights
        self.variant = variant or variants()[0]
        if self.variant not in variants():
            raise ValueError(f"this machine has the kernels {', '.join(variants())}, not {variant}")
        head = weights.head
        self.vocab_size, self.hidden = (head.rows, head.columns) if isinstance(head, PackedHead) else head.shape
        self.chunk = chunk
        self._kept: list[NDArray[Any]] = []  # what the library points to
        _check(weights, self.hidden)
        description = self._describe(planes, threads)
        self._handle = loaded.maple_model_new(ctypes.byref(description), self.variant.encode())
        if not self._handle:
            raise MemoryError("the kernels could not allocate their buffers")
        self._logits = np.empty(self.vocab_size, np.float32)

    def _describe(self, planes: int, threads: int) -> _Description:
        weights = self.weights
        layers = (_Layer * len(weights.layers))(*map(self._layer, weights.layers))
        self._layers = layers
        return _Description(
            vocabulary=self.vocab_size,
            hidden=self.hidden,
            heads=weights.heads,
            kv_heads=weights.kv_heads,
            head_dim=weights.head_dim,
            width=weights.width,
            experts=weights.experts,
            experts_per_token=weights.experts_per_token,
            layers=len(layers),
            rotary_half=weights.rotary_dim // 2,
            planes=planes,
            threads=threads,
            chunk=self.chunk,
            shares_of_chosen=weights.norm_topk_prob,
            eps=weights.rms_norm_eps,
            theta=weights.rope_theta,
            limit=weights.swiglu_limit,
            layer=layers,
            final_norm=self._pointer(weights.final_norm),
            embedding=self._embedding(weights.embedding),
            head=self._head(weights.head),
        )

    def _layer(self, layer: LayerWeights) -> _Layer:
        matrices = {"qkv": layer.qkv, "out": layer.out, "gate_up": layer.gate_up, "down": layer.down}
        codes = {name: self._pointer(matrix.codes) for name, matrix in matrices.items()}
        scales = {f"{name}_scale": self._pointer(matrix.row_scale) for name, matrix in matrices.items()}
        vectors = ("router", "attention_norm", "expert_norm", "query_gain", "key_gain")
        others = {name: self._pointer(getattr(layer, name)) for name in vectors}
        return _Layer(**codes, **scales, **others, window=layer.window or 0, turns=layer.turns)

    def _embedding(self, rows: AffineRows | Halves) -> _Matrix:
        if isinstance(rows, AffineRows):
            parts = (self._pointer(rows.words), self._pointer(rows.scales), self._pointer(rows.biases))
            return _Matrix(*parts, rows.bits, rows.group_size)
        return _Matrix(self._pointer(rows), None, None, 16, 0)

    def _head(self, rows: PackedHead | Halves) -> _Matrix:
        if isinstance(rows, PackedHead):
            return _Matrix(self._pointer(rows.data), None, None, rows.bits, rows.group_size)
        return _Matrix(self._pointer(rows), None, None, 16, 0)

    def _pointer(self, array: NDArray[Any]) -> int:
        assert array.flags.c_contiguous
        self._kept.append(array)
        return array.ctypes.data

    def new_cache(self, context: int) -> NativeCache:
        """Memory for a sequence of at most so many tokens."""
        return NativeCache(self._library, self._handle, context)

    def forward(self, token_ids: Sequence[int], cache: NativeCache, *, every: bool = False) -> Floats:
        """The logits behind the last token, float32 [vocab_size], or with every behind each: [tokens, vocab_size].

        The cache grows by the tokens. Raises ValueError for none, for more than a chunk, and for more than the context holds.
        """
        count = len(token_ids)
        if not 1 <= count <= self.chunk or cache.length + count > cache.context:
            raise ValueError(f"{count} tokens behind {cache.length}: at most {self.chunk} a call, {cache.context} in all")
        ids = np.asarray(token_ids, np.int32)
        if ids.min() < 0 or ids.max() >= self.vocab_size:
            raise ValueError(f"a token id is outside the vocabulary of {self.vocab_size}")
        logits = np.empty((count, self.vocab_size) if every else self.vocab_size, np.float32)
        self._library.maple_forward(self._handle, cache.handle, ids.ctypes.data, count, logits.ctypes.data, every)
        cache.length += count
        return logits

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.maple_model_free(self._handle)


class NativeCache:
    """The keys and values of one sequence; length is the number of tokens seen."""

    def __init__(self, loaded: ctypes.CDLL, model: int, context: int) -> None:
        self.length, self.context = 0, context
        self._library = loaded
        self.handle = loaded.maple_cache_new(model, context)
        if not self.handle:
            raise MemoryError(f"no memory for the keys and values of {context} tokens")
        self.block_bytes: int = loaded.maple_cache_block_bytes(self.handle)  # size of what copy_out writes

    def interrupt(self) -> None:
        """Make each call with this cache return soon, the one that runs too; from any thread. Its logits mean nothing."""
        self._library.maple_cache_interrupt(self.handle)

    def reset(self) -> None:
        """Begin another sequence in the same memory, and forget an interruption."""
        self._library.maple_cache_reset(self.handle)
        self.length = 0

    @property
    def interrupted(self) -> bool:
        """Whether interrupt() was called since the last reset()."""
        return bool(self._library.maple_cache_interrupted(self.handle))

    def copy_out(self, position: int, block: NDArray[np.uint8]) -> None:
        """Write the keys and values of BLOCK positions, seen a short while ago, into block: uint8 [block_bytes]."""
        if position % BLOCK or not 0 <= position <= self.length - BLOCK:
            raise ValueError(f"no block begins at position {position} of {self.length}")
        self._library.maple_cache_copy_out(self.handle, position, self._address(block))

    def copy_in(self, blocks: Sequence[NDArray[np.uint8]]) -> None:
        """Stand where the tokens of these blocks, copied out at positions 0, BLOCK, ..., have been seen."""
        if len(blocks) * BLOCK > self.context:
            raise ValueError(f"{len(blocks)} blocks are more than the context of {self.context}")
        addresses = np.array([self._address(block) for block in blocks], np.uintp)
        self._library.maple_cache_copy_in(self.handle, addresses.ctypes.data, len(blocks))
        self.length = len(blocks) * BLOCK

    def _address(self, block: NDArray[np.uint8]) -> int:
        if block.shape != (self.block_bytes,) or block.dtype != np.uint8 or not block.flags.c_contiguous:
            raise ValueError(f"a block is {self.block_bytes} bytes")
        return block.ctypes.data

    def seek(self, position: int) -> None:
        """Stand where so many tokens have been seen, whatever they were: for measurements."""
        if not 0 <= position <= self.context:
            raise ValueError(f"position {position} is outside the context of {self.context}")
        self._library.maple_cache_seek(self.handle, position)
        self.length = position

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.maple_cache_free(self.handle)


def _check(weights: ModelWeights, hidden: int) -> None:
    """Raise ValueError where a size is none that the kernels take; everything below counts on them."""
    for name, size in (("hidden_size", hidden), ("head_dim", weights.head_dim), ("moe_intermediate_size", weights.width)):
        if size % 16:
            raise ValueError(f"{name} {size} is no multiple of 16")
    if weights.head_dim > LARGEST_HEAD:
        raise ValueError(f"head_dim {weights.head_dim} is more than {LARGEST_HEAD}")
    mixed = weights.heads * weights.head_dim
    for layer in weights.layers:
        shapes = {
            "qkv": (layer.qkv, 1, mixed + 2 * weights.kv_heads * weights.head_dim, hidden),
            "out": (layer.out, 1, hidden, mixed),
            "gate_up": (layer.gate_up, weights.experts, 2 * weights.width, hidden),
            "down": (layer.down, weights.experts, hidden, weights.width),
        }
        for name, (matrix, count, rows, columns) in shapes.items():
            if (len(matrix.codes), matrix.rows, matrix.columns) != (count, rows, columns):
                raise ValueError(f"{name} has shape {(len(matrix.codes), matrix.rows, matrix.columns)}")
    for ends in (weights.embedding, weights.head):
        if isinstance(ends, AffineRows | PackedHead) and (ends.bits not in (4, 8) or ends.group_size % 16):
            raise ValueError(f"rows of {ends.bits} bits in groups of {ends.group_size} are none that the kernels read")
