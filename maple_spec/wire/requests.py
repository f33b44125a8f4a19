"""Request bodies as GenerationRequests, with what the answer's spelling needs to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maple_spec.errors import InvalidRequest, ModelNotFound
from maple_spec.settings import Settings
from maple_spec.types import ChatPrompt, GenerationRequest, Prompt, RawPrompt, TokenPrompt
from maple_spec.wire.parameters import given, sampling_params, stop_strings


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the wire sees it: what to generate, and how the answer is to be spelled.

    created: when the request arrived, seconds since 1970.
    """

    generation: GenerationRequest
    model: str
    created: int
    stream: bool
    include_usage: bool
    include_reasoning: bool = True


def chat_call(body: Mapping[str, Any], settings: Settings, *, request_id: str, created: int) -> Call:
    """A valid body of POST /v1/chat/completions. Raises ModelNotFound, or InvalidRequest for a tool_choice without its tool."""
    return _call(
        body,
        settings,
        _chat_prompt(body, settings),
        request_id=request_id,
        created=created,
        include_reasoning=given(body, "include_reasoning", settings.include_reasoning),
    )


def completion_call(body: Mapping[str, Any], settings: Settings, *, request_id: str, created: int) -> Call:
    """A valid body of POST /v1/completions. Raises ModelNotFound."""
    return _call(body, settings, _raw_prompt(body["prompt"]), request_id=request_id, created=created)


def check_model(name: str | None, settings: Settings) -> None:
    """Raise ModelNotFound where a model is named that is not the one served."""
    if name is not None and name != settings.model_id:
        raise ModelNotFound(f"the model {name!r} does not exist; {settings.model_id!r} is served here", param="model")


def _call(
    body: Mapping[str, Any],
    settings: Settings,
    prompt: Prompt,
    *,
    request_id: str,
    created: int,
    include_reasoning: bool = True,
) -> Call:
    model = body.get("model")
    if settings.strict_model:
        check_model(model, settings)
    return Call(
        generation=GenerationRequest(
            request_id=request_id, prompt=prompt, sampling=sampling_params(body, settings), stop=stop_strings(body)
        ),
        model=model or settings.model_id,
        created=created,
        stream=given(body, "stream", False),
        include_usage=given(given(body, "stream_options", {}), "include_usage", False),
        include_reasoning=include_reasoning,
    )


def _chat_prompt(body: Mapping[str, Any], settings: Settings) -> ChatPrompt:
    template_kwargs = dict(given(body, "chat_template_kwargs", {}))
    enable_thinking = template_kwargs.pop("enable_thinking", None)
    return ChatPrompt(
        messages=tuple(_message(message) for message in body["messages"]),
        tools=_tools(given(body, "tools", ()), body.get("tool_choice")),
        enable_thinking=settings.enable_thinking if enable_thinking is None else enable_thinking,
        parse_tool_calls=body.get("tool_choice") != "none",
        template_kwargs=template_kwargs,
    )


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates read it: content one text, nulls and empty lists left out, a developer's words as the system's."""
    role = message["role"]
    kept = {"role": "system" if role == "developer" else role, "content": _text(message.get("content"))}
    for name in ("reasoning_content", "tool_calls", "tool_call_id", "name"):
        if value := message.get(name):
            kept[name] = value
    return kept


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part["refusal"] if part["type"] == "refusal" else part["text"] for part in content)


def _tools(tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
    """The tools that the model is shown: none, all, or the one that tool_choice names."""
    if choice == "none":
        return ()
    if choice is None or isinstance(choice, str):
        return tuple(tools)
    wanted = choice["function"]["name"]
    shown = tuple(tool for tool in tools if tool["function"]["name"] == wanted)
    if not shown:
        raise InvalidRequest(f"tool_choice names the function {wanted!r}, which is not among tools", param="tool_choice")
    return shown


def _raw_prompt(prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return RawPrompt(prompt)
    if isinstance(prompt[0], int):
        return TokenPrompt(tuple(prompt))
    return _raw_prompt(prompt[0])  # a list that holds the one prompt
