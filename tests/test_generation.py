"""From request to events: order, usage, stop strings and endings, the same whatever the tokens are; refusals before Started."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.engine import Engine
from maple_spec.errors import (
    ContextLengthExceeded,
    EngineOverloaded,
    GenerationFailed,
    InvalidRequest,
    ModelLoadFailed,
    ModelLoading,
)
from maple_spec.generation import Generator
from maple_spec.text import OutputParser, StopMatcher
from maple_spec.types import (
    ChatPrompt,
    ContentDelta,
    Finished,
    FinishReason,
    GenerationRequest,
    Prompt,
    RawPrompt,
    ReasoningDelta,
    SamplingParams,
    Started,
    TextEvent,
    TokenPrompt,
    ToolCallDelta,
    Usage,
)
from tests.toys import CONTROL, ToyModel, loaded, says, toy_tokenizer

TOKENIZER = toy_tokenizer()
CHAT = ChatPrompt(({"role": "user", "content": "hi"},))
CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def request(prompt: Prompt = CHAT, *, stop: Sequence[str] = (), cap: int = 500, request_id: str = "r") -> GenerationRequest:
    return GenerationRequest(request_id, prompt, SamplingParams(temperature=0, max_new_tokens=cap), stop=tuple(stop))


def run(main: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(bounded())


def events_of(generator: Generator, wanted: GenerationRequest) -> list[TextEvent]:
    async def main() -> list[TextEvent]:
        return [event async for event in generator.generate(wanted)]

    events: list[TextEvent] = run(main())
    return events


@pytest.fixture
def serve() -> Iterator[Callable[..., Generator]]:
    """Makes a generator whose model is ready."""
    engines: list[Engine] = []

    def make(model: ToyModel | str, *, max_prompt_tokens: int | None = None, **options: Any) -> Generator:
        toy = says(model) if isinstance(model, str) else model
        engine = Engine(lambda: loaded(toy), **options)
        engines.append(engine)
        engine.start()
        assert engine.wait_loaded(10)
        return Generator(engine, max_prompt_tokens=max_prompt_tokens)

    yield make
    for engine in engines:
        engine.stop()


class Repeater:
    """A model that says whatever it was last told to; one engine for all examples of a law."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        model = ToyModel(lambda prompt_ids: self.token_ids)
        self.engine = Engine(lambda: loaded(model))
        self.engine.start()
        assert self.engine.wait_loaded(10)
        self.generator = Generator(self.engine)


@pytest.fixture(scope="module")
def repeater() -> Iterator[Repeater]:
    made = Repeater()
    yield made
    made.engine.stop()


def joined(events: Sequence[TextEvent]) -> list[Any]:
    """Deltas with neighbours of one kind joined."""
    result: list[Any] = []
    for kind, group in groupby(events, type):
        same = list(group)
        result += [kind("".join(event.text for event in same))] if kind in (ReasoningDelta, ContentDelta) else same  # type: ignore[union-attr]
    return result


def test_started_comes_first_and_finished_last(serve: Callable[..., Generator]) -> None:
    events = events_of(serve(f"Hm.\n</think>\n\nYes.{CALL}"), request())
    prompt_tokens = len("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n") - 12 - 10 - 12 - 7 + 4
    assert joined(events) == [
        Started(prompt_tokens),
        ReasoningDelta("Hm."),
        ContentDelta("Yes."),
        ToolCallDelta("f", "{}"),
        Finished(FinishReason.TOOL_CALLS, Usage(prompt_tokens, 4 + 1 + 2 + 4 + len(CALL) - 23 + 2 + 1, reasoning_tokens=4)),
    ]


tokens = st.one_of(
    st.sampled_from([TOKENIZER.id_of(token) for token in CONTROL if token != "<|im_end|>"]),
    st.integers(0, 255),
    st.sampled_from(list(b'<>{}":, \nathinkol_cr/')),
)


@given(
    token_ids=st.lists(tokens, max_size=30),
    prompt=st.builds(ChatPrompt, st.just(CHAT.messages), enable_thinking=st.booleans(), parse_tool_calls=st.booleans()),
    stop=st.lists(st.sampled_from(["a", "\n\n", "</think>", "ink", "\ufffd"]), max_size=2),
    cap=st.integers(1, 35),
)
def test_the_events_are_the_parsed_text_of_all_tokens_whatever_they_are(
    repeater: Repeater, token_ids: list[int], prompt: ChatPrompt, stop: list[str], cap: int
) -> None:
    repeater.token_ids = token_ids
    events = events_of(repeater.generator, request(prompt, stop=stop, cap=cap))

    reason = FinishReason.STOP if cap > len(token_ids) else FinishReason.LENGTH
    matcher = StopMatcher(stop)
    text = matcher.feed(TOKENIZER.decode(token_ids[:cap])) + matcher.finish()
    parser = OutputParser(prompt.enable_thinking, prompt.parse_tool_calls)
    deltas = parser.feed(text) + parser.finish(FinishReason.STOP if matcher.matched else reason)
    assert joined(events[1:-1]) == joined(deltas)

    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.finish_reason == parser.finish_reason
    usage = finished.usage
    generated = min(cap, len(token_ids) + 1)
    assert 1 <= usage.completion_tokens <= generated
    assert matcher.matched or usage.completion_tokens == generated
    assert 0 <= usage.reasoning_tokens <= usage.completion_tokens


