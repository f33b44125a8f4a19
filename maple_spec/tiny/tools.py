"""Invented tools, questions that need them, the calls they should get, and answers from tool results.

The reasoning walks through the chosen tool: its whole name with its parameter list, then each parameter with its type and the
value as JSON, so that the call itself is a copy of what stands just above it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from maple_spec.tiny.values import KINDS, PARAMETERS, Parameter, spoken, value
from maple_spec.tiny.words import Draw, is_held_out


@dataclass(frozen=True)
class Tool:
    """A function with the words a question may call it by."""

    name: str
    verb: str
    noun: str
    parameters: tuple[Parameter, ...]
    schema: dict[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Call:
    """A tool with the arguments it should get."""

    tool: Tool
    arguments: dict[str, Any] = field(hash=False)

    def reasoning(self) -> str:
        """The walk through name, parameters and values."""
        head = f"Tool: {self.tool.name}({', '.join(p.name for p in self.tool.parameters)})"
        lines = []
        for p in self.tool.parameters:
            value = json.dumps(self.arguments[p.name], ensure_ascii=False) if p.name in self.arguments else "none"
            lines.append(f"{p.name} ({p.type}): {value}")
        return "\n".join([head, *lines])

    def wire(self) -> dict[str, Any]:
        """The call as an assistant message holds it."""
        arguments = json.dumps(self.arguments, ensure_ascii=False)
        return {"type": "function", "function": {"name": self.tool.name, "arguments": arguments}}


def _name(draw: Draw) -> tuple[str, str, str]:
    """A tool name on the draw's side of the held-out rule, with its verb and noun (empty where the name says nothing)."""
    while True:
        name, verb, noun = draw.part(lambda: _any_name(draw))
        if is_held_out(name) == draw.held_out:
            return name, verb, noun


def _any_name(draw: Draw) -> tuple[str, str, str]:  # noqa: PLR0911 -- a table of styles
    verb, noun = draw.doing(), draw.thing()
    kind = draw.random.random()
    if kind < 0.38:
        return f"{verb}_{noun}", verb, noun
    if kind < 0.53:
        second = draw.thing()
        return f"{verb}_{noun}_{second}", verb, f"{noun} {second}"
    if kind < 0.61:
        adjective = draw.pick(["current", "new", "all", "latest", "my", "user"])
        return f"{verb}_{adjective}_{noun}", verb, f"{adjective} {noun}"
    if kind < 0.72:
        return f"{verb}{noun.capitalize()}", verb, noun
    if kind < 0.76:
        return f"{verb}-{noun}", verb, noun
    if kind < 0.81:
        made = draw.syllables(1, 3)
        return f"{verb}_{made}", verb, made
    if kind < 0.86:
        return draw.syllables(2, 4), "", ""
    if kind < 0.89:
        return f"{draw.syllables(1, 2)}_{draw.syllables(1, 2)}", "", ""
    if kind < 0.91:
        return f"{draw.syllables(2, 3)}_{draw.random.randint(1, 99)}", "", ""
    if kind < 0.96:
        return f"{noun}_{draw.pick(['tool', 'function', 'api', 'service', 'lookup'])}", "", noun
    return verb, verb, ""


def _parameter_name(draw: Draw) -> str:
    """A name that a client's author might choose, or an invented one."""
    kind = draw.random.random()
    if kind < 0.3:
        return draw.noun()
    if kind < 0.62:
        return draw.fresh(lambda: f"{draw.thing()}_{draw.pick([draw.thing(), 'id', 'name', 'code', 'type', 'date'])}")
    if kind < 0.76:
        return draw.fresh(lambda: f"{draw.thing()}{draw.thing().capitalize()}")
    if kind < 0.9:
        return draw.word()
    return draw.syllables(1, 3)


def _parameter(draw: Draw, used: set[str]) -> Parameter:
    while True:
        if draw.chance(0.5) and not draw.held_out:
            name, kind = draw.random.choice(PARAMETERS)
        else:
            name = _parameter_name(draw)
            kind = draw.pick(KINDS)
        if name.lower() not in used:
            used.add(name.lower())
            choices = tuple(dict.fromkeys(draw.word() for _ in range(draw.random.randint(2, 3)))) if kind == "enum" else ()
            return Parameter(name, kind, required=draw.chance(0.85), choices=choices)


