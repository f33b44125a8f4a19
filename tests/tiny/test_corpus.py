"""Training sees what serving renders: the corpus and the chat template agree to the byte."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.text import ChatTemplate
from maple_spec.tiny import corpus, talk, tools
from maple_spec.tiny.export import TEMPLATE
from maple_spec.tiny.tokenizer import CONTROL
from maple_spec.tiny.values import spoken
from maple_spec.tiny.words import Draw, is_held_out
from maple_spec.types import ChatPrompt

WRITERS = [
    corpus.arithmetic_talk, corpus.chat, corpus.memory, corpus.copying, corpus.tool_call, corpus.no_call, corpus.tool_answer,
]  # fmt: skip
SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.sampled_from(WRITERS), st.booleans())
def test_a_conversation_reads_as_the_chat_template_renders_it(seed: int, writer, held_out: bool) -> None:
    conversation = writer(Draw(seed, held_out))
    messages = tuple(m.wire() for m in conversation.messages)
    last = max(i for i, m in enumerate(conversation.messages) if m.role == "assistant")
    prompt = ChatPrompt(messages[:last], tuple(t.schema for t in conversation.tools), enable_thinking=conversation.thinking)
    rendered = ChatTemplate(TEMPLATE.read_text(encoding="utf-8"), CONTROL).render(prompt)
    whole = "".join(piece for piece, _ in conversation.pieces())
    assert whole.startswith("".join(segment.text for segment in rendered.segments))


@given(SEEDS, st.sampled_from(WRITERS))
def test_what_is_learnt_begins_behind_a_generation_prompt_and_ends_with_the_end_token(seed: int, writer) -> None:
    pieces = writer(Draw(seed)).pieces()
    assert any(learnt for _, learnt in pieces)
    for (before, _), (piece, learnt) in itertools.pairwise(pieces):
        if learnt:
            assert before.endswith(("<think>\n", "</think>\n\n"))
            assert piece.endswith("<|im_end|>")


@given(SEEDS, st.booleans())
def test_names_and_invented_values_stay_on_their_side_of_the_held_out_rule(seed: int, held_out: bool) -> None:
    draw = Draw(seed, held_out)
    for text in (draw.noun(), draw.verb(), draw.adjective(), draw.name(), draw.code(), draw.syllables(1, 4)):
        assert is_held_out(text) == held_out


@given(SEEDS)
def test_a_question_for_a_tool_says_every_value_of_the_call(seed: int) -> None:
    draw = Draw(seed)
    tool = tools.make_tool(draw)
    call = tools.Call(tool, tools.arguments(draw, tool))
    asked = tools.question(draw, call)
    for value in call.arguments.values():
        assert spoken(value).rstrip(".?") in asked


@given(SEEDS)
def test_the_reasoning_of_a_call_copies_its_name_and_each_value_as_json(seed: int) -> None:
    draw = Draw(seed)
    tool = tools.make_tool(draw)
    call = tools.Call(tool, tools.arguments(draw, tool))
    lines = call.reasoning().split("\n")
    assert lines[0].startswith(f"Tool: {tool.name}(")
    for parameter, line in zip(tool.parameters, lines[1:], strict=True):
        assert line == f"{parameter.name} ({parameter.type}): " + (
            json.dumps(call.arguments[parameter.name], ensure_ascii=False) if parameter.name in call.arguments else "none"
        )


@pytest.mark.parametrize("kind", list(talk.KINDS))
def test_the_same_seed_writes_the_same_text(kind) -> None:
    assert kind(Draw(5)) == kind(Draw(5))
