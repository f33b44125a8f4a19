"""A packed model in one file, in the very order in which the kernels read it, so that loading is reading.

    8 bytes    magic "MAPLEPK1"
    8 bytes    length of the header, little-endian
    header     JSON: version, layout, the model's numbers, and of each array: name, dtype, shape, offset, checksum
    padding    to a multiple of 4096
    arrays     each at a multiple of 4096, offsets counted from the first

A checksum is the CRC-32 of the 64-bit sums of an array's chunks of 4 MiB: it finds what was cut short, overwritten or swapped,
at the speed of memory. Numbers are little-endian.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from maple_spec.errors import CheckpointError
from maple_spec.kernels.native import LayerWeights, ModelWeights
from maple_spec.kernels.packed import AffineRows, PackedHead, PackedTernary

FILE = "model.maple"
MAGIC = b"MAPLEPK1"
VERSION = 1
LAYOUT = "ternary units of 32 rows by 16 columns, head groups of 16 rows"
PAGE = 4096
HUGE_PAGE = 2 * 1024 * 1024
CHUNK = 4 * 1024 * 1024
LONGEST_HEADER = 64 * 1024 * 1024
PACK_AGAIN = "pack the model again"

Array = NDArray[Any]


def write(path: Path, weights: ModelWeights) -> None:
    """Write the weights; the file appears whole or not at all."""
    numbers, arrays = _taken_apart(weights)
    entries, offset = [], 0
    for name, array in arrays.items():
        assert array.flags.c_contiguous
        entry = {"name": name, "dtype": array.dtype.str, "shape": array.shape, "offset": offset, "checksum": checksum(array)}
        entries.append(entry)
        offset += _rounded(array.nbytes)
    header = json.dumps({"version": VERSION, "layout": LAYOUT, "bytes": offset, "model": numbers, "arrays": entries}).encode()
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(MAGIC + len(header).to_bytes(8, "little") + header)
        file.write(bytes(_rounded(file.tell()) - file.tell()))
        for array in arrays.values():
            file.write(array.data)
            file.write(bytes(_rounded(array.nbytes) - array.nbytes))
    os.replace(partial, path)


def read(path: Path, threads: int = 2) -> ModelWeights:
    """Read a packed file into memory of its own, in huge pages where the system grants them.

    Raises CheckpointError, one line, where the file is foreign, of another version, cut short or damaged.
    """
    header, start = _header(path)
    memory = _memory(header["bytes"])
    arrays = {}
    with ThreadPoolExecutor(threads) as pool, path.open("rb") as file:
        for entry in header["arrays"]:
            size = int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
            flat = memory[entry["offset"] : entry["offset"] + size]
            arrays[entry["name"]] = flat.view(entry["dtype"]).reshape(entry["shape"])
            entry["sums"] = [
                pool.submit(_read_chunk, file.fileno(), flat[at : at + CHUNK], start + entry["offset"] + at)
                for at in range(0, size, CHUNK)
            ]
        for entry in header["arrays"]:
            sums = [done.result() for done in entry["sums"]]
            if None in sums:
                raise CheckpointError(f"{path.name}: cut short in {entry['name']}; {PACK_AGAIN}")
            if _folded(sums) != entry["checksum"]:
                raise CheckpointError(f"{path.name}: {entry['name']} is damaged; {PACK_AGAIN}")
    return _put_together(header["model"], arrays)


def checksum(array: Array) -> int:
    """The checksum of an array's bytes."""
    flat = array.reshape(-1).view(np.uint8)
    return _folded([_sum(flat[at : at + CHUNK]) for at in range(0, len(flat), CHUNK)])


def _sum(chunk: NDArray[np.uint8]) -> int:
    whole = len(chunk) // 8 * 8
    with np.errstate(over="ignore"):
        words = int(chunk[:whole].view(np.uint64).sum(dtype=np.uint64))
    return (words + int.from_bytes(chunk[whole:].tobytes(), "little")) % 2**64


def _folded(sums: list[Any]) -> int:
    return crc32(b"".join(int(part).to_bytes(8, "little") for part in sums))


