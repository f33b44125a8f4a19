"""Conversations rendered through the model's own chat template, with every text in them kept as text.

Text in messages, tools or template arguments that spells a control token is masked before the template sees it and unmasked
after the template's own control tokens were found, so nobody can forge a turn; any other text reaches the tokenizer exactly as
the template alone would have it.

Templates are written for transformers' apply_chat_template; the environment here offers what they may use of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.meta
import jinja2.nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from maple_spec.errors import CheckpointError, InvalidRequest
from maple_spec.text.output_parser import END_THINK, THINK
from maple_spec.text.segments import RenderedPrompt, Segment, control_pattern, split
from maple_spec.types import ChatPrompt


class ChatTemplate:
    """A compiled chat template together with the control tokens of its tokenizer."""

    def __init__(self, source: str, control_tokens: Collection[str]) -> None:
        """source: Jinja text; control_tokens: texts of the added tokens. CheckpointError where it does not parse."""
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(f"chat template, line {error.lineno}: {error.message}") from error
        self._takes_argument_text = _tests_argument_text(tree)
        self._masks = _Masks(control_tokens, source)

    def render(self, prompt: ChatPrompt) -> RenderedPrompt:
        """The prompt in segments, up to the assistant's turn; InvalidRequest where the template refuses the conversation."""
        messages = [self._message(message) for message in prompt.messages]
        variables = {**prompt.template_kwargs, "messages": messages, "tools": [*prompt.tools] or None}
        try:
            mask = self._masks.choose(variables)
            variables = self._masks.apply(variables, mask)
            variables |= {"enable_thinking": prompt.enable_thinking, "add_generation_prompt": True}
            text = self._template.render(variables)
        except RecursionError:
            raise InvalidRequest("the messages or tools are nested too deeply", param="messages") from None
        except Exception as error:  # a template can fail in any way that Python can
            raise InvalidRequest(f"the model's chat template refuses the messages: {error}", param="messages") from error
        segments = self._masks.split(text, mask)
        thinking = _ends_in_thought(segments)
        if thinking and not prompt.enable_thinking:
            # The template has no switch of its own: the block that it opened is closed at once, leaving the empty block that
            # templates with a switch write: <think>\n\n</think>\n\n.
            text += f"\n{END_THINK}\n\n" if text.endswith("\n") else f"\n\n{END_THINK}\n\n"
            segments, thinking = self._masks.split(text, mask), False
        return RenderedPrompt(segments, thinking)

    def _message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message as templates expect it: system for developer, content never null, reasoning apart from the content."""
        prepared = dict(message)
        if prepared.get("role") == "developer":
            prepared["role"] = "system"
        prepared["content"] = prepared.get("content") or ""
        if prepared["role"] == "assistant":
            _split_reasoning(prepared)
        if prepared.get("tool_calls"):
            prepared["tool_calls"] = [self._tool_call(call) for call in prepared["tool_calls"]]
        return prepared

    def _tool_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The call with its arguments, JSON text, as the template expects them.

        A template that asks whether they are text gets the client's very text; any other gets the object, which it will write
        as JSON itself. What is no JSON object stays text, so that the conversation can go on with it.
        """
        function = dict(call["function"])
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            arguments = arguments if arguments.strip() else "{}"
            function["arguments"] = arguments if self._takes_argument_text else _object_or_text(arguments)
        return {**call, "function": function}


class _Masks:
    """Hides control tokens in texts from the template by a mark behind their first character, and finds the template's own."""

    def __init__(self, control_tokens: Collection[str], source: str) -> None:
        self._source = source
        self._pattern = control_pattern(control_tokens)

    def choose(self, value: Any) -> str | None:
        """A character that occurs neither in the value's texts nor in the template; None where nothing is to be masked."""
        texts = list(_texts(value))
        if not any(self._pattern.search(text) for text in texts):
            return None
        taken = set(self._source).union(*texts)
        # Private use: no template treats these as space, letter or punctuation, and JSON writes them as they are.
        return next(chr(code) for code in (*range(0xE000, 0xF900), *range(0xF0000, 0x10FFFE)) if chr(code) not in taken)

    def apply(self, value: Any, mask: str | None) -> Any:
        """The value with all control tokens in its texts masked."""
        if mask is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(lambda match: match.group()[0] + mask + match.group()[1:], value)
        if isinstance(value, Mapping):
            return {self.apply(key, mask): self.apply(item, mask) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(item, mask) for item in value]
        return value

    def split(self, text: str, mask: str | None) -> tuple[Segment, ...]:
        """The rendered text in segments: the template's control tokens, and the plain text between them, unmasked."""
        return tuple(
            Segment(segment.text.replace(mask, "")) if mask and not segment.control else segment
            for segment in split(text, self._pattern)
        )


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _split_reasoning(message: dict[str, Any]) -> None:
    """Move a <think>…</think> block out of an assistant's content; clients that store the raw text send it back that way."""
    before, closing, after = message["content"].partition(END_THINK)
    if not closing:
        return
    outside, _, reasoning = before.rpartition(THINK)
    reasoning = reasoning.strip("\n")
    known = message.get("reasoning_content") or ""
    message["reasoning_content"] = "\n".join(dict.fromkeys(text for text in (known, reasoning) if text))
    message["content"] = outside.rstrip() + after.lstrip("\n") if outside.strip() else after.lstrip("\n")


def _ends_in_thought(segments: tuple[Segment, ...]) -> bool:
    marks = [segment.text for segment in segments if segment.control and segment.text in (THINK, END_THINK)]
    return bool(marks) and marks[-1] == THINK


def _object_or_text(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _tests_argument_text(tree: jinja2.nodes.Template) -> bool:
    """Whether the template asks `….arguments is string` (or of a variable of that name)."""
    for test in tree.find_all(jinja2.nodes.Test):
        node = test.node
        name = getattr(node, "attr", getattr(node, "name", None))
        if isinstance(node, jinja2.nodes.Getitem) and isinstance(node.arg, jinja2.nodes.Const):
            name = node.arg.value
        if test.name == "string" and name == "arguments":
            return True
    return False


class _GenerationTag(Extension):
    """{% generation %}…{% endgeneration %} marks the assistant's part for training; here the part is just rendered."""

    tags = {"generation"}  # noqa: RUF012 (the base class declares it so)

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], autoescape=False
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: plain, not escaped for HTML as Jinja's own filter has it."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
