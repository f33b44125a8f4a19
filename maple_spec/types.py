"""The values that flow from a request to an answer: frozen, made once, knowing nothing of HTTP, JSON or torch.

A request flows one way: GenerationRequest -> prompt text -> token ids -> TokenEvent -> TextEvent. The whole answer and the
stream are two readings of the same TextEvents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FinishReason(StrEnum):
    """Why a generation ended, in the words of the wire."""

    STOP = "stop"  # the end token or a stop string
    LENGTH = "length"  # the token cap or the end of the model's context
    TOOL_CALLS = "tool_calls"  # ended by itself, with at least one parsed tool call


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen.

    temperature 0 means greedy; top_k 0 means no limit; top_p 1 means no limit; repetition_penalty 1 means none. A seed makes
    the choice repeatable: the generator is made from it when the request runs, not when it arrives.
    """

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_new_tokens: int = 4096


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation to be rendered through the model's chat template.

    messages: dicts as templates read them: role, content (str, parts joined), and where present reasoning_content, tool_calls
    (list of {"id", "type", "function": {"name", "arguments"}}), tool_call_id, name. tools: the tool objects that the model is
    shown, already filtered by tool_choice.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    enable_thinking: bool = True
    parse_tool_calls: bool = True
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A text that goes to the model untouched; control tokens spelled in it are real."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids that go to the model untouched."""

    token_ids: tuple[int, ...]


Prompt = ChatPrompt | RawPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request, complete: defaults filled in, caps applied, independent of the wire."""

    request_id: str
    prompt: Prompt
    sampling: SamplingParams
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One step of the engine: a token, or the end.

    token_id is None only in an event that ends without a token (context full before the first token). finish_reason is set on
    the last event alone; when it is STOP, token_id is the end token.
    """

    token_id: int | None
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. completion_tokens: all that were generated; reasoning_tokens: those before `</think>`."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The first TextEvent of every generation: the slot is taken and the prompt accepted, so that no refusal can follow.

    What comes after it (a long prefill, hidden reasoning) may be silent for long; a stream can be opened here.
    """

    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the reasoning; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """A piece of the visible answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One whole tool call. arguments is JSON text; the id is given by the wire."""

    name: str
    arguments: str


Delta = ReasoningDelta | ContentDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class Finished:
    """The last TextEvent of every generation that did not fail."""

    finish_reason: FinishReason
    usage: Usage


TextEvent = Started | Delta | Finished
