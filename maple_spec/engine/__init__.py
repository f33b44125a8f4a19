"""The engine: submit a prompt, read its tokens as events, abort at any time; one generation at a time."""

from maple_spec.engine.engine import Engine, EngineState
from maple_spec.engine.language_model import ContextFull, LanguageModel, LoadedModel
from maple_spec.engine.maple_adapter import MapleLanguageModel, load_maple
from maple_spec.engine.sequence import TokenStream

__all__ = [
    "ContextFull",
    "Engine",
    "EngineState",
    "LanguageModel",
    "LoadedModel",
    "MapleLanguageModel",
    "TokenStream",
    "load_maple",
]
