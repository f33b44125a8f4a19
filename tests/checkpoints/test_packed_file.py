"""A packed file gives back what was written, and says what is wrong with it in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from maple_spec import checkpoints
from maple_spec.checkpoints.packed_file import FILE, read, write
from maple_spec.errors import CheckpointError
from maple_spec.kernels.native import NativeModel


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """maple-tiny in a packed file."""
    path = tmp_path_factory.mktemp("packed") / FILE
    write(path, checkpoints.load_packed().weights)
    return path


def test_a_model_read_back_gives_the_same_bits(packed: Path) -> None:
    tokens, logits = list(range(40)), []
    for weights in (checkpoints.load_packed().weights, read(packed)):
        model = NativeModel(weights)
        logits.append(model.forward(tokens, model.new_cache(64), every=True))
    assert np.array_equal(*logits)


def cut(data: bytearray) -> bytes:
    return bytes(data[:-5000])


def overwritten(data: bytearray) -> bytes:
    data[-100_000] ^= 1
    return bytes(data)


def foreign(data: bytearray) -> bytes:
    return b"PK\x03\x04" + bytes(data[4:])


def of_another_version(data: bytearray) -> bytes:
    return bytes(data.replace(b'"version": 1', b'"version": 2', 1))


def with_a_broken_header(data: bytearray) -> bytes:
    return bytes(data.replace(b'"version"', b"'version'", 1))


def with_a_wild_header(data: bytearray) -> bytes:
    return bytes(data[:8]) + b"\xff" * 8 + bytes(data[16:])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (cut, "cut short"),
        (overwritten, "is damaged"),
        (foreign, "no packed Maple"),
        (of_another_version, "version 2"),
        (with_a_broken_header, "header is damaged"),
        (with_a_wild_header, "no packed Maple"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(
    packed: Path, tmp_path: Path, harm: Callable[[bytearray], bytes], said: str
) -> None:
    path = tmp_path / FILE
    path.write_bytes(harm(bytearray(packed.read_bytes())))
    with pytest.raises(CheckpointError, match=said) as refusal:
        read(path)
    assert "\n" not in str(refusal.value)
    assert FILE in str(refusal.value)