DESCRIPTIONS = [
    "{verb} the {noun}", "{verb} a {noun}", "{Verb} {noun} data.", "Tool to {verb} the {noun}", "{Verb} the {noun} of a {p}.",
    "{Verb} the current {noun} for a given {p}", "{Verb} the {noun}.", "Use this to {verb} the {noun}.",
    "Can {verb} {noun}s by {p}.",
    "{Verb} the {noun} and return it.", "Returns the {noun} after it can {verb} the {p}.",
]  # fmt: skip
ABOUT = ["The {p}", "{p} to use", "the {p} value", "{p} of the {noun}", "The {p} of the {noun}, e.g. {e}", "A {p}, such as {e}"]


def _describe(draw: Draw, parameter: Parameter, style: float, noun: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if style < 0.35 or (style < 0.5 and draw.chance(0.5)):
        example = value(draw, parameter)
        text = draw.pick(ABOUT).format(p=parameter.name.replace("_", " "), noun=noun or draw.noun(), e=example)
        schema = (
            {"type": parameter.type, "description": text} if draw.chance(0.7) else {"description": text, "type": parameter.type}
        )
    elif style > 0.9:
        schema = {"title": parameter.name.replace("_", " ").title(), "type": parameter.type}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.kind == "list":
        schema["items"] = {"type": "string"}
    return schema


def _distinct(draw: Draw, beside: Sequence[Tool]) -> tuple[str, str, str, bool]:
    """Name, verb, noun and whether the name says both; no question for one of the tools would do for another."""
    while True:
        name, said_verb, said_noun = _name(draw)
        verb, noun = said_verb or draw.doing(), said_noun or draw.thing()
        others = {word for t in beside for word in (t.name, *t.noun.split(" "))} | {t.verb for t in beside if name == verb}
        if not others & {name, *noun.split(" ")} and verb not in {t.name for t in beside}:
            return name, verb, noun, bool(said_verb and said_noun)


def make_tool(draw: Draw, beside: Sequence[Tool] = ()) -> Tool:
    """A tool unlike those beside it, with zero to four parameters and a JSON Schema in one of the styles that clients send."""
    name, verb, noun, said = _distinct(draw, beside)
    size = int(draw.weighted({"0": 0.06, "1": 0.42, "2": 0.3, "3": 0.16, "4": 0.06}))
    taken: set[str] = set()
    parameters = tuple(_parameter(draw, taken) for _ in range(size))
    style = draw.random.random()
    schema: dict[str, Any] = {"type": "object", "properties": {p.name: _describe(draw, p, style, noun) for p in parameters}}
    if draw.chance(0.85):
        schema["required"] = [p.name for p in parameters if p.required]
    else:
        parameters = tuple(Parameter(p.name, p.kind, False, p.choices) for p in parameters)
    if draw.chance(0.1):
        schema["additionalProperties"] = False
    function: dict[str, Any] = {"name": name}
    if not said or draw.chance(0.75):
        first = parameters[0].name.replace("_", " ") if parameters else "id"
        function["description"] = draw.pick(DESCRIPTIONS).format(verb=verb, Verb=verb.capitalize(), noun=noun, p=first)
    function["parameters"] = schema
    if draw.chance(0.1):
        function["strict"] = True
    whole = {"type": "function", "function": function}
    if draw.chance(0.05):
        whole = {"function": function, "type": "function"}
    return Tool(name, verb, noun, parameters, whole)


def make_tools(draw: Draw, size: int | None = None) -> list[Tool]:
    """One to four tools with different names."""
    tools: list[Tool] = []
    for _ in range(size or int(draw.weighted({"1": 0.34, "2": 0.26, "3": 0.22, "4": 0.18}))):
        tools.append(make_tool(draw, tools))
    return tools


def arguments(draw: Draw, tool: Tool) -> dict[str, Any]:
    """Values for every required parameter and most optional ones."""
    return {p.name: value(draw, p) for p in tool.parameters if p.required or draw.chance(0.6)}


NO_VALUE = [
    "{verb} the {noun}", "Please {verb} the {noun}.", "What is the {noun}?", "Can you {verb} the {noun}?", "Call {name}.",
    "{name}",
    "Use {name}", "Show me the {noun}", "I want to {verb} the {noun}.", "Run {name} please", "Use the {name} tool.",
    "{verb} {noun} now",
]  # fmt: skip
ONE_VALUE = [
    "What is the {noun} in {x}?", "What is the {noun} for {x}?", "What's the {noun} of {x}?", "{verb} the {noun} for {x}",
    "{verb} {noun} {x}", "Please {verb} the {noun} {x}.", "Can you {verb} the {noun} with {p} {x}?", "Use {name} with {p} {x}",
    "Call {name} for {x}", "{name} {x}", "{verb} the {noun}, set the {p} to {x}", "How is the {noun} in {x}?",
    "{verb} {noun} for {x}",
    "I want to {verb} the {noun}, {p} is {x}.", "Call {name} with {p}={x}.", "Show me the {noun} at {x}",
    "{x}: what is the {noun}?",
    "Could you {verb} {noun} for {x} please?", "Look up the {noun} for {x}", "I need the {noun} for {x}.",
    "Tell me the {noun} in {x}",
    "What is the value of {name}({x})?", "What is {name} of {x}? Use the tool.", "{verb} the {noun} in {x} using the tool",
    "What's the {noun} like in {x}?", "How is the {noun} in {x} today?", "Tell me the {noun} for {x} please", "{noun} in {x}?",
    "Is the {noun} in {x} good?", "Give me the {noun} of {x} now", "Use {name}({x})", "Call {name} with {x}",
    "Run {name} on {x}.",
]  # fmt: skip
MANY_NAMED = [
    "{verb} the {noun} with {a}", "Call {name} with {a}.", "Please {verb} the {noun}: {a}", "Use {name}, {a}",
    "Can you {verb} {noun} with {a}?",
    "I want to {verb} the {noun} with {a}.", "{name} {a}", "{verb} {noun}, {a}, please", "Use the {name} tool with {a}.",
    "{name}({a})",
    "Please call {name} with {a}", "{verb} a {noun} where {a}",
]  # fmt: skip
PAIR = ["{p} {x}", "{p}={x}", "{p}: {x}", "{p} is {x}", "{x} as {p}", "{p} set to {x}", "the {p} {x}", "{p} = {x}"]
MANY_BARE = [
    "{verb} the {noun} from {a} to {b}", "{verb} {noun} {a} {b}", "What is the {noun} in {a} for {b}?",
    "{verb} {noun} {a} for {b}",
    "Please {verb} the {noun} of {a} on {b}.", "{verb} the {noun} for {a} and {b}", "{verb} {noun} with {a} and {b}",
    "{name}({a}, {b})",
    "What is {name} of {a} and {b}?", "{verb} {noun} {a}, {b}", "Call {name} with {a} and {b}",
]  # fmt: skip
BEFORE = ["Please ", "Hi, ", "Can you help? ", "Hey, ", "Now ", "Then ", "I have a question. ", "Hello! ", "ok, ", "Next: "]
AFTER = [
    " please",
    " today",
    " now",
    " right now",
    " for me",
    " Thanks!",
    " Use the tool.",
    " please?",
    ", thanks",
    " this week",
    " Use your tools.",
]


def _frame(draw: Draw, call: Call) -> str:
    """Values are named unless they belong to the tool's first parameters, in order: else nobody could tell whose they are."""
    tool = call.tool
    names = [p.name.replace("_", " ") if draw.chance(0.4) else p.name for p in tool.parameters if p.name in call.arguments]
    values = [spoken(v) for v in call.arguments.values()]
    quote = draw.pick(['"{}"', "'{}'", "{}", "{}", "{}", "{}", "{}", "{}", "{}"])
    values = [quote.format(v) if isinstance(raw, str) else v for v, raw in zip(values, call.arguments.values(), strict=True)]
    words = {"verb": tool.verb, "noun": tool.noun, "name": tool.name}
    if not values:
        return draw.pick(NO_VALUE).format(**words)
    leading = [p.name for p in tool.parameters[: len(values)]] == list(call.arguments)
    if len(values) == 1 and leading:
        return draw.pick(ONE_VALUE).format(**words, x=values[0], p=names[0])
    bare = not any(isinstance(v, list) for v in call.arguments.values())
    if len(values) == 2 and leading and bare and draw.chance(0.3):
        return draw.pick(MANY_BARE).format(**words, a=values[0], b=values[1])
    pair = draw.pick(PAIR)
    pairs = [pair.format(p=p, x=x) for p, x in zip(names, values, strict=True)]
    if draw.chance(0.3):
        draw.random.shuffle(pairs)
    joined = ", ".join(pairs[:-1]) + (draw.pick([", ", " and ", ", and "]) if len(pairs) > 1 else "") + pairs[-1]
    return draw.pick(MANY_NAMED).format(**words, a=joined)


def question(draw: Draw, call: Call) -> str:
    """A question that needs just this call and names all its values."""
    text = _frame(draw, call)
    if draw.chance(0.6) and text.startswith(call.tool.verb):
        text = text[:1].upper() + text[1:]
    if draw.chance(0.12):
        text = draw.pick(BEFORE) + text
    if draw.chance(0.15):
        text = text.rstrip(".?") + draw.pick(AFTER)
    return text


def one_call(draw: Draw, tools: list[Tool]) -> tuple[str, list[Call]]:
    """A question that needs one call of one of the tools."""
    tool = draw.random.choice(tools)
    call = Call(tool, arguments(draw, tool))
    return question(draw, call), [call]


SAME_TOOL = [
    "What is the {noun} in {x} and {y}?", "{verb} the {noun} for {x} and {y}", "{verb} {noun} {x} and {y}",
    "Call {name} for {x} and for {y}",
    "Compare the {noun} in {x} and {y}", "What is the {noun} of {x} and of {y}?", "Use {name} for {x} and {y}.",
    "What's the {noun} in {x} and in {y}?",
    "{verb} the {noun} for both {x} and {y}.",
]  # fmt: skip
JOIN = [" and then ", " and also ", "; then ", ". Then ", " and ", ". Also "]


def two_calls(draw: Draw, tools: list[Tool]) -> tuple[str, list[Call]]:
    """A question that needs two calls, to one tool or to two."""
    first = draw.random.choice(tools)
    one = Call(first, arguments(draw, first))
    if len(tools) > 1 and draw.chance(0.5):
        second = draw.random.choice([t for t in tools if t is not first])
        other = Call(second, arguments(draw, second))
        return question(draw, one) + draw.pick(JOIN) + _frame(draw, other), [one, other]
    other = Call(first, arguments(draw, first))
    leading = [p.name for p in first.parameters[:1] if p.kind != "list"]
    if list(one.arguments) == list(other.arguments) == leading != [] and one.arguments != other.arguments:
        x, y = (spoken(next(iter(c.arguments.values()))) for c in (one, other))
        return draw.pick(SAME_TOOL).format(verb=first.verb, noun=first.noun, name=first.name, x=x, y=y), [one, other]
    if not one.arguments or one.arguments == other.arguments:
        return question(draw, one), [one]
    return question(draw, one) + draw.pick(JOIN) + _frame(draw, other), [one, other]


def tool_result(draw: Draw) -> str:
    """What a tool may return."""
    kind = draw.random.random()
    if kind < 0.22:
        state = draw.pick(["sunny", "rainy", "cloudy", "windy", "snowy", draw.word()])
        return f"{draw.random.randint(-9, 40)} {draw.pick(['degrees', 'C', '°C', 'degrees celsius'])}, {state}"
    if kind < 0.36:
        return str(draw.number()) if draw.chance(0.7) else str(round(draw.random.uniform(0, 500), 2))
    if kind < 0.6:
        kinds = [Parameter("", draw.pick(KINDS[:11]), True) for _ in range(draw.random.randint(1, 3))]
        return json.dumps({draw.word(): value(draw, k) for k in kinds}, ensure_ascii=False)
    if kind < 0.68:
        return draw.pick(
            ["ok", "done", "success", "error: not found", "error: timeout", "true", "false", "no results", "sent", "[]"]
        )
    if kind < 0.86:
        return draw.phrase(1, 8)
    return ", ".join(str(value(draw, Parameter("", draw.pick(KINDS[:11]), True))) for _ in range(draw.random.randint(1, 4)))