def _read_chunk(descriptor: int, to: NDArray[np.uint8], offset: int) -> int | None:
    """Fill the chunk and return its sum; None where the file ends before."""
    view, done = to.data, 0
    while done < len(to):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            return None
        done += count
    return _sum(to)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header and where the arrays begin."""
    with path.open("rb") as file:
        magic, length = file.read(8), int.from_bytes(file.read(8), "little")
        if magic != MAGIC or length > LONGEST_HEADER:
            raise CheckpointError(f"{path.name}: no packed Maple; {PACK_AGAIN}")
        try:
            header = json.loads(file.read(length))
            version, layout = header["version"], header["layout"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CheckpointError(f"{path.name}: its header is damaged; {PACK_AGAIN}") from None
    if (version, layout) != (VERSION, LAYOUT):
        raise CheckpointError(
            f"{path.name}: packed as version {version} in {layout!r}, this server reads {VERSION}; {PACK_AGAIN}"
        )
    if path.stat().st_size < _rounded(16 + length) + header["bytes"]:
        raise CheckpointError(f"{path.name}: cut short; {PACK_AGAIN}")
    return header, _rounded(16 + length)


def _memory(size: int) -> NDArray[np.uint8]:
    """Anonymous memory on a huge page's border, in huge pages where the system grants them."""
    # Private: memory that could be shared gets no huge pages where the system is at its defaults, and is read a fifth slower.
    mapped = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(mapped, np.uint8)
    start = -whole.ctypes.data % HUGE_PAGE
    return whole[start : start + size]


def _rounded(size: int) -> int:
    return -(-size // PAGE) * PAGE


_TERNARY = ("qkv", "out", "gate_up", "down")
_VECTORS = ("router", "attention_norm", "expert_norm", "query_gain", "key_gain")
_NUMBERS = tuple(
    field.name for field in fields(ModelWeights) if field.name not in ("layers", "embedding", "head", "final_norm")
)


def _taken_apart(weights: ModelWeights) -> tuple[dict[str, Any], dict[str, Array]]:
    """The model's numbers, and its arrays by name, in the order in which a token meets them."""
    numbers: dict[str, Any] = {name: getattr(weights, name) for name in _NUMBERS}
    numbers["layers"] = [{"window": layer.window, "turns": layer.turns} for layer in weights.layers]
    arrays: dict[str, Array] = dict(_ends("embedding", weights.embedding, numbers))
    for index, layer in enumerate(weights.layers):
        for name in _TERNARY:
            matrix: PackedTernary = getattr(layer, name)
            numbers["layers"][index][name] = [matrix.rows, matrix.columns]
            arrays[f"{index}.{name}.codes"], arrays[f"{index}.{name}.row_scale"] = matrix.codes, matrix.row_scale
        arrays.update({f"{index}.{name}": getattr(layer, name) for name in _VECTORS})
    arrays["final_norm"] = weights.final_norm
    arrays.update(_ends("head", weights.head, numbers))
    return numbers, arrays


def _ends(name: str, rows: AffineRows | PackedHead | Array, numbers: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    if isinstance(rows, AffineRows):
        numbers[name] = {"bits": rows.bits}
        yield from ((f"{name}.words", rows.words), (f"{name}.scales", rows.scales), (f"{name}.biases", rows.biases))
    elif isinstance(rows, PackedHead):
        numbers[name] = {"rows": rows.rows, "columns": rows.columns, "bits": rows.bits, "group_size": rows.group_size}
        yield f"{name}.data", rows.data
    else:
        numbers[name] = {}
        yield name, rows


def _put_together(numbers: dict[str, Any], arrays: dict[str, Array]) -> ModelWeights:
    layers = []
    for index, layer in enumerate(numbers["layers"]):
        parts: dict[str, Any] = {
            name: PackedTernary(arrays[f"{index}.{name}.codes"], arrays[f"{index}.{name}.row_scale"], *layer[name])
            for name in _TERNARY
        }
        parts.update({name: arrays[f"{index}.{name}"] for name in _VECTORS})
        layers.append(LayerWeights(**parts, window=layer["window"], turns=layer["turns"]))
    embedding: Any = arrays.get("embedding")
    if "bits" in numbers["embedding"]:
        rows = {part: arrays[f"embedding.{part}"] for part in ("words", "scales", "biases")}
        embedding = AffineRows(**rows, bits=numbers["embedding"]["bits"])
    head: Any = PackedHead(arrays["head.data"], **numbers["head"]) if numbers["head"] else arrays["head"]
    others = {name: numbers[name] for name in _NUMBERS}
    return ModelWeights(layers=layers, embedding=embedding, head=head, final_norm=arrays["final_norm"], **others)
