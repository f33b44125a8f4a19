"""The engine: submit a prompt, read its tokens as events, abort at any time; one generation at a time.

Importing it imports no torch, which takes longer than all the rest: the models are imported when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from maple_spec.engine.engine import Engine, EngineState
from maple_spec.engine.language_model import ContextFull, LanguageModel, LoadedModel, TokenCodec
from maple_spec.engine.sequence import TokenStream

if TYPE_CHECKING:
    from maple_spec.engine.maple_adapter import MapleLanguageModel, load_maple
    from maple_spec.engine.scripted_model import ScriptedModel, load_script

__all__ = [
    "ContextFull",
    "Engine",
    "EngineState",
    "LanguageModel",
    "LoadedModel",
    "MapleLanguageModel",
    "ScriptedModel",
    "TokenCodec",
    "TokenStream",
    "load_maple",
    "load_script",
]


def __getattr__(name: str) -> Any:
    """The names that need torch."""
    if name in ("MapleLanguageModel", "load_maple"):
        from maple_spec.engine import maple_adapter

        return getattr(maple_adapter, name)
    if name in ("ScriptedModel", "load_script"):
        from maple_spec.engine import scripted_model

        return getattr(scripted_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
