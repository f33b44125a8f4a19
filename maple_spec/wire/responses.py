"""Answers in OpenAI's JSON: a stream is a map over the events of a generation, a whole answer a fold over the same events.

A Writer is made for one request and knows its ids; what it returns depends on nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from maple_spec.settings import Settings
from maple_spec.types import ContentDelta, Finished, FinishReason, ReasoningDelta, TextEvent, ToolCallDelta, Usage
from maple_spec.wire.requests import Call, check_model

Json = dict[str, Any]

# The one model has no birthday of its own that the server could know: the moment in the API reference's sample stands in.
MODEL_CREATED = 1789460000


class Writer(ABC):
    """Spells the answer to one call.

    fingerprint: names the engine's build and the weights. The identifier of the answer is made of the request's, so that a log
    line leads from one to the other.
    """

    id_prefix: ClassVar[str]
    chunk_object: ClassVar[str]
    whole_object: ClassVar[str]

    def __init__(self, call: Call, fingerprint: str) -> None:
        self._call = call
        self._key = call.generation.request_id.removeprefix("req_")
        self._id = self.id_prefix + self._key
        self._chunk_head = self._head(self.chunk_object)
        self._tail: Json = {"system_fingerprint": fingerprint}
        self._no_usage: Json = {"usage": None} if call.include_usage else {}

    @abstractmethod
    def opening(self) -> list[Json]:
        """The chunks that go before the first event."""

    @abstractmethod
    def chunks(self, event: TextEvent) -> list[Json]:
        """The chunks of one event, in order; often one, sometimes none."""

    @abstractmethod
    def whole(self, events: Sequence[TextEvent]) -> Json:
        """The whole answer, of all the events; the last is Finished."""

    def _head(self, kind: str) -> Json:
        return {"id": self._id, "object": kind, "created": self._call.created, "model": self._call.model}

    def _chunk(self, choice: Json) -> Json:
        return {**self._chunk_head, "choices": [{"index": 0, **choice}], **self._no_usage, **self._tail}

    def _usage_chunk(self, finished: Finished) -> list[Json]:
        if not self._call.include_usage:
            return []
        return [{**self._chunk_head, "choices": [], "usage": usage(finished.usage), **self._tail}]

    def _whole(self, choice: Json, finished: TextEvent) -> Json:
        assert isinstance(finished, Finished)
        choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": finished.finish_reason.value}]
        return {**self._head(self.whole_object), "choices": choices, "usage": usage(finished.usage), **self._tail}


class ChatWriter(Writer):
    """The answers of POST /v1/chat/completions."""

    id_prefix = "chatcmpl-"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def __init__(self, call: Call, fingerprint: str) -> None:
        super().__init__(call, fingerprint)
        self._calls_written = 0

    def opening(self) -> list[Json]:
        """The role, before anything else."""
        return [self._delta({"role": "assistant", "content": ""})]

    def chunks(self, event: TextEvent) -> list[Json]:
        """One delta each; reasoning that is not wanted leaves none."""
        match event:
            case ReasoningDelta(text):
                return [self._delta({"reasoning_content": text})] if self._call.include_reasoning else []
            case ContentDelta(text):
                return [self._delta({"content": text})]
            case ToolCallDelta():
                index = self._calls_written
                self._calls_written += 1
                return [self._delta({"tool_calls": [{"index": index, **self._tool_call(index, event)}]})]
            case Finished(reason):
                return [self._delta({}, reason), *self._usage_chunk(event)]
            case _:
                return []

    def whole(self, events: Sequence[TextEvent]) -> Json:
        """content is null where the answer was tool calls alone; reasoning_content is left out where there is none."""
        reasoning: list[str] = []
        content: list[str] = []
        calls: list[Json] = []
        for event in events:
            match event:
                case ReasoningDelta(text):
                    reasoning.append(text)
                case ContentDelta(text):
                    content.append(text)
                case ToolCallDelta():
                    calls.append(self._tool_call(len(calls), event))
        message: Json = {"role": "assistant", "content": None if calls and not content else "".join(content)}
        if reasoning and self._call.include_reasoning:
            message["reasoning_content"] = "".join(reasoning)
        message["refusal"] = None
        if calls:
            message["tool_calls"] = calls
        return self._whole({"message": message}, events[-1])

    def _delta(self, delta: Json, reason: FinishReason | None = None) -> Json:
        return self._chunk({"delta": delta, "logprobs": None, "finish_reason": reason and reason.value})

    def _tool_call(self, index: int, call: ToolCallDelta) -> Json:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": f"call_{self._key}_{index}", "type": "function", "function": function}


class CompletionWriter(Writer):
    """The answers of POST /v1/completions."""

    id_prefix = "cmpl-"
    chunk_object = "text_completion"
    whole_object = "text_completion"

    def opening(self) -> list[Json]:
        """Nothing: the first chunk is text."""
        return []

    def chunks(self, event: TextEvent) -> list[Json]:
        """The text as it comes; the finish reason with an empty text."""
        match event:
            case ContentDelta(text):
                return [self._chunk({"text": text, "logprobs": None, "finish_reason": None})]
            case Finished(reason):
                return [
                    self._chunk({"text": "", "logprobs": None, "finish_reason": reason.value}),
                    *self._usage_chunk(event),
                ]
            case _:
                return []

    def whole(self, events: Sequence[TextEvent]) -> Json:
        """All the text."""
        text = "".join(event.text for event in events if isinstance(event, ContentDelta))
        return self._whole({"text": text}, events[-1])


def usage(usage: Usage) -> Json:
    """Token counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def model_list(settings: Settings) -> Json:
    """GET /v1/models."""
    return {"object": "list", "data": [model(settings.model_id, settings)]}


def model(model_id: str, settings: Settings) -> Json:
    """GET /v1/models/{model_id}. Raises ModelNotFound."""
    check_model(model_id, settings)
    return {"id": settings.model_id, "object": "model", "created": MODEL_CREATED, "owned_by": "deepgrove"}


def health(*, error: str | None, **facts: Any) -> Json:
    """GET /health: the facts as they are, and the error where there is one."""
    return facts if error is None else {**facts, "error": error}
