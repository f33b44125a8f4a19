"""One slot, in order of arrival; a place is freed at once by whoever leaves; no failure reaches another request."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from collections.abc import Sequence as SequenceOf

import pytest
import torch

from maple_spec.engine import ContextFull, Engine, EngineState, TokenStream
from maple_spec.engine.sequence import Sequence
from maple_spec.errors import (
    ApiError,
    CheckpointError,
    ContextLengthExceeded,
    EngineOverloaded,
    GenerationFailed,
    InvalidRequest,
    ModelLoadFailed,
    ModelLoading,
    ShuttingDown,
)
from maple_spec.types import FinishReason, SamplingParams, TokenEvent
from tests.engine.conftest import becomes_idle
from tests.toys import ToyModel, loaded, says

END = 258
GREEDY = SamplingParams(temperature=0)
Serve = Callable[..., Engine]


def run(main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main

    asyncio.run(bounded())


async def read(stream: TokenStream) -> list[int | None]:
    try:
        return [event.token_id async for event in stream]
    finally:
        stream.close()


class FailingToy(ToyModel):
    """Fails at its n-th forward call of a prompt that begins with token 66."""

    fail_at = 0
    error: Callable[[], Exception] = staticmethod(lambda: RuntimeError("out of luck"))

    def new_cache(self, prompt_ids: SequenceOf[int]) -> list[int]:
        self._fails = prompt_ids[0] == 66
        self._calls = 0
        return super().new_cache(prompt_ids)

    def forward(self, token_ids: SequenceOf[int], cache: list[int]) -> torch.Tensor:
        if self._fails and self._calls == self.fail_at:
            raise self.error()
        self._calls += 1
        return super().forward(token_ids, cache)


def test_the_events_are_the_models_tokens_and_the_last_one_says_why_it_ended(serve: Serve) -> None:
    engine = serve(says("ab"))

    async def main() -> None:
        stream = engine.submit("r", (65,), GREEDY)
        assert [event async for event in stream] == [
            TokenEvent(97),
            TokenEvent(98),
            TokenEvent(END, FinishReason.STOP),
        ]
        assert engine.active == 0, "the slot is free before the last word is said"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main())


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (1, [TokenEvent(97, FinishReason.LENGTH)]),
        (2, [TokenEvent(97), TokenEvent(98, FinishReason.LENGTH)]),
        (3, [TokenEvent(97), TokenEvent(98), TokenEvent(END, FinishReason.STOP)]),
    ],
)
def test_the_cap_ends_with_its_last_token(serve: Serve, cap: int, expected: list[TokenEvent]) -> None:
    engine = serve(says("ab"))

    async def main() -> None:
        stream = engine.submit("r", (65,), SamplingParams(temperature=0, max_new_tokens=cap))
        assert [event async for event in stream] == expected

    run(main())


@pytest.mark.parametrize("room", [0, 1, 2])
def test_the_contexts_end_is_a_cap_and_only_longer_prompts_are_refused(serve: Serve, room: int) -> None:
    model = says("abcdef")
    engine = serve(model)

    async def main() -> None:
        stream = engine.submit("r", (65,) * (model.context_length - room), GREEDY)
        events = [event async for event in stream]
        assert events[-1].finish_reason is FinishReason.LENGTH
        assert [event.token_id for event in events] == ([97, 98][:room] or [None])
        with pytest.raises(ContextLengthExceeded, match="1001 tokens; the model's context is 1000"):
            engine.submit("long", (65,) * 1001, GREEDY)
        with pytest.raises(InvalidRequest, match="no token"):
            engine.submit("empty", (), GREEDY)

    run(main())


def test_a_long_prompt_goes_through_the_model_in_chunks(serve: Serve) -> None:
    model = says("")
    engine = serve(model)
    run(read_all(engine, (65,) * 35))
    assert model.calls == [16, 16, 3]


async def read_all(engine: Engine, prompt_ids: tuple[int, ...]) -> None:
    await read(engine.submit("r", prompt_ids, GREEDY))


def test_only_the_worker_thread_calls_the_model(serve: Serve) -> None:
    model = says("abc")
    engine = serve(model)
    run(read_all(engine, (65,)))
    run(read_all(engine, (65,)))
    assert len(model.thread_ids) == 1
    assert threading.get_ident() not in model.thread_ids


def test_requests_run_one_at_a_time_in_order_of_arrival(serve: Serve) -> None:
    engine = serve(says("abc", seconds_per_token=0.002))

    async def main() -> None:
        ended: list[int] = []
        most_active = 0

        async def one(number: int) -> None:
            nonlocal most_active
            stream = engine.submit(f"r{number}", (65,), GREEDY)
            async for _ in stream:
                most_active = max(most_active, engine.active)
            ended.append(number)

        await asyncio.gather(*(one(number) for number in range(8)))
        assert ended == list(range(8))
        assert most_active <= 1

    run(main())


def test_the_queue_holds_so_many_and_no_more_and_a_place_that_is_left_can_be_taken(serve: Serve) -> None:
    gate = threading.Event()
    engine = serve(says("a", gate=gate), max_queue_depth=2)

    async def main() -> None:
        streams = [engine.submit(f"r{number}", (65,), GREEDY) for number in range(3)]
        assert (engine.active, engine.queue_depth) == (1, 2)
        with pytest.raises(EngineOverloaded):
            engine.submit("one too many", (65,), GREEDY)
        streams[1].close()
        assert engine.queue_depth == 1
        streams.append(engine.submit("r3", (65,), GREEDY))
        gate.set()
        assert [await read(streams[number]) for number in (0, 2, 3)] == [[97, END]] * 3

    run(main())


def test_without_a_queue_the_slot_alone_is_given(serve: Serve) -> None:
    engine = serve(says("a"), max_queue_depth=0)

    async def main() -> None:
        stream = engine.submit("first", (65,), GREEDY)
        with pytest.raises(EngineOverloaded):
            engine.submit("second", (65,), GREEDY)
        await read(stream)
        assert await read(engine.submit("third", (65,), GREEDY)) == [97, END]

    run(main())


def test_a_wait_that_takes_too_long_is_overload_and_disturbs_nobody(serve: Serve) -> None:
    gate = threading.Event()
    engine = serve(says("a", gate=gate), queue_timeout=0.1)

    async def main() -> None:
        first = engine.submit("first", (65,), GREEDY)
        second = engine.submit("second", (65,), GREEDY)
        await first.started()
        with pytest.raises(EngineOverloaded, match=r"no slot came free within 0\.1 seconds"):
            await second.started()
        assert engine.queue_depth == 0
        gate.set()
        assert await read(first) == [97, END]

    run(main())


def test_a_request_that_leaves_the_queue_disturbs_nobody(serve: Serve) -> None:
    gate = threading.Event()
    engine = serve(says("ab", gate=gate))

    async def main() -> None:
        running = engine.submit("running", (65,), GREEDY)
        leaving, staying = (engine.submit(name, (65,), GREEDY) for name in ("leaving", "staying"))
        waiting = asyncio.create_task(read(leaving))
        await asyncio.sleep(0.02)
        engine.abort("leaving")
        assert await waiting == [], "an aborted stream just ends"
        assert engine.queue_depth == 1
        gate.set()
        assert await read(running) == await read(staying) == [97, 98, END]

    run(main())


@pytest.mark.parametrize("moment", ["queued", "prefill", "decode"])
def test_an_abort_frees_the_place_at_once(serve: Serve, moment: str) -> None:
    """Prefill of 900 tokens would take 9 s here and the answer longer; the chunk of 16 tokens takes 0.16 s."""
    engine = serve(says("a" * 900, seconds_per_token=0.01))

    async def main() -> None:
        prompt = (65,) * (900 if moment == "prefill" else 1)
        stream = engine.submit("r", prompt, GREEDY)
        await stream.started()
        if moment == "queued":
            queued = engine.submit("queued", prompt, GREEDY)
            engine.abort("queued")
            assert engine.queue_depth == 0
            assert await read(queued) == []
        if moment == "decode":
            await anext(stream)
        engine.abort("r")
        engine.abort("r")
        engine.abort("never heard of")
        await becomes_idle(engine)
        assert [event async for event in stream if event.finish_reason] == []

    run(main())


def test_a_consumer_that_is_cancelled_frees_the_place(serve: Serve) -> None:
    engine = serve(says("a" * 900, seconds_per_token=0.005))

    async def main() -> None:
        for moment in (0.0, 0.01, 0.05):
            tasks = [asyncio.create_task(read(engine.submit(f"{number}", (65,), GREEDY))) for number in range(3)]
            await asyncio.sleep(moment)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await becomes_idle(engine)

    run(main())


@pytest.mark.parametrize("fail_at", [0, 1, 3])
def test_a_failing_generation_fails_alone_and_the_next_one_works(serve: Serve, fail_at: int) -> None:
    model = FailingToy(lambda prompt_ids: [97, 98, 99, 100])
    model.fail_at = fail_at
    engine = serve(model)

    async def main() -> None:
        for _ in range(10):
            with pytest.raises(GenerationFailed):
                await read(engine.submit("bad", (66,), GREEDY))
            assert (engine.active, engine.queue_depth) == (0, 0)
        assert await read(engine.submit("good", (65,), GREEDY)) == [97, 98, 99, 100, END]

    run(main())


def test_logits_that_are_no_numbers_fail_the_generation(serve: Serve) -> None:
    class Broken(ToyModel):
        def forward(self, token_ids: SequenceOf[int], cache: list[int]) -> torch.Tensor:
            return super().forward(token_ids, cache) * float("nan")

    engine = serve(Broken(lambda prompt_ids: [97]))

    async def main() -> None:
        with pytest.raises(GenerationFailed):
            await read(engine.submit("r", (65,), GREEDY))

    run(main())


def test_a_model_can_refuse_a_request_and_can_be_full(serve: Serve) -> None:
    model = FailingToy(lambda prompt_ids: [97, 98])
    model.fail_at = 1
    engine = serve(model)

    async def main() -> None:
        model.error = lambda: InvalidRequest("no entry fits", param="messages")
        with pytest.raises(InvalidRequest, match="no entry fits"):
            await read(engine.submit("refused", (66,), GREEDY))
        model.error = ContextFull
        events = [event async for event in engine.submit("full", (66,), GREEDY)]
        assert events == [TokenEvent(97), TokenEvent(None, FinishReason.LENGTH)]

    run(main())


def test_until_the_model_is_loaded_requests_are_told_so_and_the_port_could_answer() -> None:
    may_load = threading.Event()

    def load() -> object:
        may_load.wait(10)
        return loaded(says("a"))

    engine = Engine(load)  # type: ignore[arg-type]
    assert engine.state is EngineState.STOPPED
    began = time.perf_counter()
    engine.start()
    engine.start()
    assert time.perf_counter() - began < 0.2

    async def main() -> None:
        assert engine.state is EngineState.LOADING
        with pytest.raises(ModelLoading):
            engine.submit("r", (65,), GREEDY)
        may_load.set()
        assert await asyncio.to_thread(engine.wait_loaded, 10)
        assert engine.state is EngineState.READY
        assert engine.load_seconds is not None
        assert await read(engine.submit("r", (65,), GREEDY)) == [97, END]

    try:
        run(main())
    finally:
        engine.stop()


@pytest.mark.parametrize(
    ("error", "reason"),
    [(CheckpointError("model.safetensors: missing"), "model.safetensors: missing"), (KeyError("x"), "KeyError: 'x'")],
)
def test_a_failed_load_says_why(error: Exception, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    def load() -> object:
        raise error

    engine = Engine(load)  # type: ignore[arg-type]
    engine.start()
    assert engine.wait_loaded(10)
    assert engine.state is EngineState.ERROR
    assert engine.error == reason
    with pytest.raises(ModelLoadFailed) as raised:
        engine.require_ready()
    assert reason in str(raised.value)
    assert "loading the model failed" in caplog.text
    engine.stop()
    assert engine.state is EngineState.STOPPED


@pytest.mark.parametrize("grace", [5.0, 0.05])
def test_draining_lets_requests_finish_for_a_while_and_then_ends_them(serve: Serve, grace: float) -> None:
    engine = serve(says("ab" * 20, seconds_per_token=0.005))

    async def outcome(stream: TokenStream) -> list[int | None] | ApiError:
        try:
            return await read(stream)
        except ShuttingDown as error:
            return error

    async def main() -> None:
        tasks = [asyncio.create_task(outcome(engine.submit(f"{number}", (65,), GREEDY))) for number in range(2)]
        await asyncio.sleep(0.02)
        draining = asyncio.create_task(engine.drain(grace))
        await asyncio.sleep(0)
        assert engine.draining
        with pytest.raises(ShuttingDown):
            engine.submit("late", (65,), GREEDY)
        await draining
        outcomes = await asyncio.gather(*tasks)
        if grace > 1:
            assert all(isinstance(result, list) and len(result) == 41 for result in outcomes)
        else:
            assert all(isinstance(result, ShuttingDown) for result in outcomes)
        await becomes_idle(engine)

    run(main())


def test_stopping_ends_everything(serve: Serve) -> None:
    engine = serve(says("a" * 900, seconds_per_token=0.005))

    async def main() -> None:
        streams = [engine.submit(f"{number}", (65,), GREEDY) for number in range(2)]
        await streams[0].started()
        await asyncio.to_thread(engine.stop)
        for stream in streams:
            with pytest.raises(ShuttingDown):
                await read(stream)
        assert engine.state is EngineState.STOPPED
        with pytest.raises(ShuttingDown):
            engine.submit("late", (65,), GREEDY)

    run(main())


def test_several_event_loops_share_one_engine(serve: Serve) -> None:
    engine = serve(says("abc", seconds_per_token=0.001), max_queue_depth=100)
    results: list[list[int | None]] = []

    def client(name: int) -> None:
        async def main() -> None:
            for number in range(5):
                stream = engine.submit(f"{name}.{number}", (65,), GREEDY)
                results.append(await read(stream))

        run(main())

    threads = [threading.Thread(target=client, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [[97, 98, 99, END]] * 20


def test_a_consumer_whose_loop_has_died_does_not_hold_the_slot(serve: Serve) -> None:
    engine = serve(says("a" * 900, seconds_per_token=0.002))

    async def abandon() -> None:
        stream = engine.submit("abandoned", (65,), GREEDY)
        await anext(stream)

    run(abandon())
    run(becomes_idle(engine))


def test_a_request_id_in_flight_cannot_be_used_twice(serve: Serve) -> None:
    gate = threading.Event()
    engine = serve(says("a", gate=gate))

    async def main() -> None:
        stream = engine.submit("r", (65,), GREEDY)
        with pytest.raises(ValueError, match="'r' is in use"):
            engine.submit("r", (65,), GREEDY)
        gate.set()
        await read(stream)
        await read(engine.submit("r", (65,), GREEDY))

    run(main())


def test_a_seed_gives_the_same_tokens_alone_and_in_a_queue(serve: Serve) -> None:
    """Randomness belongs to the request that runs: neither later arrivals nor requests without a seed touch it."""

    class Flat(ToyModel):
        def forward(self, token_ids: SequenceOf[int], cache: list[int]) -> torch.Tensor:
            return torch.zeros_like(super().forward(token_ids, cache))

    engine = serve(Flat(lambda prompt_ids: []))
    params = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 30}

    async def main() -> None:
        async def one(name: str, seed: int | None) -> list[int | None]:
            return await read(engine.submit(name, (65,), SamplingParams(seed=seed, **params)))  # type: ignore[arg-type]

        alone = [await one("a", 42), await one("b", 7)]
        queued = await asyncio.gather(one("a", 42), one("b", 7), one("c", None), one("d", 42), one("e", None))
        assert queued[:2] == alone
        assert queued[3] == alone[0]
        assert queued[2] != queued[4]

    run(main())


def test_after_many_requests_of_every_kind_nothing_of_them_is_left(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "maple_spec.engine")  # pytest keeps what is logged, and with it the frames of errors
    before = sequences_alive()
    model = FailingToy(lambda prompt_ids: [97] * 20)
    model.fail_at = 2
    engine = serve(model, max_queue_depth=4)

    async def one(number: int) -> None:
        try:
            stream = engine.submit(f"{number}", (66 if number % 5 == 0 else 65,) * (number % 40 + 1), GREEDY)
        except EngineOverloaded:
            return
        try:
            async for event in stream:
                if number % 3 == 0 and event.token_id == 97:
                    break
        except GenerationFailed:
            pass
        finally:
            stream.close()

    async def main() -> None:
        for batch in range(15):
            await asyncio.gather(*(one(batch * 8 + number) for number in range(8)))
        await becomes_idle(engine)
        assert await read(engine.submit("last", (65,), GREEDY)) == [97] * 20 + [END]

    run(main())
    assert sequences_alive() - before <= 1, "the worker thread may still know the last one"


def sequences_alive() -> int:
    gc.collect()
    return sum(type(thing) is Sequence for thing in gc.get_objects())
