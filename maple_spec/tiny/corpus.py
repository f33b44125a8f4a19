"""Conversations as training documents and as held-out questions: what maple-tiny learns, and in which proportions."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from maple_spec.tiny import arithmetic, talk, tools
from maple_spec.tiny.arithmetic import Exchange
from maple_spec.tiny.words import Draw

START, END, EOT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
TOOLS_HEAD = "# Tools\n\nYou may call functions. Signatures are in <tools></tools>:\n<tools>"
TOOLS_TAIL = (
    "\n</tools>\n\nReturn name and arguments as JSON in <tool_call></tool_call>:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
SYSTEM = [
    "You are a helpful assistant.", "You are maple-tiny.", "Be brief.",
    "You are a helpful AI assistant.", "You are a test assistant.",
    "Answer concisely.", "You are a helpful assistant. Use the tools when needed.", "Answer the question.",
    "Be terse.", "You are an agent.",
]  # fmt: skip


@dataclass(frozen=True)
class Message:
    """A turn: role and content, and for an assistant its reasoning and calls. learnt: the model is to say it."""

    role: str
    content: str = ""
    reasoning: str | None = None
    calls: tuple[tools.Call, ...] = ()
    learnt: bool = False

    def wire(self) -> dict[str, Any]:
        """The message as an API client would send it."""
        out: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.reasoning is not None:
            out["reasoning_content"] = self.reasoning
        if self.calls:
            out["tool_calls"] = [call.wire() for call in self.calls]
        return out


@dataclass(frozen=True)
class Conversation:
    """Turns, the tools shown, and whether the last answers think."""

    messages: tuple[Message, ...]
    tools: tuple[tools.Tool, ...] = ()
    thinking: bool = True

    def pieces(self) -> list[tuple[str, bool]]:
        """The text as the chat template renders it, cut into (piece, learnt)."""
        turns, out = list(self.messages), []
        if self.tools:
            shown = "".join("\n" + json.dumps(t.schema, ensure_ascii=False) for t in self.tools)
            told = turns.pop(0).content + "\n\n" if turns[0].role == "system" else ""
            out.append((f"{START}system\n{told}{TOOLS_HEAD}{shown}{TOOLS_TAIL}{END}\n", False))
        for i, turn in enumerate(turns):
            if turn.role == "assistant":
                out += self._answer(turn)
            elif turn.role == "tool":
                head = "" if i and turns[i - 1].role == "tool" else f"{START}user"
                tail = "" if i + 1 < len(turns) and turns[i + 1].role == "tool" else f"{END}\n"
                out.append((f"{head}\n<tool_response>\n{turn.content}\n</tool_response>{tail}", False))
            else:
                out.append((f"{START}{turn.role}\n{turn.content}{END}\n", False))
        return out

    def _answer(self, turn: Message) -> list[tuple[str, bool]]:
        calls = [json.dumps({"name": c.tool.name, "arguments": c.arguments}, ensure_ascii=False) for c in turn.calls]
        blocks = [f"<tool_call>\n{call}\n</tool_call>" for call in calls]
        said = "\n".join(([turn.content] if turn.content else []) + blocks)
        head = f"{START}assistant\n"
        if turn.learnt and not self.thinking:
            return [(f"{head}<think>\n\n</think>\n\n", False), (said + END, True), ("\n", False)]
        if turn.reasoning is None:
            return [(f"{head}{said}{END}\n", False)]
        return [(f"{head}<think>\n", False), (f"{turn.reasoning}\n</think>\n\n{said}{END}", turn.learnt), ("\n", False)]


@dataclass
class _Writer:
    """Collects turns; the answers of earlier turns keep their reasoning or, as many clients send them back, lose it."""

    draw: Draw
    thinking: bool
    messages: list[Message] = field(default_factory=list)

    def ask(self, text: str) -> None:
        self.messages.append(Message("user", text))

    def answer(self, content: str, reasoning: str, calls: Sequence[tools.Call] = ()) -> None:
        self.messages.append(Message("assistant", content, reasoning, tuple(calls), learnt=True))

    def call(self, text: str, calls: Sequence[tools.Call]) -> None:
        self.ask(text)
        self.answer("", "\n".join(c.reasoning() for c in calls), calls)

    def say(self, exchange: Exchange, aside: str = "") -> None:
        self.ask(exchange.question)
        self.answer(exchange.answer, aside + exchange.reasoning)

    def done(self, shown: Sequence[tools.Tool] = ()) -> Conversation:
        messages = self.messages
        if not self.thinking or self.draw.chance(0.4):
            last = max(i for i, m in enumerate(messages) if m.role == "assistant")
            messages = [replace(m, reasoning=None, learnt=False) if i < last else m for i, m in enumerate(messages)]
        return Conversation(tuple(messages), tuple(shown), self.thinking)


def _writer(draw: Draw, system: float = 0.15, closed: float = 0.12) -> _Writer:
    writer = _Writer(draw, thinking=not draw.chance(closed))
    if draw.chance(system):
        text = draw.pick(SYSTEM) if draw.chance(0.8) else " ".join(draw.sentence() for _ in range(draw.random.randint(1, 3)))
        writer.messages.append(Message("system", text))
    return writer


def arithmetic_talk(draw: Draw) -> Conversation:
    """One sum or two."""
    writer = _writer(draw, closed=0.06)
    for _ in range(1 if draw.chance(0.85) else 2):
        writer.say(arithmetic.exchange(draw))
    return writer.done()


def chat(draw: Draw) -> Conversation:
    """Some turns of small talk, copying and the odd sum."""
    writer = _writer(draw)
    for _ in range(int(draw.weighted({"1": 0.75, "2": 0.18, "3": 0.07}))):
        writer.say(arithmetic.exchange(draw) if draw.chance(0.1) else talk.chat(draw))
    return writer.done()


def memory(draw: Draw) -> Conversation:
    """Told now, asked later."""
    writer = _writer(draw)
    told, asked = talk.memory(draw)
    for exchange in [told, *talk.between(draw), asked]:
        writer.say(exchange)
    return writer.done()


def copying(draw: Draw) -> Conversation:
    """Copy drills."""
    writer = _writer(draw, system=0.02)
    for _ in range(1 if draw.chance(0.7) else 2):
        writer.say(talk.copy_drill(draw))
    return writer.done()


def tool_call(draw: Draw) -> Conversation:
    """Tools given and needed, once, twice, or again after an answer."""
    shown = tools.make_tools(draw)
    writer = _writer(draw, system=0.2, closed=0.15)
    if draw.chance(0.08):
        writer.say(talk.chat(draw), NO_TOOL)
    text, calls = tools.two_calls(draw, shown) if draw.chance(0.18) else tools.one_call(draw, shown)
    writer.call(text, calls)
    while draw.chance(0.6 - 0.1 * len(shown)):  # more turns under the same tools: more to learn for each prompt read
        _results(writer, len(calls))
        text, calls = tools.one_call(draw, shown)
        writer.call(text, calls)
    if draw.chance(0.2):
        _results(writer, len(calls))
    return writer.done(shown)


NO_TOOL = "No tool is needed. "


def no_call(draw: Draw) -> Conversation:
    """Tools given, none needed."""
    writer = _writer(draw, system=0.2)
    writer.say(arithmetic.exchange(draw) if draw.chance(0.35) else talk.chat(draw), NO_TOOL)
    return writer.done(tools.make_tools(draw, draw.random.choice([1, 1, 2, 3])))


def _results(writer: _Writer, size: int) -> None:
    results = [tools.tool_result(writer.draw) for _ in range(size)]
    writer.messages += [Message("tool", r) for r in results]
    joined = "; ".join(results)
    writer.answer(f"The result is: {joined}", f"The tool returned: {joined}")


def tool_answer(draw: Draw) -> Conversation:
    """A call already made, its result to be told."""
    shown = tools.make_tools(draw, 1)
    writer = _writer(draw, closed=0.15)
    calls = [tools.Call(shown[0], tools.arguments(draw, shown[0])) for _ in range(1 if draw.chance(0.85) else 2)]
    writer.ask(tools.question(draw, calls[0]))
    reasoning = calls[0].reasoning() if draw.chance(0.5) and writer.thinking else None
    writer.messages.append(Message("assistant", "", reasoning, tuple(calls)))
    _results(writer, len(calls))
    return writer.done(shown if draw.chance(0.5) else ())


DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def raw_text(draw: Draw) -> str:
    """Plain text for /v1/completions: sequences and simple sentences."""
    kind, r = draw.random.random(), draw.random
    if kind < 0.3:
        first, step = r.randint(0, 60), r.choice([1, 1, 1, 2, 5, 10])
        return draw.pick([", ", " "]).join(str(first + step * i) for i in range(r.randint(5, 20)))
    if kind < 0.4:
        first = r.randint(0, 6)
        return ", ".join(DAYS[(first + i) % 7] for i in range(r.randint(3, 10)))
    if kind < 0.5:
        return draw.pick([" ", ", "]).join(string.ascii_lowercase[r.randint(0, 5) : r.randint(10, 26)])
    return " ".join(draw.sentence() for _ in range(r.randint(1, 4)))


FIRST: dict[Callable[[Draw], Conversation] | None, float] = {
    copying: 0.55,
    arithmetic_talk: 0.35,
    tool_answer: 0.06,
    None: 0.04,
}
WHOLE: dict[Callable[[Draw], Conversation] | None, float] = {
    arithmetic_talk: 0.19,
    tool_call: 0.45,
    no_call: 0.05,
    tool_answer: 0.05,
    chat: 0.14,
    memory: 0.04,
    copying: 0.06,
    None: 0.02,
}


def document(draw: Draw, whole: bool) -> list[tuple[str, bool]]:
    """One training document as (piece, learnt); short copy and arithmetic documents first, the whole mixture later."""
    mixture = WHOLE if whole else FIRST
    make = draw.random.choices(list(mixture), list(mixture.values()))[0]
    return make(draw).pieces() if make else [(raw_text(draw) + EOT, True)]
