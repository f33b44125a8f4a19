"""Checkpoints on disk, read without loss into the float32 model; the form is recognised from the files, not from a name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from maple_spec.checkpoints import mlx_2bit
from maple_spec.checkpoints.embedded import embedded_folder
from maple_spec.checkpoints.tensor_files import read_json
from maple_spec.checkpoints.text_files import find_tokenizer, read_chat_template, read_eos_token_ids
from maple_spec.checkpoints.weights import Weights
from maple_spec.errors import CheckpointError
from maple_spec.model.config import ModelConfig
from maple_spec.model.maple import Maple
from maple_spec.settings import EMBEDDED_NAME

__all__ = ["Checkpoint", "Weights", "embedded_folder", "load"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded model with everything that serving it needs."""

    name: str  # the path as given, or the embedded model's name
    config: ModelConfig
    model: Maple
    tokenizer_json: Path
    chat_template: str
    eos_token_ids: tuple[int, ...]
    dtype_label: str
    attention_label: str
    format: str  # "safetensors-bf16" or "mlx-2bit"


def load(path_or_id: str | Path | None = None, *, window_keys: int | None = None) -> Checkpoint:
    """Load the checkpoint in a folder; None or "" is the embedded maple-tiny.

    window_keys: keys that a query of a sliding layer sees, config.json's sliding_window (the default) or one more. Raises
    CheckpointError, one line that names the file and what to do.
    """
    folder = Path(path_or_id).expanduser() if path_or_id else embedded_folder()
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; name a folder that holds config.json and safetensors files")
    config = ModelConfig.from_dict(read_json(folder / "config.json"), window_keys=window_keys)
    tokenizer_json, chat_template = find_tokenizer(folder), read_chat_template(folder)
    eos_token_ids = read_eos_token_ids(folder, config)
    weights = Weights(folder)
    model = weights.model(config)
    model.prepare_decoding()
    ternary = config.num_hidden_layers * (4 + 3 * config.num_experts)
    return Checkpoint(
        name=str(path_or_id) if path_or_id else EMBEDDED_NAME,
        config=config,
        model=model,
        tokenizer_json=tokenizer_json,
        chat_template=chat_template,
        eos_token_ids=eos_token_ids,
        dtype_label=f"float32 + 2-bit ternary ({ternary} packed)" if weights.format == mlx_2bit.FORMAT else "float32",
        attention_label=f"torch (ring buffer of {config.window_keys} keys on sliding layers)",
        format=weights.format,
    )
