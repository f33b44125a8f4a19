"""Where text and tokens meet: a GenerationRequest becomes token ids, and the tokens that come back become TextEvents.

The output passes four steps, token by token: bytes to text, stop strings over the raw text, the output parser (chat alone), and
the count of tokens. Each request ends with one Finished, or with an error that is raised.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from maple_spec.engine import Engine, LoadedModel
from maple_spec.errors import ContextLengthExceeded, InvalidRequest
from maple_spec.text import Detokenizer, OutputParser, StopMatcher
from maple_spec.text.output_parser import END_THINK
from maple_spec.types import (
    ChatPrompt,
    ContentDelta,
    Delta,
    Finished,
    FinishReason,
    GenerationRequest,
    Prompt,
    RawPrompt,
    Started,
    TextEvent,
    TokenEvent,
    TokenPrompt,
    Usage,
)

# Prompts up to about this many characters are tokenised on the event loop, in about the time that a thread's hand-over takes.
_SHORT_PROMPT = 2000
_END_THINK = END_THINK.encode()


class Generator:
    """Generates text for requests; one serves all requests, from before the model is loaded until the end."""

    def __init__(self, engine: Engine, *, max_prompt_tokens: int | None = None) -> None:
        """max_prompt_tokens: longest prompt that is accepted, beside the model's context; None: the context alone decides."""
        self._engine = engine
        self._max_prompt_tokens = max_prompt_tokens

    @property
    def engine(self) -> Engine:
        """The engine that generates."""
        return self._engine

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TextEvent, None]:
        """Yield Started, then deltas, then one Finished; closing the iterator frees the request's place at once.

        Raised before Started: ModelLoading, ModelLoadFailed, ShuttingDown, EngineOverloaded, InvalidRequest,
        ContextLengthExceeded. Raised after it: GenerationFailed, ShuttingDown. A request that is aborted just ends.
        """
        loaded = self._engine.require_ready()
        if _is_short(request.prompt):
            prompt = _encode(request.prompt, loaded)
        else:
            prompt = await asyncio.to_thread(_encode, request.prompt, loaded)
        self._check_length(prompt)
        tokens = self._engine.submit(request.request_id, prompt.token_ids, request.sampling)
        try:
            await tokens.started()
            yield Started(len(prompt.token_ids))
            output = _Output(loaded, prompt, request, tokens.cached_tokens)
            async for event in tokens:
                for delta in output.add(event):
                    yield delta
                if output.finish_reason is not None:
                    tokens.close()  # a stop string ends it before the engine does
                    yield Finished(output.finish_reason, output.usage())
                    return
        finally:
            tokens.close()

    def _check_length(self, prompt: _EncodedPrompt) -> None:
        limit = self._engine.require_ready().language_model.context_length
        if self._max_prompt_tokens is not None:
            limit = min(limit, self._max_prompt_tokens)
        if len(prompt.token_ids) > limit:
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt.token_ids)} tokens; the limit is {limit}", param=prompt.param
            )


@dataclass(frozen=True, slots=True)
class _EncodedPrompt:
    token_ids: tuple[int, ...]
    param: str  # the field of the request that it came from
    parser: OutputParser | None  # reads the output; None where it is passed on untouched


def _is_short(prompt: Prompt) -> bool:
    """Whether the prompt's texts come to no more than _SHORT_PROMPT characters; looks at no more of them than it must."""
    left = _SHORT_PROMPT
    parts: list[Any] = [prompt.text] if isinstance(prompt, RawPrompt) else []
    if isinstance(prompt, ChatPrompt):
        parts = [*prompt.messages, *prompt.tools]
    while parts and left >= 0:
        part = parts.pop()
        left -= len(part) if isinstance(part, str) else 1
        if isinstance(part, Mapping):
            parts += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple):
            parts += part
    return left >= 0


def _encode(prompt: Prompt, loaded: LoadedModel) -> _EncodedPrompt:
    if isinstance(prompt, TokenPrompt):
        vocab_size = loaded.language_model.vocab_size
        for token_id in prompt.token_ids:
            if not 0 <= token_id < vocab_size:
                raise InvalidRequest(f"token id {token_id} is outside the vocabulary of {vocab_size}", param="prompt")
        return _EncodedPrompt(prompt.token_ids, "prompt", None)
    parser, param = None, "prompt"
    try:
        if isinstance(prompt, RawPrompt):
            token_ids = loaded.tokenizer.encode(prompt.text, control_tokens=True)
        else:
            param = "messages"
            rendered = loaded.chat_template.render(prompt)
            token_ids = loaded.tokenizer.encode_segments(rendered.segments)
            parser = OutputParser(rendered.thinking, prompt.parse_tool_calls)
    except UnicodeEncodeError as error:
        raise InvalidRequest("the text holds half a surrogate pair, which is no character", param=param) from error
    return _EncodedPrompt(tuple(token_ids), param, parser)


class _Output:
    """The way of one request's tokens into text; finish_reason is set by the token that ends it."""

    def __init__(self, loaded: LoadedModel, prompt: _EncodedPrompt, request: GenerationRequest, cached_tokens: int) -> None:
        self._token_bytes = loaded.tokenizer.token_bytes
        self._detokenizer = Detokenizer()
        self._stop = StopMatcher(request.stop)
        self._parser = prompt.parser
        self._prompt_tokens = len(prompt.token_ids)
        self._cached_tokens = cached_tokens
        self._completion_tokens = 0
        self._characters = 0
        self._begins: list[int] = []  # where each token's text begins in the output, until the answer begins
        self.finish_reason: FinishReason | None = None

    def add(self, event: TokenEvent) -> list[Delta]:
        """The deltas that a token makes certain."""
        text = ""
        if event.token_id is not None:
            self._completion_tokens += 1
            if event.finish_reason is not FinishReason.STOP:
                text = self._decode(event.token_id)
        if event.finish_reason is not None:
            text += self._detokenizer.finish()
        passed = self._stop.feed(text)
        reason = FinishReason.STOP if self._stop.matched else event.finish_reason
        if reason is not None:
            passed += self._stop.finish()
        return self._parse(passed, reason)

    def _decode(self, token_id: int) -> str:
        raw = self._token_bytes(token_id)
        if self._parser is not None and not self._parser.in_answer and raw != _END_THINK:
            self._begins.append(self._characters)  # the closing tag is not reasoning, even where it is a stop string
        text = self._detokenizer.feed(raw)
        self._characters += len(text)
        return text

    def _parse(self, text: str, reason: FinishReason | None) -> list[Delta]:
        if self._parser is None:
            self.finish_reason = reason
            return [ContentDelta(text)] if text else []
        deltas = self._parser.feed(text)
        if reason is not None:
            deltas += self._parser.finish(reason)
            self.finish_reason = self._parser.finish_reason
        return deltas

    def usage(self) -> Usage:
        """The counts so far; reasoning tokens are those that begin before `</think>`, or all where it never came."""
        reasoning = 0
        if self._parser is not None and self._parser.reasoning_end is not None:
            reasoning = bisect_left(self._begins, self._parser.reasoning_end)
        elif self._parser is not None and self._parser.in_reasoning:
            reasoning = len(self._begins)
        return Usage(self._prompt_tokens, self._completion_tokens, reasoning, self._cached_tokens)
