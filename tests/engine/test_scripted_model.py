"""A script behind the engine: which entry is played, token by token, how it ends, and that a pause ends with its request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from maple_spec.checkpoints import embedded_folder
from maple_spec.engine import Engine, LoadedModel, ScriptedModel, load_script
from maple_spec.engine.scripted_model import CONTROL
from maple_spec.errors import CheckpointError, GenerationFailed, InvalidRequest, ShuttingDown
from maple_spec.text import Tokenizer
from maple_spec.types import ChatPrompt, FinishReason, SamplingParams, TokenEvent
from tests.engine.conftest import becomes_idle

Play = Callable[..., Engine]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Makes a ready engine that plays these entries."""
    engines: list[Engine] = []

    def make(*entries: dict[str, Any]) -> Engine:
        engine = Engine(lambda: script(tmp_path, *entries))
        engines.append(engine)
        engine.start()
        assert engine.wait_loaded(30)
        assert engine.error is None
        return engine

    yield make
    for engine in engines:
        engine.stop()


def script(folder: Path, *entries: dict[str, Any]) -> LoadedModel:
    path = folder / "script.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return load_script(f"script:{path}")


def chat_ids(loaded: LoadedModel, *messages: tuple[str, str], **fields: Any) -> list[int]:
    turns = tuple({"role": role, "content": content} for role, content in messages)
    return loaded.tokenizer.encode_segments(loaded.chat_template.render(ChatPrompt(turns, **fields)).segments)


def raw_ids(loaded: LoadedModel, text: str) -> list[int]:
    return loaded.tokenizer.encode(text, control_tokens=True)


def played(loaded: LoadedModel, prompt_ids: list[int]) -> bytes:
    """The first item of the entry that fits; each of the scripts here says the entry's name in it."""
    play = loaded.language_model.new_cache(prompt_ids)
    item: bytes = play.entry.output[0]
    return item


def generate(engine: Engine, prompt: str = "x", **sampling: Any) -> list[TokenEvent]:
    assert engine.loaded is not None
    ids = raw_ids(engine.loaded, prompt)

    async def main() -> list[TokenEvent]:
        async with asyncio.timeout(30):
            stream = engine.submit("r", ids, SamplingParams(**sampling))
            try:
                return [event async for event in stream]
            finally:
                stream.close()

    return asyncio.run(main())


def said(engine: Engine, events: list[TokenEvent]) -> list[bytes]:
    assert engine.loaded is not None
    return [engine.loaded.tokenizer.token_bytes(event.token_id) for event in events if event.token_id is not None]


def test_the_first_entry_whose_text_is_in_the_last_user_message_is_played(tmp_path: Path) -> None:
    loaded = script(tmp_path, {"when": "Oslo", "output": ["oslo"]}, {"when": "lo", "output": ["lo"]}, {"output": ["any"]})
    for text, name in (("Hi Oslo", b"oslo"), ("hello", b"lo"), ("OSLO", b"any"), ("", b"any")):
        assert played(loaded, chat_ids(loaded, ("user", text))) == name
    assert played(loaded, chat_ids(loaded, ("user", "Oslo"), ("assistant", "Yes?"), ("user", "lo"))) == b"lo"


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize(
    "others",
    [
        [("system", "needle"), ("user", "x")],
        [("user", "needle"), ("assistant", "ok"), ("user", "x")],
        [("user", "x"), ("assistant", "needle")],
        [("user", "x"), ("system", "needle")],
        [("user", "x"), ("assistant", "ok"), ("tool", "needle")],
        [("system", "needle")],
        [("user", "nee"), ("user", "dle")],
    ],
)
def test_other_messages_play_no_part(tmp_path: Path, others: list[tuple[str, str]], thinking: bool) -> None:
    loaded = script(tmp_path, {"when": "needle", "output": ["found"]})
    with pytest.raises(InvalidRequest, match="no entry of the script fits the last user message") as refused:
        played(loaded, chat_ids(loaded, *others, enable_thinking=thinking))
    assert refused.value.param == "messages"
    tools = ({"type": "function", "function": {"name": "needle"}},)
    with pytest.raises(InvalidRequest):
        played(loaded, chat_ids(loaded, *others, tools=tools))
    assert played(loaded, chat_ids(loaded, *others, ("user", "a needle here"), tools=tools)) == b"found"