@pytest.mark.parametrize(
    ("output", "cap", "reasoning", "completion"),
    [
        ("a" * 27 + "</think>" + "\n391", 500, 27, 33),  # the sample of the API reference
        ("abc", 2, 2, 2),  # cut in thought
        ("abc", 500, 3, 4),  # never closed: the end token is no thought
        ("</think>x", 500, 0, 3),
        ("ab\n\n</think>", 500, 4, 6),  # counted as generated, white space included
        ("<think>ab</think>", 500, 3, 5),
        ("é🙂</think>", 500, 6, 8),  # bytes are tokens here
    ],
)
def test_reasoning_tokens_are_those_generated_before_the_closing_marker(
    serve: Callable[..., Generator], output: str, cap: int, reasoning: int, completion: int
) -> None:
    finished = events_of(serve(output), request(cap=cap))[-1]
    assert isinstance(finished, Finished)
    assert (finished.usage.reasoning_tokens, finished.usage.completion_tokens) == (reasoning, completion)


def test_a_closing_marker_that_is_a_stop_string_is_not_counted_as_reasoning(serve: Callable[..., Generator]) -> None:
    usage = events_of(serve("abc</think>d"), replace(request(), stop=("</think>",)))[-1].usage  # type: ignore[union-attr]
    assert (usage.reasoning_tokens, usage.completion_tokens) == (3, 4)


def test_a_marker_spelled_by_several_tokens_counts_as_marker(serve: Callable[..., Generator]) -> None:
    spelled = TOKENIZER.encode("ab</think>c", control_tokens=False)
    events = events_of(serve(ToyModel(lambda prompt_ids: spelled)), request())
    assert joined(events)[1:3] == [ReasoningDelta("ab"), ContentDelta("c")]
    assert events[-1].usage.reasoning_tokens == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("prompt", [RawPrompt("hi"), TokenPrompt((104, 105)), ChatPrompt(CHAT.messages, enable_thinking=False)])
def test_without_thinking_there_are_no_reasoning_tokens(serve: Callable[..., Generator], prompt: Prompt) -> None:
    events = events_of(serve("yes"), request(prompt))
    assert joined(events)[1] == ContentDelta("yes")
    assert events[-1].usage.reasoning_tokens == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("prompt", [RawPrompt("<think>"), TokenPrompt((261,))])
def test_a_raw_prompt_is_untouched_and_its_output_unparsed(serve: Callable[..., Generator], prompt: Prompt) -> None:
    events = events_of(serve(f"a</think>\n\n{CALL}<|im_start|>"), request(prompt))
    assert joined(events) == [
        Started(1),
        ContentDelta(f"a</think>\n\n{CALL}<|im_start|>"),
        Finished(FinishReason.STOP, Usage(1, 4 + len(CALL) - 23 + 2 + 2)),
    ]


def test_a_stop_string_ends_the_run_and_frees_the_slot(serve: Callable[..., Generator]) -> None:
    generator = serve(says("ok</think>one two three four", seconds_per_token=0.002))

    async def main() -> None:
        events = [event async for event in generator.generate(request(stop=["two", "ok"], cap=400))]
        assert joined(events)[1:] == [Finished(FinishReason.STOP, Usage(events[0].prompt_tokens, 2, 2))]  # type: ignore[union-attr]
        events = [event async for event in generator.generate(request(stop=[" two"]))]
        assert joined(events)[1:3] == [ReasoningDelta("ok"), ContentDelta("one")]
        await asyncio.sleep(0.2)
        assert generator.engine.active == 0

    run(main())


def test_a_stop_string_behind_a_call_leaves_the_call(serve: Callable[..., Generator]) -> None:
    events = events_of(serve(f"</think>{CALL}\nObservation: x"), request(stop=["Observation:"]))
    assert joined(events)[1:2] == [ToolCallDelta("f", "{}")]
    assert events[-1].finish_reason is FinishReason.TOOL_CALLS  # type: ignore[union-attr]


@pytest.mark.parametrize(("cap", "content"), [(1, "\ufffd"), (2, "é"), (3, "é\ufffd")])
def test_a_character_cut_by_the_cap_is_marked_and_not_lost(serve: Callable[..., Generator], cap: int, content: str) -> None:
    events = events_of(serve("é🙂"), request(RawPrompt("x"), cap=cap))
    assert joined(events)[1] == ContentDelta(content)
    assert events[-1].finish_reason is FinishReason.LENGTH  # type: ignore[union-attr]


def test_nothing_is_streamed_before_it_is_certain(serve: Callable[..., Generator]) -> None:
    events = events_of(serve("ok</think>" + "é\nUser: x"), request(stop=["\nUser:"]))
    texts = [event.text for event in events if isinstance(event, ReasoningDelta | ContentDelta)]
    assert texts == ["o", "k", "é"]


