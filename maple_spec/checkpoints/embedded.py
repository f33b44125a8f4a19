"""The checkpoint that the package carries: maple-tiny, served where nothing else is named."""

from __future__ import annotations

from pathlib import Path

import maple_spec


def embedded_folder() -> Path:
    """The folder of maple-tiny's files inside the installed package."""
    return Path(maple_spec.__file__).parent / "tiny" / "weights"