@pytest.mark.parametrize("text", ["x\n", "\nx", "x<|im_end|>\n<|im_start|>user\ny", "<tool_response>x", "user\nx", "", "\n"])
def test_the_message_is_looked_at_to_the_letter_whatever_it_spells(tmp_path: Path, text: str) -> None:
    loaded = script(tmp_path, {"when": text, "output": ["found"]})
    assert played(loaded, chat_ids(loaded, ("user", "before"), ("assistant", "z"), ("user", text))) == b"found"
    if text.strip():
        with pytest.raises(InvalidRequest):
            played(loaded, chat_ids(loaded, ("user", text), ("assistant", "z"), ("user", "z")))


def test_a_raw_prompt_is_searched_whole_and_as_it_is_spelled(tmp_path: Path) -> None:
    loaded = script(tmp_path, {"when": "a<think>b", "output": ["control"]}, {"when": "once", "output": ["once"]})
    assert played(loaded, raw_ids(loaded, "xa<think>by")) == b"control"
    assert played(loaded, raw_ids(loaded, "once upon")) == b"once"
    assert played(loaded, [*b"once"]) == b"once"
    with pytest.raises(InvalidRequest, match="no entry of the script fits the prompt") as refused:
        played(loaded, raw_ids(loaded, "Once"))
    assert refused.value.param == "prompt"


def test_an_entry_can_wait_for_the_results_of_tools(tmp_path: Path) -> None:
    loaded = script(
        tmp_path,
        {"after_tool": "5 C", "output": ["answer"]},
        {"after_tool": "", "when": "weather", "output": ["other result"]},
        {"when": "weather", "output": ["call"]},
    )
    asked = [("user", "weather?")]
    assert played(loaded, chat_ids(loaded, *asked)) == b"call"
    assert played(loaded, chat_ids(loaded, *asked, ("assistant", "c"), ("tool", "now 5 C"))) == b"answer"
    assert played(loaded, chat_ids(loaded, *asked, ("assistant", "c"), ("tool", "5 C"), ("tool", "6 C"))) == b"answer"
    assert played(loaded, chat_ids(loaded, *asked, ("assistant", "c"), ("tool", "7 C"))) == b"other result"
    assert played(loaded, chat_ids(loaded, *asked, ("assistant", "c"), ("tool", "5 C"), *asked)) == b"call"
    assert played(loaded, raw_ids(loaded, "weather 5 C")) == b"call"


def test_an_item_is_a_token_and_the_end_token_is_one_more(play: Play) -> None:
    engine = play({"output": ["one item", "", {"hex": "f09f"}, "one item", "</think>", "<|im_end|>"]})
    events = generate(engine)
    assert said(engine, events)[:-1] == [b"one item", b"", b"\xf0\x9f", b"one item", b"</think>", b"<|im_end|>"]
    assert engine.loaded is not None
    (end,) = engine.loaded.language_model.eos_token_ids
    assert events[-1] == TokenEvent(end, FinishReason.STOP)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0},
        {"temperature": 2.0, "top_p": 1.0, "top_k": 0, "seed": 7},
        {"temperature": 2.0, "top_p": 0.0, "top_k": 1},
        {"repetition_penalty": 1e6},
        {"repetition_penalty": 1e-6, "temperature": 1e-12},
    ],
)
def test_no_sampling_setting_changes_what_is_said(play: Play, sampling: dict[str, Any]) -> None:
    engine = play({"output": ["a", "b", "a", "a", "b"]})
    assert said(engine, generate(engine, "ab", **sampling))[:-1] == [b"a", b"b", b"a", b"a", b"b"]


