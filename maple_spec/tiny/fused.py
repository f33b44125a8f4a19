"""Element-wise work between matrix products, compiled where that is possible, and torch's autograd functions, typed."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through torch.compile, at its first call, where there is a C++ compiler: it halves the time of a step.

    Without a compiler, or with TORCH_COMPILE_DISABLE=1, it runs as it is written.
    """
    made: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not made:
            plain = os.environ.get("TORCH_COMPILE_DISABLE") == "1" or shutil.which("g++") is None
            made.append(function if plain else torch.compile(function, dynamic=True))
        return made[0](*args)

    return call


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    """function.apply, which torch leaves untyped."""
    out: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return out
