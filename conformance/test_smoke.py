"""The first case: the official SDK gets an answer, whole and in pieces, and an error that it understands."""

from __future__ import annotations

import openai
import pytest

MESSAGES = [{"role": "user", "content": "What is 17 * 23?"}]


def test_the_one_model_is_listed_and_can_be_retrieved(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model
    assert model.object == "model"


def test_an_answer_and_its_stream_say_the_same(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    asked = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": 200}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    choice = whole.choices[0]
    assert whole.model == model
    assert choice.finish_reason in ("stop", "length")
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == choice.message.content
    thought = "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas)
    assert thought == (choice.message.model_extra or {}).get("reasoning_content", "")
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == choice.finish_reason
    assert chunks[-1].choices == []
    again = chunks[-1].usage
    assert again is not None
    known = {"prompt_tokens_details"}  # of the same prompt a second time
    assert again.model_dump(exclude=known) == whole.usage.model_dump(exclude=known)
    for usage in (whole.usage, again):
        assert usage.prompt_tokens_details is not None
        assert 0 <= (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens


def test_a_raw_completion_is_answered(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="any", prompt="Once upon a time", max_tokens=8, temperature=0)
    assert answer.object == "text_completion"
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 8


def test_a_refusal_is_the_reference_s_own_sample(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model="any", messages=MESSAGES, n=2)
    assert refusal.value.body == {"message": "n must be 1", "type": "invalid_request_error", "param": "n", "code": None}
