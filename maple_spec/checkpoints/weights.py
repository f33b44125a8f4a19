"""The weights of a checkpoint folder, in whichever known format: recognised from the tensors, not from a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from maple_spec.checkpoints import mlx_2bit, safetensors_bf16
from maple_spec.checkpoints.packing import Packing, Reader
from maple_spec.checkpoints.tensor_files import DOWNLOAD_AGAIN, TensorFiles
from maple_spec.errors import CheckpointError
from maple_spec.kernels.native import ModelWeights
from maple_spec.model.config import ModelConfig
from maple_spec.model.maple import Maple
from maple_spec.model.packed_projection import PackedProjection

TERNARY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_EXPERT = re.compile(r"\.\d+\.(?=\w+_proj\.)")  # the number of an expert in a parameter's name
IGNORED_PREFIX = "lm_head_flash."  # an approximate head that speeds one-token decoding up; the exact head is used here


class Weights:
    """Gives the model's parameters, and sees to it that files and model agree."""

    def __init__(self, folder: Path) -> None:
        self._files = TensorFiles(folder)
        two_bit = mlx_2bit.recognises(self._files)
        self.format = mlx_2bit.FORMAT if two_bit else safetensors_bf16.FORMAT
        self._reader: Reader = mlx_2bit.Reader(self._files) if two_bit else safetensors_bf16.Reader(self._files)

    def read(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Tensor]]:
        """Every parameter by name in float32, one at a time.

        Raises CheckpointError, one line naming file and tensor: at once for a parameter that the files lack or hold otherwise,
        at the end for a tensor that is no parameter.
        """
        for name, shape in shapes.items():
            yield name, self._reader.read(name, shape)
        self._require_all_read()

    def packed(self, config: ModelConfig) -> ModelWeights:
        """The weights of that config as the native kernels take them. Raises CheckpointError as read does."""
        self._require_sizes(config)
        weights = Packing(self._reader, self._files, config).weights()
        self._require_all_read()
        return weights

    def _require_all_read(self) -> None:
        stray = [name for name in self._files.unread() if not name.startswith(IGNORED_PREFIX)]
        if stray:
            raise CheckpointError(
                f"{self._files.where(stray[0])} has no place in the model that config.json describes; {DOWNLOAD_AGAIN}"
            )

    def model(self, config: ModelConfig, *, packed: bool = False) -> Maple:
        """The model of that config with these weights, without gradients. Raises CheckpointError as read does.

        All float32; with packed, ternary matrices stay as they are packed, a sixteenth of that.
        """
        self._require_sizes(config)
        with torch.device("meta"):  # nothing is allocated before the file is known to hold it
            model = Maple(config)
        with torch.inference_mode(False):
            if packed:
                self._give_packed(model)
            for name, tensor in self.read(shapes_of(model.named_parameters())):
                module, _, attribute = name.rpartition(".")
                setattr(model.get_submodule(module), attribute, nn.Parameter(tensor, requires_grad=False))
        model.tie()
        return model

    def _give_packed(self, model: Maple) -> None:
        """Replace the ternary projections by packed ones, a layer's experts at once: so the 2-bit layout holds them."""
        together: dict[str, list[str]] = {}
        shapes = shapes_of(model.named_parameters())
        for name in shapes:
            if name.split(".")[-2] in TERNARY:
                together.setdefault(_EXPERT.sub(".", name), []).append(name)
        for names in together.values():
            rows, columns = shapes[names[0]]
            words, row_scale = self._reader.read_ternary(names, (rows, columns))
            for index, name in enumerate(names):
                module, _, attribute = name.removesuffix(".weight").rpartition(".")
                projection = PackedProjection(torch.from_numpy(words[index]), torch.from_numpy(row_scale[index]))
                setattr(model.get_submodule(module), attribute, projection)

    def _require_sizes(self, config: ModelConfig) -> None:
        """Compare the sizes that decide how many modules are made, before a wild config.json makes a wild number of them."""
        last_router = f"model.layers.{config.num_hidden_layers - 1}.mlp.gate.weight"
        for name, axis, key in (
            ("model.word_embeddings.weight", 0, "vocab_size"),
            (last_router, 0, "num_experts"),
            (last_router, 1, "hidden_size"),
        ):
            shape, wanted = self._files.shape(name), getattr(config, key)
            if len(shape) != 2 or shape[axis] != wanted:
                raise CheckpointError(
                    f"{self._files.where(name)} has shape {list(shape)}, config.json says {key} {wanted}; {DOWNLOAD_AGAIN}"
                )


def shapes_of(named: Iterable[tuple[str, Tensor]]) -> dict[str, tuple[int, ...]]:
    """Shapes by name."""
    return {name: tuple(tensor.shape) for name, tensor in named}
