"""The published BF16 layout: every matrix of every expert as a tensor of its own, under the model's own parameter names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maple_spec import kernels
from maple_spec.checkpoints.tensor_files import DOWNLOAD_AGAIN, TensorFiles, as_float32, bfloat16_bits, write_folder
from maple_spec.errors import CheckpointError
from maple_spec.kernels.packed import Floats, Halves, Words

FORMAT = "safetensors-bf16"


class Reader:
    """Gives tensors by parameter name."""

    def __init__(self, files: TensorFiles) -> None:
        self._files = files

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The parameter in float32, exactly as published. Raises CheckpointError where it is missing, misshapen, not finite."""
        stored, where = self._files.read(name), self._files.where(name)
        if tuple(stored.shape) != shape:
            raise CheckpointError(
                f"{where} has shape {list(stored.shape)}, config.json asks for {list(shape)}; {DOWNLOAD_AGAIN}"
            )
        return as_float32(stored, where)

    def read_ternary(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Words, Floats]:
        """The packed words and row scales of matrices of one shape: uint32 [names, rows, columns / 16], float32 [names, rows].

        Raises CheckpointError as read does, and where a row is not {-alpha, 0, alpha}.
        """
        words, scales = [], []
        for name in names:
            signs, scale, exact = kernels.split_ternary_rows(self.read(name, shape))
            if not bool(exact.all()):
                raise CheckpointError(f"{self._files.where(name)} is not ternary: a row holds more than -alpha, 0 and alpha")
            words.append(kernels.pack_ternary(signs).view(torch.int32).numpy().view(np.uint32))
            scales.append(scale.numpy())
        return np.stack(words), np.stack(scales)

    def read_rows(self, name: str, shape: tuple[int, int]) -> Halves:
        """An embedding or a head, as its bfloat16 bits."""
        return bfloat16_bits(self.read(name, shape), self._files.where(name))


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, shards: int = 1) -> None:
    """Write config.json and the tensors (named as the parameters, any float dtype) in this layout, rounded to bfloat16."""
    rounded = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    write_folder(folder, config, rounded, shards=shards)
