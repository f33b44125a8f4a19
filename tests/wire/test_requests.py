"""Bodies as calls: messages, tools, prompts, and how the answer is to be spelled."""

from __future__ import annotations

from typing import Any

import pytest

from maple_spec.errors import InvalidRequest, ModelNotFound
from maple_spec.settings import Settings, default_settings
from maple_spec.types import ChatPrompt, RawPrompt, TokenPrompt
from maple_spec.wire.requests import Call, chat_call, completion_call

DEFAULTS = default_settings()
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def chat(settings: Settings = DEFAULTS, **fields: Any) -> Call:
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    return chat_call(body, settings, request_id="req_1", created=1)


def prompt(**fields: Any) -> ChatPrompt:
    asked = chat(**fields).generation.prompt
    assert isinstance(asked, ChatPrompt)
    return asked


def messages(*given: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(prompt(messages=list(given)).messages)


def test_a_call_knows_what_the_answer_must_say() -> None:
    plain = chat()
    assert (plain.model, plain.created, plain.stream, plain.include_usage, plain.include_reasoning) == (
        "maple-preview", 1, False, False, True,
    )  # fmt: skip
    assert plain.generation.request_id == "req_1"
    told = chat(model="m", stream=True, stream_options={"include_usage": True}, include_reasoning=False)
    assert (told.model, told.stream, told.include_usage, told.include_reasoning) == ("m", True, True, False)
    nulls = chat(model=None, stream=None, stream_options={"include_usage": None}, include_reasoning=None)
    assert nulls == plain
    assert not chat(Settings(include_reasoning=False)).include_reasoning


def test_a_model_of_another_name_is_refused_only_where_the_server_is_strict() -> None:
    strict = Settings(strict_model=True, model_id="mine")
    assert chat(model="other").model == "other"
    assert chat(strict, model="mine").model == "mine"
    assert chat(strict).model == "mine"
    with pytest.raises(ModelNotFound, match="other") as refusal:
        chat(strict, model="other")
    assert refusal.value.param == "model"


def test_text_parts_are_joined_and_a_missing_content_is_an_empty_text() -> None:
    parts = [{"type": "text", "text": "Remember K7. "}, {"type": "text", "text": "Say it."}]
    refusal = [{"type": "refusal", "refusal": "No."}]
    assert messages(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts, "name": "ann"},
        {"role": "assistant", "content": refusal},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
    ) == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Remember K7. Say it.", "name": "ann"},
        {"role": "assistant", "content": "No."},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": ""},
    )


def test_tool_calls_and_their_results_go_into_the_template() -> None:
    asked = {"role": "assistant", "reasoning_content": "I should ask.", "tool_calls": [CALL, {**CALL, "id": "call_2"}]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "5"}]}
    assert messages({**asked, "content": None, "refusal": None}, result) == (
        {**asked, "content": ""},
        {"role": "tool", "tool_call_id": "call_1", "content": "5"},
    )
    assert messages({"role": "assistant", "content": "x", "tool_calls": [], "reasoning_content": None, "name": None}) == (
        {"role": "assistant", "content": "x"},
    )


@pytest.mark.parametrize("tools", [None, []])
@pytest.mark.parametrize("choice", [None, "none", "auto", "required"])
def test_no_tools_are_no_tools_whatever_the_choice(tools: Any, choice: Any) -> None:
    assert prompt(tools=tools, tool_choice=choice).tools == ()


def test_the_choice_decides_which_tools_are_shown() -> None:
    tools = [tool("f"), tool("g")]
    assert prompt(tools=tools).tools == tuple(tools)
    assert prompt(tools=tools, tool_choice="auto").tools == tuple(tools)
    assert prompt(tools=tools, tool_choice="required").tools == tuple(tools)
    assert prompt(tools=tools, tool_choice="none").tools == ()
    assert prompt(tools=tools, tool_choice={"type": "function", "function": {"name": "g"}}).tools == (tool("g"),)


def test_calls_stay_text_only_where_tools_are_ruled_out() -> None:
    assert not prompt(tools=[tool("f")], tool_choice="none").parse_tool_calls
    assert prompt().parse_tool_calls
    assert prompt(tools=[tool("f")], tool_choice="required").parse_tool_calls


@pytest.mark.parametrize("tools", [None, [], [tool("f")]])
def test_a_choice_of_an_absent_tool_is_refused_by_name(tools: Any) -> None:
    with pytest.raises(InvalidRequest, match="'g'") as refusal:
        chat(tools=tools, tool_choice={"type": "function", "function": {"name": "g"}})
    assert refusal.value.param == "tool_choice"


def test_thinking_is_the_request_s_choice_and_else_the_server_s() -> None:
    assert prompt().enable_thinking
    assert not prompt(chat_template_kwargs={"enable_thinking": False}).enable_thinking
    assert prompt(chat_template_kwargs={"enable_thinking": None}).enable_thinking
    off = Settings(enable_thinking=False)
    assert not prompt(settings=off).enable_thinking
    assert prompt(settings=off, chat_template_kwargs={"enable_thinking": True}).enable_thinking
    assert prompt(chat_template_kwargs={"enable_thinking": True, "style": "x"}).template_kwargs == {"style": "x"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a", RawPrompt("a")),
        (["a"], RawPrompt("a")),
        ([1, 2], TokenPrompt((1, 2))),
        ([[1, 2]], TokenPrompt((1, 2))),
    ],
)
def test_a_raw_prompt_has_four_spellings(given: Any, expected: Any) -> None:
    call = completion_call({"prompt": given, "stop": "x"}, DEFAULTS, request_id="req_1", created=1)
    assert call.generation.prompt == expected
    assert call.generation.stop == ("x",)
