"""Where openapi.yaml lies: at the top of the source tree, or in the installed package; handlers/ is beside it either way."""

from __future__ import annotations

from pathlib import Path

import maple_spec

_PACKAGE = Path(maple_spec.__file__).parent


def spec_path() -> Path:
    """The contract that is served."""
    installed = _PACKAGE / "contract" / "openapi.yaml"
    return installed if installed.exists() else _PACKAGE.parent / "openapi.yaml"
