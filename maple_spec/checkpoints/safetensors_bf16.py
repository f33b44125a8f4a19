"""The published BF16 layout: every matrix of every expert as a tensor of its own, under the model's own parameter names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maple_spec.checkpoints.tensor_files import DOWNLOAD_AGAIN, TensorFiles, as_float32, write_folder
from maple_spec.errors import CheckpointError

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


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, shards: int = 1) -> None:
    """Write config.json and the tensors (named as the parameters, any float dtype) in this layout, rounded to bfloat16."""
    rounded = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    write_folder(folder, config, rounded, shards=shards)
