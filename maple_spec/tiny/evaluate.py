"""Measure maple-tiny on held-out questions, greedily, through the engine that serves it: `python -m maple_spec.tiny.evaluate`.

The questions come from the recipe's own writers, with operands, names and values that training never draws (words.is_held_out).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from maple_spec.engine import Engine, load_maple
from maple_spec.generation import Generator
from maple_spec.kernels.native import PLANES
from maple_spec.tiny import arithmetic, corpus, talk, tools
from maple_spec.tiny.arithmetic import Exchange
from maple_spec.tiny.corpus import Conversation, Message
from maple_spec.tiny.words import Draw
from maple_spec.types import (
    ChatPrompt,
    ContentDelta,
    Finished,
    FinishReason,
    GenerationRequest,
    ReasoningDelta,
    SamplingParams,
    ToolCallDelta,
)

MOST_TOKENS = 512


@dataclass(frozen=True)
class Answer:
    """What came back."""

    content: str
    reasoning: str
    calls: tuple[tuple[str, Any], ...]
    finish_reason: FinishReason
    tokens: int


@dataclass(frozen=True)
class Question:
    """A conversation that waits for an answer, and the test of it."""

    prompt: ChatPrompt
    is_right: Callable[[Answer], bool]


@dataclass(frozen=True)
class Task:
    """A kind of question with the share that must be right."""

    name: str
    make: Callable[[Draw], Question]
    bar: float


def _prompt(messages: list[Message], shown: tuple[tools.Tool, ...] = (), thinking: bool = True) -> ChatPrompt:
    return ChatPrompt(tuple(m.wire() for m in messages), tuple(t.schema for t in shown), enable_thinking=thinking)


def _text(exchange: Exchange, right: Callable[[str], bool], thinking: bool = True) -> Question:
    prompt = _prompt([Message("user", exchange.question)], thinking=thinking)
    return Question(prompt, lambda a: not a.calls and right(a.content.strip()))


def _arithmetic(op: str, thinking: bool = True) -> Callable[[Draw], Question]:
    def make(draw: Draw) -> Question:
        exchange = arithmetic.exchange(draw, op)
        while op == "*" and not _two_digit(exchange):
            exchange = arithmetic.exchange(draw, op)
        value = exchange.answer.split(" = ")[-1]
        return _text(exchange, lambda text: text.rstrip(".").split(" = ")[-1] == value, thinking)

    return make


def _two_digit(exchange: Exchange) -> bool:
    first, _, second = exchange.reasoning.split("\n")[0].split(":")[0].split(" ")
    return len(first) == 2 and exchange.reasoning.count("\n") == 2 and len(second) == 1


def _exact(write: Callable[[Draw], Exchange], thinking: bool = True) -> Callable[[Draw], Question]:
    def make(draw: Draw) -> Question:
        exchange = write(draw)
        return _text(exchange, lambda text: text == exchange.answer, thinking)

    return make


def _calls(size: int | None, pair: bool = False, thinking: bool = True) -> Callable[[Draw], Question]:
    def make(draw: Draw) -> Question:
        shown = tools.make_tools(draw, size)
        text, calls = tools.two_calls(draw, shown) if pair else tools.one_call(draw, shown)
        wanted = tuple((c.tool.name, c.arguments) for c in calls)
        prompt = _prompt([Message("user", text)], tuple(shown), thinking)
        return Question(prompt, lambda a: a.calls == wanted and not a.content.strip())

    return make


def _no_call(draw: Draw) -> Question:
    conversation = corpus.no_call(draw)
    return Question(_until_last(conversation), lambda a: not a.calls and "<tool_call>" not in a.content)


def _until_last(conversation: Conversation) -> ChatPrompt:
    return _prompt(list(conversation.messages[:-1]), conversation.tools, conversation.thinking)


def _tool_answer(draw: Draw) -> Question:
    conversation = corpus.tool_answer(draw)
    results = [m.content for m in conversation.messages if m.role == "tool"]
    return Question(_until_last(conversation), lambda a: not a.calls and all(r in a.content for r in results))


def _memory(draw: Draw) -> Question:
    told, asked = talk.memory(draw)
    turns = [told, *talk.between(draw)]
    messages = [m for t in turns for m in (Message("user", t.question), Message("assistant", t.answer))]
    value = asked.answer.split(" is ", 1)[1].rstrip(".")
    return Question(_prompt([*messages, Message("user", asked.question)]), lambda a: value in a.content)


TASKS = [
    Task("sum", _arithmetic("+"), 0.95),
    Task("difference", _arithmetic("-"), 0.90),
    Task("two-digit product", _arithmetic("*"), 0.90),
    Task("tool call, 1 given", _calls(1), 0.95),
    Task("tool call, 2 given", _calls(2), 0.95),
    Task("tool call, 3 given", _calls(3), 0.95),
    Task("tool call, 4 given", _calls(4), 0.95),
    Task("two calls at once", _calls(2, pair=True), 0.90),
    Task("tool call, thinking closed", _calls(2, thinking=False), 0.90),
    Task("tools given, none needed", _no_call, 0.95),
    Task("answer from a tool result", _tool_answer, 0.97),
    Task("repeat, say", _exact(talk.repeat), 0.95),
    Task("only the word", _exact(talk.only_word), 0.95),
    Task("repeat, thinking closed", _exact(talk.repeat, thinking=False), 0.95),
    Task("memory over turns", _memory, 0.95),
    Task("greetings, who are you", _exact(talk.small_talk), 0.95),
    Task("anything else", _exact(talk.stock), 0.95),
]


def questions(task: Task, number: int, seed: int = 0) -> Iterator[Question]:
    """The first `number` held-out questions of a task; the same for the same seed."""
    for i in range(number):
        yield task.make(Draw(f"evaluate:{seed}:{task.name}:{i}", held_out=True))


async def answer(generator: Generator, prompt: ChatPrompt, name: str = "evaluate") -> Answer:
    """The greedy answer, cut at MOST_TOKENS tokens."""
    sampling = SamplingParams(temperature=0.0, max_new_tokens=MOST_TOKENS)
    content, reasoning = "", ""
    calls: list[tuple[str, Any]] = []
    async for event in generator.generate(GenerationRequest(name, prompt, sampling)):
        match event:
            case ContentDelta(text):
                content += text
            case ReasoningDelta(text):
                reasoning += text
            case ToolCallDelta(tool, arguments):
                calls.append((tool, json.loads(arguments)))
            case Finished(reason, usage):
                return Answer(content, reasoning, tuple(calls), reason, usage.completion_tokens)
    raise AssertionError("a generation ends with Finished")


@dataclass
class Score:
    """Counts of one task."""

    asked: int = 0
    right: int = 0
    ended: int = 0
    tokens: int = 0

    @property
    def share(self) -> float:
        """Share of right answers."""
        return self.right / max(self.asked, 1)


async def measure(generator: Generator, task: Task, number: int, show: int = 0) -> Score:
    """Ask a task's questions one after the other; show so many wrong answers on standard error."""
    score = Score()
    for question in questions(task, number):
        got = await answer(generator, question.prompt)
        right = question.is_right(got)
        score.asked += 1
        score.right += right
        score.ended += got.finish_reason is not FinishReason.LENGTH
        score.tokens += got.tokens
        if not right and show > 0:
            show -= 1
            last = question.prompt.messages[-1]["content"]
            sys.stderr.write(f"[{task.name}] {last!r}\n    {got.reasoning!r}\n    {got.content!r} {got.calls}\n")
    return score


