"""The Maple model in plain PyTorch.

`MapleConfig` and `MapleForCausalLM`, the classes registered with transformers' Auto classes, are imported on first use, because
importing transformers costs more time and memory than everything else here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maple_spec.model.config import ModelConfig
from maple_spec.model.kv_cache import KVCache
from maple_spec.model.maple import Maple

if TYPE_CHECKING:
    from maple_spec.model.auto import MapleConfig, MapleForCausalLM

__all__ = ["KVCache", "Maple", "MapleConfig", "MapleForCausalLM", "ModelConfig"]


def __getattr__(name: str) -> Any:
    if name in ("MapleConfig", "MapleForCausalLM"):
        from maple_spec.model import auto

        return getattr(auto, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
