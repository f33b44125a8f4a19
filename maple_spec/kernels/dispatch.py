"""Which kernels serve: chosen once, when the model is loaded."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from maple_spec.errors import SettingsError
from maple_spec.kernels.native import variants

logger = logging.getLogger("maple_spec.kernels")

REFERENCE = "reference"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_BYTES_A_THREAD = 4_000_000  # a tenth of a millisecond at the speed of a core's memory, many times what a meeting costs


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


def machine_memory() -> int:
    """Bytes of memory that this process may count on: the machine's, or its container's."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return machine


def default_threads(bytes_a_token: int) -> int:
    """One thread a core that this process may use, but no more than the weights that a token reads give work to.

    Threads meet dozens of times a token, which costs a small model more than sharing its work saves, above all where other
    programs want the cores too.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, bytes_a_token // _BYTES_A_THREAD))
