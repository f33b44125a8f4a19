"""The official 2-bit layout: ternary matrices as packed words with one scale a row, experts stacked, 4-bit embedding and head.

    {matrix}.weight     uint32     [out, in / 16]     16 codes a word, least significant first; w = alpha * (code - 1)
    {matrix}.row_alpha  bfloat16   [out]
    or in its place     {matrix}.scales, {matrix}.biases   bfloat16 [out, in / group], scale = alpha and bias = -alpha
    ...mlp.switch_mlp.{gate,up,down}_proj.*                the experts' matrices stacked on axis 0
    {embedding, head}.{weight, scales, biases}             4 bits, 8 codes a word; w = code * scale + bias

Norms and the router are bfloat16. An embedding or a head that was left in bfloat16 is read as such.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maple_spec import kernels
from maple_spec.checkpoints.tensor_files import DOWNLOAD_AGAIN, TensorFiles, as_float32, bfloat16_bits, write_folder
from maple_spec.errors import CheckpointError
from maple_spec.kernels.packed import ZERO_WORD, AffineRows, Floats, Halves, Words

FORMAT = "mlx-2bit"
CODES_PER_WORD = 16
GROUP_SIZE = 128
ENDPOINT_GROUP_SIZE = 64
_EXPERT = re.compile(r"(.*\.mlp)\.experts\.(\d+)\.(\w+_proj)\.weight")
_TERNARY = re.compile(r".*\.(self_attn\.[qkvo]_proj|mlp\.experts\.\d+\.(gate|up|down)_proj)\.weight")
_ENDPOINTS = ("model.word_embeddings", "lm_head")


def recognises(files: TensorFiles) -> bool:
    """Whether the files hold this layout: it alone has scales beside its matrices."""
    return any(name.endswith((".row_alpha", ".scales")) for name in files.names)


class Reader:
    """Gives tensors by the parameter names of the BF16 layout."""

    def __init__(self, files: TensorFiles) -> None:
        self._files = files

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The parameter in float32: alpha * (code - 1) where ternary, code * scale + bias where 4-bit, else as stored.

        Raises CheckpointError, naming file and tensor, for whatever is missing, misshapen, not ternary or not finite.
        """
        base, row = _stored_as(name)
        matrix = f"{base}.weight"
        if row is not None and (len(self._files.shape(matrix)) != 3 or row >= self._files.shape(matrix)[0]):
            found = list(self._files.shape(matrix))
            raise CheckpointError(f"{self._files.where(matrix)} has shape {found}, it lacks {name}; {DOWNLOAD_AGAIN}")
        stored = self._files.read(matrix, row)
        where = self._files.where(matrix)
        if stored.dtype != torch.uint32:
            self._require_shape(where, stored, shape)
            return as_float32(stored, where)
        bits = self._bits(where, stored, shape)
        if bits == kernels.TERNARY_BITS:
            return self._ternary(base, row, stored, shape)
        scales, biases = self._affine(base, row, shape)
        return kernels.dequantise_affine(stored, scales, biases, bits)

    def read_ternary(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Words, Floats]:
        """The packed words and row scales of matrices of one shape: uint32 [names, rows, columns / 16], float32 [names, rows].

        All experts of a stack are read at once. Raises CheckpointError as read does.
        """
        base, row = _stored_as(names[0])
        if row is None:
            parts = [self._packed_ternary(_stored_as(name)[0], (1, *shape)) for name in names]
            return np.concatenate([words for words, _ in parts]), np.concatenate([scale for _, scale in parts])
        if [_stored_as(name) for name in names] != [(base, index) for index in range(len(names))]:
            raise ValueError("the names must be all experts of one stack, in order")
        return self._packed_ternary(base, (len(names), *shape))

    def _packed_ternary(self, base: str, shape: tuple[int, int, int]) -> tuple[Words, Floats]:
        """One matrix, or a stack of them, with an axis for the stack in any case."""
        name, (count, rows, columns) = f"{base}.weight", shape
        where = self._files.where(name)
        stored = self._files.read(name)
        if stored.dtype != torch.uint32 or stored.numel() != count * rows * columns // CODES_PER_WORD:
            found = f"{stored.dtype} {list(stored.shape)}"
            raise CheckpointError(f"{where} holds {found}, config.json asks for {list(shape)} in 2 bits; {DOWNLOAD_AGAIN}")
        words = stored.view(torch.int32).numpy().view(np.uint32).reshape(count, rows, columns // CODES_PER_WORD)
        if bool((words & (words >> 1) & ZERO_WORD).any()):
            raise CheckpointError(f"{where}: code 3 stands in a 2-bit word; {DOWNLOAD_AGAIN}")
        stacked = len(self._files.shape(name)) == 3
        scales = [self._row_scale(base, index if stacked else None, (rows, columns)) for index in range(count)]
        return words, torch.stack(scales).numpy()

    def read_rows(self, name: str, shape: tuple[int, int]) -> AffineRows | Halves:
        """An embedding or a head as it is stored: 4-bit rows, or bfloat16. Raises CheckpointError as read does."""
        stored, where = self._files.read(name), self._files.where(name)
        if stored.dtype != torch.uint32:
            self._require_shape(where, stored, shape)
            return bfloat16_bits(stored, where)
        bits = self._bits(where, stored, shape)
        parts = [bfloat16_bits(part, where) for part in self._affine(name.removesuffix(".weight"), None, shape)]
        return AffineRows(stored.view(torch.int32).numpy().view(np.uint32), parts[0], parts[1], bits)

    def _bits(self, where: str, words: Tensor, shape: tuple[int, ...]) -> int:
        """Bits a weight, from the width of the packed rows."""
        for bits in (kernels.TERNARY_BITS, kernels.AFFINE_BITS):
            if len(shape) == 2 and tuple(words.shape) == (shape[0], shape[1] * bits // 32) and shape[1] * bits % 32 == 0:
                return bits
        raise CheckpointError(
            f"{where} has shape {list(words.shape)}, config.json asks for {list(shape)} packed in 2 or 4 bits; {DOWNLOAD_AGAIN}"
        )

    def _ternary(self, base: str, row: int | None, words: Tensor, shape: tuple[int, ...]) -> Tensor:
        try:
            signs = kernels.unpack_ternary(words)
        except ValueError as error:
            raise CheckpointError(f"{self._files.where(f'{base}.weight')}: {error}; {DOWNLOAD_AGAIN}") from None
        return signs.float() * self._row_scale(base, row, shape).unsqueeze(-1)

    def _row_scale(self, base: str, row: int | None, shape: tuple[int, ...]) -> Tensor:
        """alpha of every row, float32 [out]."""
        alpha_name = f"{base}.row_alpha"
        if alpha_name in self._files:
            where = self._files.where(alpha_name)
            alpha = as_float32(self._files.read(alpha_name, row), where)
            self._require_shape(where, alpha, shape[:1])
        else:
            where = self._files.where(f"{base}.scales")
            scales, biases = self._affine(base, row, shape)
            alpha = scales[:, 0]
            if not bool((scales == alpha.unsqueeze(-1)).all()) or not bool((biases == -scales).all()):
                raise CheckpointError(f"{where} and biases are not alpha and -alpha along a row: not ternary; {DOWNLOAD_AGAIN}")
        if bool((alpha < 0).any()):
            raise CheckpointError(f"{where} holds a negative alpha; {DOWNLOAD_AGAIN}")
        return alpha

    def _affine(self, base: str, row: int | None, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """scales and biases of every group, float32 [out, in / group]."""
        pair = []
        for part in ("scales", "biases"):
            name = f"{base}.{part}"
            values = as_float32(self._files.read(name, row), self._files.where(name))
            if values.dim() != 2 or values.shape[0] != shape[0] or values.shape[1] == 0 or shape[1] % values.shape[1]:
                raise CheckpointError(
                    f"{self._files.where(name)} has shape {list(values.shape)}, no grouping of {list(shape)}; {DOWNLOAD_AGAIN}"
                )
            pair.append(values)
        scales, biases = pair
        self._require_shape(self._files.where(f"{base}.biases"), biases, tuple(scales.shape))
        return scales, biases

    def _require_shape(self, where: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{where} has shape {list(tensor.shape)}, config.json asks for {list(shape)}; {DOWNLOAD_AGAIN}"
            )


def write(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    explicit_scales: bool = False,
    shards: int = 1,
) -> None:
    """Write config.json and the tensors (named as in the BF16 layout, any float dtype) in this layout.

    Ternary matrices are packed exactly. Embedding and head are quantised to 4 bits, or kept in bfloat16 where the config's
    `quantization` says false under their name. explicit_scales stores scales and biases in place of row_alpha. Raises
    ValueError naming the tensor where a row is not {-alpha, 0, alpha} with a bfloat16 alpha, or does not fill whole words.
    """
    quantization = {**_default_quantization(tensors), **(config.get("quantization") or {})}
    stored: dict[str, Tensor] = {}
    stacks: dict[str, dict[int, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        base, row = _stored_as(name)
        if row is not None:
            stacks[base][row] = tensor
        elif _TERNARY.fullmatch(name):
            stored.update(_pack_matrix(base, tensor, int(quantization["group_size"]) if explicit_scales else None))
        elif base in _ENDPOINTS and quantization[base]:
            wanted = quantization[base]
            words, scales, biases = kernels.quantise_affine(tensor, wanted["group_size"], wanted["bits"])
            stored.update({f"{base}.weight": words, f"{base}.scales": scales, f"{base}.biases": biases})
        else:
            stored[name] = tensor.to(torch.bfloat16).contiguous()
    for base, rows in stacks.items():
        stack = torch.stack([rows[row] for row in range(len(rows))])
        stored.update(_pack_matrix(base, stack, int(quantization["group_size"]) if explicit_scales else None))
    written = {**config, "model_type": "maple", "quantization": quantization, "quantization_config": quantization}
    write_folder(folder, written, stored, shards=shards, metadata="mlx")


def _stored_as(name: str) -> tuple[str, int | None]:
    """Where this layout keeps a parameter: the stem of its tensors' names and, for an expert, its place in the stack."""
    expert = _EXPERT.fullmatch(name)
    if expert:
        return f"{expert[1]}.switch_mlp.{expert[3]}", int(expert[2])
    return name.removesuffix(".weight"), None


def _pack_matrix(base: str, weight: Tensor, group_size: int | None) -> dict[str, Tensor]:
    """One ternary matrix or stack of them as packed words and row_alpha, or with a group size as words, scales and biases."""
    if weight.shape[-1] % CODES_PER_WORD:
        raise ValueError(f"{base} has rows of {weight.shape[-1]} weights, which do not fill words of {CODES_PER_WORD}")
    signs, row_scale, exact = kernels.split_ternary_rows(weight)
    alpha = row_scale.to(torch.bfloat16)
    if not bool(exact.all()) or not bool((alpha.to(row_scale.dtype) == row_scale).all()):
        raise ValueError(f"{base} is not ternary: every row must hold nothing but -alpha, 0 and alpha, with a bfloat16 alpha")
    words = kernels.pack_ternary(signs)
    if group_size is None:
        return {f"{base}.weight": words, f"{base}.row_alpha": alpha}
    scales = alpha.unsqueeze(-1).repeat_interleave(weight.shape[-1] // group_size, dim=-1)
    return {f"{base}.weight": words, f"{base}.scales": scales, f"{base}.biases": -scales}


def _default_quantization(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The published settings, with smaller groups where these matrices are narrower than them."""
    widths = [tensor.shape[-1] for name, tensor in tensors.items() if _TERNARY.fullmatch(name)]
    settings: dict[str, Any] = {"group_size": math.gcd(GROUP_SIZE, *widths), "bits": kernels.TERNARY_BITS, "mode": "affine"}
    for base in _ENDPOINTS:
        if f"{base}.weight" in tensors:
            group = math.gcd(ENDPOINT_GROUP_SIZE, tensors[f"{base}.weight"].shape[-1])
            settings[base] = {"group_size": group, "bits": kernels.AFFINE_BITS}
    return settings
