"""llama.cpp on a model of the same sizes, through llama-cpp-python: what `maple bench --against llama.cpp` compares with.

Both packages are of the extra `bench`. The file has ternary weights in TQ2_0 and embedding and head in Q4_K, as the published
GGUF has them; names and keys are those of llama.cpp's own architecture `maple`.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maple_spec.bench.synthetic import Sizes
from maple_spec.errors import MapleError

_DRAWN = 1 << 20  # blocks; larger tensors repeat them
_BLOCK_WEIGHTS = 256  # of TQ2_0 and of Q4_K


class LlamaCppError(MapleError):
    """llama.cpp is not installed, or does not take the model."""


def _packages() -> tuple[Any, Any]:
    try:
        import gguf
        import llama_cpp
    except ImportError as error:
        raise LlamaCppError(f"{error.name} is missing: pip install 'maple-openapi[bench]' brings llama.cpp") from None
    return gguf, llama_cpp


def write_gguf(path: Path, sizes: Sizes, seed: int = 0) -> Iterator[str]:
    """Write a GGUF file with random weights, and yield the tensors' names on the way. LlamaCppError without the packages."""
    gguf, _ = _packages()
    draw = np.random.default_rng(seed)
    ternary, four_bit = _ternary_blocks(draw), _four_bit_blocks(draw)
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "maple")
    _describe(writer, sizes)
    tensors = list(_tensors(sizes))
    types = {"TQ2_0": (gguf.GGMLQuantizationType.TQ2_0, ternary), "Q4_K": (gguf.GGMLQuantizationType.Q4_K, four_bit)}
    for name, shape, kind in tensors:
        if kind == "F32":
            writer.add_tensor_info(name, shape, np.dtype(np.float32), int(np.prod(shape)) * 4)
        else:
            quantised, blocks = types[kind]
            row = (*shape[:-1], shape[-1] // _BLOCK_WEIGHTS * blocks.shape[1])
            writer.add_tensor_info(name, row, np.dtype(np.uint8), int(np.prod(row)), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, shape, kind in tensors:
        yield name
        if kind == "F32":
            mean = 0.0 if "inp" in name else 1.0  # a router's rows spread, a norm's gains do not
            writer.write_tensor_data(mean + (1 - mean) * draw.standard_normal(shape, np.float32))
        else:
            blocks = types[kind][1]
            writer.write_tensor_data(np.resize(blocks, (int(np.prod(shape)) // _BLOCK_WEIGHTS, blocks.shape[1])))
    writer.close()
    os.replace(partial, path)


def _describe(writer: Any, sizes: Sizes) -> None:
    writer.add_block_count(sizes.layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.width)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(sizes.head_dim // 2)
    writer.add_expert_count(sizes.experts)
    writer.add_expert_used_count(sizes.experts_per_token)
    writer.add_expert_feed_forward_length(sizes.width)
    writer.add_sliding_window(sizes.window)
    writer.add_array("maple.attention.sliding_window_pattern", [sizes.slides(layer) for layer in range(sizes.layers)])
    writer.add_array("maple.swiglu_clamp_exp", [7.0] * sizes.layers)
    writer.add_vocab_size(sizes.vocabulary)
    writer.add_tokenizer_model("none")


def _tensors(sizes: Sizes) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape [rows, columns] and type of every tensor."""
    hidden, mixed, keys = sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    yield "token_embd.weight", (sizes.vocabulary, hidden), "Q4_K"
    yield "output_norm.weight", (hidden,), "F32"
    yield "output.weight", (sizes.vocabulary, hidden), "Q4_K"
    for layer in range(sizes.layers):
        at = f"blk.{layer}"
        for name, size in (("attn_norm", hidden), ("attn_q_norm", sizes.head_dim), ("attn_k_norm", sizes.head_dim)):
            yield f"{at}.{name}.weight", (size,), "F32"
        for name, rows, columns in (
            ("attn_q", mixed, hidden),
            ("attn_k", keys, hidden),
            ("attn_v", keys, hidden),
            ("attn_output", hidden, mixed),
        ):
            yield f"{at}.{name}.weight", (rows, columns), "TQ2_0"
        yield f"{at}.ffn_norm.weight", (hidden,), "F32"
        yield f"{at}.ffn_gate_inp.weight", (sizes.experts, hidden), "F32"
        for name, rows, columns in (("gate", sizes.width, hidden), ("up", sizes.width, hidden), ("down", hidden, sizes.width)):
            yield f"{at}.ffn_{name}_exps.weight", (sizes.experts, rows, columns), "TQ2_0"


def _ternary_blocks(draw: np.random.Generator) -> NDArray[np.uint8]:
    """TQ2_0: 64 bytes of four codes, then the scale in float16."""
    blocks = np.empty((_DRAWN, 66), np.uint8)
    low = draw.integers(0, 256, (_DRAWN, 64), dtype=np.uint8) & 0x55
    blocks[:, :64] = low | (draw.integers(0, 256, (_DRAWN, 64), dtype=np.uint8) & 0xAA & ~(low << 1))  # 0, 1 or 2, never 3
    blocks[:, 64:] = np.frombuffer(np.float16(0.02).tobytes(), np.uint8)
    return blocks


def _four_bit_blocks(draw: np.random.Generator) -> NDArray[np.uint8]:
    """Q4_K: scale and least scale in float16, twelve bytes of 6-bit scales, 128 bytes of two codes."""
    blocks = draw.integers(0, 256, (_DRAWN // 4, 144), dtype=np.uint8)
    blocks[:, :4] = np.frombuffer(np.array([1e-4, 1e-4], np.float16).tobytes(), np.uint8)
    return blocks


class LlamaCpp:
    """A GGUF file in llama.cpp. LlamaCppError where it is not installed or does not take the file."""

    def __init__(self, path: Path, *, threads: int, context: int) -> None:
        _, self._api = _packages()
        api = self._api
        self._quiet = api.llama_log_callback(lambda *_: None)
        api.llama_log_set(self._quiet, ctypes.c_void_p(0))
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        if not self._model:
            raise LlamaCppError(f"llama.cpp does not load {path}; if it was cut short, remove it")
        settings = api.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = context, 512, 512
        settings.n_threads = settings.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, settings)
        if not self._context:
            raise LlamaCppError("llama.cpp has no memory for its context")

    def forget(self) -> None:
        """Begin another sequence."""
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def forward(self, token_ids: Sequence[int]) -> float:
        """Append the tokens, at most 512, and compute the logits behind the last; the seconds it took."""
        tokens = (self._api.llama_token * len(token_ids))(*token_ids)
        began = time.perf_counter()
        status = self._api.llama_decode(self._context, self._api.llama_batch_get_one(tokens, len(token_ids)))
        self._api.llama_synchronize(self._context)
        if status != 0:
            raise LlamaCppError(f"llama_decode answered {status}")
        return time.perf_counter() - began

    def close(self) -> None:
        """Give its memory back."""
        self._api.llama_free(self._context)
        self._api.llama_model_free(self._model)
