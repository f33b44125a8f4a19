"""Which kernels serve: chosen once, when the model is loaded."""

from __future__ import annotations

import logging
import os

from maple_spec.errors import SettingsError
from maple_spec.kernels.native import variants

logger = logging.getLogger("maple_spec.kernels")

REFERENCE = "reference"


def choose_variant(wanted: str = "auto") -> str | None:
    """The instruction set to use, or None for the reference in plain torch.

    wanted: auto, reference, or an instruction set. Raises SettingsError where this machine or this build lacks it.
    """
    if wanted == REFERENCE:
        return None
    if wanted == "auto":
        if variants():
            return variants()[0]
        logger.warning(
            "the native kernels were not built, since no C++ compiler was there at installation: serving through plain torch, "
            "many times slower; install a compiler, then install this package again"
        )
        return None
    if wanted not in variants():
        raise SettingsError(f"MAPLE_KERNELS={wanted!r}: this machine has {', '.join((*variants(), REFERENCE))}")
    return wanted


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