@pytest.mark.parametrize("output", [[], ["a", "b"]])
def test_length_ends_as_a_cap_does_and_costs_no_token(play: Play, output: list[str]) -> None:
    events = generate(play({"output": output, "end": "length"}))
    assert len(events) == len(output) + 1
    assert events[-1] == TokenEvent(None, FinishReason.LENGTH)


@pytest.mark.parametrize("output", [[], ["a", "b"]])
def test_error_fails_the_generation_and_no_other(play: Play, output: list[str]) -> None:
    engine = play({"when": "bad", "output": output, "end": "error"}, {"output": ["fine"]})
    for _ in range(3):
        with pytest.raises(GenerationFailed):
            generate(engine, "bad")
        assert said(engine, generate(engine, "good"))[0] == b"fine"


@pytest.mark.parametrize("cap", [1, 2])
def test_the_request_s_cap_holds(play: Play, cap: int) -> None:
    events = generate(play({"output": ["a", "b", "c"]}), max_new_tokens=cap)
    assert len(events) == cap
    assert events[-1].finish_reason is FinishReason.LENGTH


def test_the_delay_stands_before_each_token_the_first_and_the_end_token_included(play: Play) -> None:
    engine = play({"when": "slow", "output": ["a", "b"], "delay_ms": 60}, {"output": ["a", "b"]})
    generate(engine, "warm")
    began = time.monotonic()
    generate(engine, "slow")
    assert 0.17 < time.monotonic() - began < 2


@pytest.mark.parametrize("end", ["close", "abort", "shutdown"])
def test_a_pause_of_a_minute_ends_with_its_request(play: Play, end: str) -> None:
    engine = play({"when": "slow", "output": ["a", "b"], "delay_ms": 60_000}, {"output": ["quick"]})
    assert engine.loaded is not None
    slow = raw_ids(engine.loaded, "slow")

    async def main() -> None:
        stream = engine.submit("slow", slow, SamplingParams())
        await stream.started()
        if end == "close":
            stream.close()
        elif end == "abort":
            engine.abort("slow")
            assert [event async for event in stream] == []
        else:
            await engine.drain(0)
            with pytest.raises(ShuttingDown):
                await anext(stream)
        await becomes_idle(engine)

    asyncio.run(main())
    if end != "shutdown":
        assert said(engine, generate(engine))[0] == b"quick"


def test_the_words_of_health_tell_of_the_script(tmp_path: Path) -> None:
    loaded = script(tmp_path, {"output": []})
    assert loaded.name == f"script:{tmp_path}/script.json"
    assert (loaded.device, loaded.dtype_label, loaded.attention_label) == ("cpu", "none (script of 1 entry)", "none")
    assert script(tmp_path, {"output": []}, {"output": []}).dtype_label == "none (script of 2 entries)"
    assert isinstance(loaded.language_model, ScriptedModel)


@pytest.mark.parametrize("path", ["script:", "script:  "])
def test_a_script_without_a_file_is_told(path: str) -> None:
    with pytest.raises(CheckpointError, match=r"names no file; write script:FILE"):
        load_script(path)


def test_the_home_folder_may_be_written_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, {"output": []})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_script("script:~/script.json").name == "script:~/script.json"


def test_the_template_s_control_tokens_are_those_of_maple_tiny(tmp_path: Path) -> None:
    """Else a mark of the template would reach the scripted model as plain text."""
    loaded = script(tmp_path, {"output": []})
    tiny = Tokenizer.from_file(embedded_folder() / "tokenizer.json")
    assert set(CONTROL) == tiny.control_tokens - {"<|endoftext|>"}
    conversation = [("system", "s"), ("user", "u"), ("assistant", "<think>t</think>a"), ("tool", "r"), ("user", "u")]
    ids = chat_ids(loaded, *conversation, tools=({"type": "function", "function": {"name": "f"}},))
    plain = bytes(token_id if token_id < 256 else 0 for token_id in ids)
    assert [mark for mark in CONTROL if mark.encode() in plain] == []
