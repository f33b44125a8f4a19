"""The safetensors files of a checkpoint folder, addressed by tensor name: one model.safetensors, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from maple_spec.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
DOWNLOAD_AGAIN = "download it again"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises CheckpointError where the file is missing or holds anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.name}: missing from {path.parent}; {DOWNLOAD_AGAIN}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name}: cannot be read as JSON ({_line(error)}); {DOWNLOAD_AGAIN}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name}: must hold a JSON object; {DOWNLOAD_AGAIN}")
    return content


class TensorFiles:
    """Reads tensors by name from whichever file of the folder holds them; remembers which were read.

    Every method raises CheckpointError, one line naming file and tensor, where a file or tensor is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, Any] = {}
        self._read: set[str] = set()
        self._rows_read: dict[str, set[int]] = {}
        self._file_of = self._locate()

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    @property
    def names(self) -> Iterable[str]:
        """The names of all tensors."""
        return self._file_of.keys()

    def unread(self) -> list[str]:
        """The names of what was not read whole, sorted."""
        whole = {name for name, rows in self._rows_read.items() if len(rows) == self.shape(name)[0]}
        return sorted(self._file_of.keys() - self._read - whole)

    def where(self, name: str) -> str:
        """The beginning of an error message about a tensor: its file and its name."""
        return f"{self._file_of.get(name, SINGLE_FILE)}: tensor {name}"

    def read(self, name: str, row: int | None = None) -> Tensor:
        """The tensor as the file holds it; with row only that entry of its first axis."""
        handle = self._handle_of(name)
        try:
            tensor: Tensor = handle.get_tensor(name) if row is None else handle.get_slice(name)[row]
        except (SafetensorError, IndexError) as error:
            raise CheckpointError(f"{self.where(name)} cannot be read ({_line(error)}); {DOWNLOAD_AGAIN}") from None
        if row is None:
            self._read.add(name)
        else:
            self._rows_read.setdefault(name, set()).add(row)
        return tensor

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, without reading it."""
        try:
            return tuple(self._handle_of(name).get_slice(name).get_shape())
        except SafetensorError as error:
            raise CheckpointError(f"{self.where(name)} cannot be read ({_line(error)}); {DOWNLOAD_AGAIN}") from None

    def _handle_of(self, name: str) -> Any:
        if name not in self._file_of:
            source = SINGLE_FILE if (self._folder / SINGLE_FILE).is_file() else INDEX_FILE
            raise CheckpointError(f"{source}: tensor {name} is missing, which config.json asks for; {DOWNLOAD_AGAIN}")
        return self._handle(self._file_of[name])

    def _locate(self) -> dict[str, str]:
        if (self._folder / SINGLE_FILE).is_file():
            return dict.fromkeys(self._handle(SINGLE_FILE).keys(), SINGLE_FILE)
        if not (self._folder / INDEX_FILE).is_file():
            raise CheckpointError(f"{self._folder}: holds neither {SINGLE_FILE} nor {INDEX_FILE}; {DOWNLOAD_AGAIN}")
        weight_map = read_json(self._folder / INDEX_FILE).get("weight_map")
        if not isinstance(weight_map, dict) or not all(
            isinstance(file, str) and Path(file).name == file for file in weight_map.values()
        ):
            raise CheckpointError(f"{INDEX_FILE}: weight_map must name a file beside it for every tensor; {DOWNLOAD_AGAIN}")
        return weight_map

    def _handle(self, file: str) -> Any:
        if file not in self._open:
            path = self._folder / file
            if not path.is_file():
                raise CheckpointError(f"{file}: the shard is missing from {self._folder}; {DOWNLOAD_AGAIN}")
            try:
                self._open[file] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{file}: damaged or cut short ({_line(error)}); {DOWNLOAD_AGAIN}") from None
        return self._open[file]


def write_folder(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, shards: int = 1, metadata: str = "pt"
) -> None:
    """Write config.json and the tensors, in one file or in that many shards with an index. The folder is made where absent."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    names = list(tensors)
    if shards == 1:
        save_file(dict(tensors), folder / SINGLE_FILE, metadata={"format": metadata})
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, folder / file, metadata={"format": metadata})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def as_float32(tensor: Tensor, where: str) -> Tensor:
    """A floating tensor widened to float32, which loses nothing. Raises CheckpointError for other dtypes, NaN and infinity."""
    if tensor.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise CheckpointError(f"{where} is {tensor.dtype}, expected bfloat16, float16 or float32; {DOWNLOAD_AGAIN}")
    wide = tensor.float()
    if not bool(wide.isfinite().all()):
        raise CheckpointError(f"{where} holds NaN or infinity; {DOWNLOAD_AGAIN}")
    return wide


def _line(error: Exception) -> str:
    """What another library says, on one line."""
    return " ".join(str(error).split())


def bfloat16_bits(tensor: Tensor, where: str) -> NDArray[np.uint16]:
    """The bits of a tensor whose values are bfloat16 numbers, whatever its dtype. Raises CheckpointError where one is not."""
    rounded = tensor.to(torch.bfloat16)
    if not torch.equal(rounded.to(tensor.dtype), tensor):
        raise CheckpointError(f"{where} holds values that bfloat16 cannot hold: the kernels would have to round them")
    bits: NDArray[np.uint16] = np.ascontiguousarray(rounded.view(torch.int16).numpy()).view(np.uint16)
    return bits