@pytest.mark.parametrize(
    ("prompt", "param"), [(RawPrompt("x" * 11), "prompt"), (TokenPrompt((1,) * 11), "prompt"), (CHAT, "messages")]
)
@pytest.mark.parametrize("limit", [10, None])
def test_a_prompt_over_the_limit_is_refused_with_limit_and_count(
    serve: Callable[..., Generator], prompt: Prompt, param: str, limit: int | None
) -> None:
    model = says("x")
    model.context_length = 1000 if limit else 10
    with pytest.raises(ContextLengthExceeded, match=r"the prompt has (11|23) tokens; the limit is 10") as raised:
        events_of(serve(model, max_prompt_tokens=limit), request(prompt))
    assert (raised.value.param, raised.value.code) == (param, "context_length_exceeded")


def test_a_prompt_at_the_limit_is_taken(serve: Callable[..., Generator]) -> None:
    assert events_of(serve("y", max_prompt_tokens=10), request(RawPrompt("x" * 10)))[0] == Started(10)


@pytest.mark.parametrize("token_id", [-1, 263, 5279552648203111001])
def test_token_ids_outside_the_vocabulary_are_refused(serve: Callable[..., Generator], token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=f"token id {token_id} is outside") as raised:
        events_of(serve("y"), request(TokenPrompt((1, token_id))))
    assert raised.value.param == "prompt"


@pytest.mark.parametrize(
    ("prompt", "param"), [(RawPrompt("\ude00"), "prompt"), (ChatPrompt(({"role": "user", "content": "\ud83d"},)), "messages")]
)
def test_half_a_surrogate_pair_is_refused(serve: Callable[..., Generator], prompt: Prompt, param: str) -> None:
    with pytest.raises(InvalidRequest, match="surrogate") as raised:
        events_of(serve("y"), request(prompt))
    assert raised.value.param == param


def test_an_empty_prompt_is_refused(serve: Callable[..., Generator]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        events_of(serve("y"), request(RawPrompt("")))
    assert raised.value.param == "prompt"


def test_text_that_spells_control_tokens_is_text_in_chat_and_real_in_raw_prompts(serve: Callable[..., Generator]) -> None:
    generator = serve("y")
    plain, forged = (
        events_of(generator, request(ChatPrompt(({"role": "user", "content": text},))))[0] for text in ("", "<|im_end|>")
    )
    assert forged.prompt_tokens - plain.prompt_tokens == len("<|im_end|>")  # type: ignore[union-attr]
    assert events_of(generator, request(RawPrompt("<|im_end|>")))[0] == Started(1)


def test_a_model_that_is_not_there_yet_or_never_comes_is_a_503() -> None:
    may_load = threading.Event()

    def load() -> Any:
        may_load.wait(10)
        raise KeyError("nothing there")

    engine = Engine(load)
    engine.start()
    generator = Generator(engine)
    try:
        with pytest.raises(ModelLoading):
            events_of(generator, request())
        may_load.set()
        assert engine.wait_loaded(10)
        with pytest.raises(ModelLoadFailed, match="nothing there"):
            events_of(generator, request())
    finally:
        engine.stop()


def test_a_full_queue_is_a_refusal_before_anything_is_said(serve: Callable[..., Generator]) -> None:
    gate = threading.Event()
    generator = serve(says("a", gate=gate), max_queue_depth=0)

    async def main() -> None:
        async with aclosing(generator.generate(request(request_id="1"))) as running:
            assert isinstance(await anext(running), Started), "the slot is taken, though no token has come"
            with pytest.raises(EngineOverloaded):
                await anext(generator.generate(request(request_id="2")))
            gate.set()

    run(main())


def test_a_model_that_fails_fails_this_request_alone(serve: Callable[..., Generator]) -> None:
    def speak(prompt_ids: Sequence[int]) -> Sequence[int]:
        if len(prompt_ids) == 3:
            raise RuntimeError("out of luck")
        return [97]

    generator = serve(ToyModel(speak))
    with pytest.raises(GenerationFailed):
        events_of(generator, request(RawPrompt("bad")))
    assert joined(events_of(generator, request(RawPrompt("good"))))[1] == ContentDelta("a")


@pytest.mark.parametrize("read_first", [0, 1, 2])
def test_a_client_that_leaves_frees_the_slot_whatever_it_has_read(serve: Callable[..., Generator], read_first: int) -> None:
    generator = serve(says("abc" * 300, seconds_per_token=0.002))

    async def main() -> None:
        for number in range(10):
            async with aclosing(generator.generate(request(request_id=f"{number}"))) as events:
                for _ in range(read_first):
                    await anext(events)
        deadline = time.monotonic() + 0.5
        while generator.engine.active or generator.engine.queue_depth:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    run(main())


def test_tokenising_a_long_prompt_does_not_stop_the_event_loop(serve: Callable[..., Generator]) -> None:
    generator = serve(says("y"), max_prompt_tokens=10)
    prompt = ChatPrompt(({"role": "user", "content": "lorem ipsum <think> " * 10_000},))

    async def main() -> None:
        task = asyncio.create_task(anext(generator.generate(request(prompt))))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
        with pytest.raises(ContextLengthExceeded):
            await task
        assert turns > 3

    run(main())
