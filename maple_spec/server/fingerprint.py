"""The system fingerprint: names the engine's build and the weights, so that a seed means the same under the same value."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path

import torch

from maple_spec import __version__

_EDGE = 1 << 20  # bytes hashed at either end of a file: the whole of small ones, enough to tell large ones apart


def fingerprint(files: Iterable[Path], kernels: Iterable[str]) -> str:
    """fp_ and twelve hex digits, made of this version, what computes here and how, and the model's files, in order.

    kernels: the words for kernels and number formats that /health shows.
    """
    processor = (platform.machine(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    digest = hashlib.sha256(repr((__version__, torch.__version__, processor, *kernels)).encode())
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE))
            file.seek(max(_EDGE, size - _EDGE))
            digest.update(file.read())
    return f"fp_{digest.hexdigest()[:12]}"
