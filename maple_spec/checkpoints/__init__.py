"""Checkpoints on disk, read without loss into the float32 model; the form is recognised from the files, not from a name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maple_spec.checkpoints import mlx_2bit
from maple_spec.checkpoints.embedded import embedded_folder
from maple_spec.checkpoints.tensor_files import read_json
from maple_spec.checkpoints.text_files import find_tokenizer, read_chat_template, read_eos_token_ids
from maple_spec.checkpoints.weights import Weights
from maple_spec.errors import CheckpointError
from maple_spec.kernels.dispatch import machine_memory
from maple_spec.kernels.native import ModelWeights
from maple_spec.model.config import ModelConfig
from maple_spec.model.maple import Maple
from maple_spec.settings import EMBEDDED_NAME

__all__ = ["Checkpoint", "CheckpointTexts", "PackedCheckpoint", "Weights", "embedded_folder", "load", "load_packed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTexts:
    """What stands around a checkpoint's weights."""

    name: str  # the path as given, or the embedded model's name
    config: ModelConfig
    tokenizer_json: Path
    chat_template: str
    eos_token_ids: tuple[int, ...]
    format: str  # "safetensors-bf16" or "mlx-2bit"

    @property
    def ternary_matrices(self) -> int:
        """How many of the model's matrices are ternary."""
        return self.config.num_hidden_layers * (4 + 3 * self.config.num_experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(CheckpointTexts):
    """A checkpoint with its model for plain torch."""

    model: Maple
    packed: bool  # whether its ternary matrices are

    @property
    def dtype_label(self) -> str:
        """What is computed in, and what was read, in the words of /health."""
        two_bit = self.packed or self.format == mlx_2bit.FORMAT
        return "float32" + (f" + 2-bit ternary ({self.ternary_matrices} packed)" if two_bit else "")

    @property
    def attention_label(self) -> str:
        """How attention is computed, in the words of /health."""
        return f"torch (ring buffer of {self.config.window_keys} keys on sliding layers)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCheckpoint(CheckpointTexts):
    """A checkpoint with its weights packed, as the native kernels take them."""

    weights: ModelWeights


def load(path_or_id: str | Path | None = None, *, window_keys: int | None = None, packed: bool | None = None) -> Checkpoint:
    """Load the checkpoint in a folder for plain torch; None or "" is the embedded maple-tiny.

    window_keys: keys that a query of a sliding layer sees, config.json's sliding_window (the default) or one more. packed:
    whether ternary matrices stay packed, which is far smaller and slower; None: where in float32 they would take more than a
    quarter of the memory. Raises CheckpointError, one line that names the file and what to do.
    """
    folder = _folder(path_or_id)
    config = ModelConfig.from_dict(read_json(folder / "config.json"), window_keys=window_keys)
    texts = _texts(path_or_id, folder, config)
    weights = Weights(folder)
    if packed is None:
        packed = 4 * config.ternary_weights(config.num_experts) > machine_memory() / 4
    model = weights.model(config, packed=packed)
    if not packed:
        model.prepare_decoding()
    return Checkpoint(**texts, format=weights.format, model=model, packed=packed)


def load_packed(path_or_id: str | Path | None = None, *, window_keys: int | None = None) -> PackedCheckpoint:
    """The same with the weights packed; raises CheckpointError, too, where the kernels could not hold them without loss."""
    folder = _folder(path_or_id)
    config = ModelConfig.from_dict(read_json(folder / "config.json"), window_keys=window_keys)
    texts = _texts(path_or_id, folder, config)
    weights = Weights(folder)
    return PackedCheckpoint(**texts, format=weights.format, weights=weights.packed(config))


def _folder(path_or_id: str | Path | None) -> Path:
    folder = Path(path_or_id).expanduser() if path_or_id else embedded_folder()
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; name a folder that holds config.json and safetensors files")
    return folder


def _texts(path_or_id: str | Path | None, folder: Path, config: ModelConfig) -> dict[str, Any]:
    return {
        "name": str(path_or_id) if path_or_id else EMBEDDED_NAME,
        "config": config,
        "tokenizer_json": find_tokenizer(folder),
        "chat_template": read_chat_template(folder),
        "eos_token_ids": read_eos_token_ids(folder, config),
    }