def start(path: str | None, *, kernels: str = "auto", activations: str = "int16") -> Generator:
    """A generator over the model in a folder, or over the one that ships; kernels and activations as load_maple takes them."""
    engine = Engine(lambda: load_maple(path, kernels=kernels, activations=activations))
    engine.start()
    engine.wait_loaded()
    engine.require_ready()
    return Generator(engine)


async def _run(options: argparse.Namespace) -> bool:
    generator = start(options.model, kernels=options.kernels, activations=options.activations)
    table = Table(
        "task",
        "questions",
        "right",
        "bar",
        "ended by itself",
        "tokens an answer",
        title=f"maple-tiny, {options.model or 'embedded'}, {options.kernels} kernels, greedy, held-out questions",
    )
    chosen = [t for t in TASKS if any(part in t.name for part in options.only)]
    held = True
    with Progress(console=Console(stderr=True)) as progress:
        for task in progress.track(chosen, description="evaluating"):
            score = await measure(generator, task, options.questions, options.show)
            held = held and score.share >= task.bar and score.ended == score.asked
            row = (
                f"{score.share:.1%}",
                f"{task.bar:.0%}",
                f"{score.ended / score.asked:.1%}",
                f"{score.tokens / score.asked:.0f}",
            )
            table.add_row(task.name, str(score.asked), *row)
    Console().print(table)
    return held


def main() -> None:
    """Parse the command line, print the table; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description="Measure maple-tiny on held-out generated questions at temperature 0.")
    parser.add_argument("--model", help="a checkpoint folder; default: the embedded maple-tiny")
    parser.add_argument("--kernels", default="auto", help="as MAPLE_KERNELS; reference computes in float32")
    parser.add_argument("--activations", default="int16", choices=list(PLANES), help="as MAPLE_ACTIVATIONS")
    parser.add_argument("--questions", type=int, default=200, help="questions a task (default 200)")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print for each task")
    parser.add_argument("--only", nargs="+", default=[""], help="tasks whose name contains one of these")
    options = parser.parse_args()
    held = asyncio.run(_run(options))
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
