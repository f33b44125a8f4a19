"""What the answers of a case must have in common, or be: functions that cases name. Each takes all answers, in order."""

from __future__ import annotations

from openai.types.chat import ChatCompletionChunk

from conformance.reports.target import Answer


def something_is_said(answers: list[Answer]) -> None:
    for answer in answers:
        assert any(answer.said)
        if not answer.streamed:
            assert answer.usage["completion_tokens"] > 0


def the_last_event_alone_has_the_usage(answers: list[Answer]) -> None:
    (answer,) = answers
    *others, last = answer.events
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > 0
    assert all(event["choices"] for event in others)
    assert all(event.get("usage") is None for event in others)


def the_usage_is_the_same(answers: list[Answer]) -> None:
    first = answers[0].usage
    assert first["total_tokens"] == first["prompt_tokens"] + first["completion_tokens"]
    assert all(answer.usage == first for answer in answers)


def all_eight_tokens_are_reasoning(answers: list[Answer]) -> None:
    for answer in answers:
        assert answer.usage["completion_tokens"] == answer.usage["completion_tokens_details"]["reasoning_tokens"] == 8


def one_empty_delta_has_the_finish_reason(answers: list[Answer]) -> None:
    (answer,) = answers
    choices = [choice for event in answer.events for choice in event["choices"]]
    assert all("finish_reason" in choice for choice in choices)
    assert [choice["delta"] for choice in choices if choice["finish_reason"] is not None] == [{}]


def the_sdk_takes_every_chunk(answers: list[Answer]) -> None:
    for answer in answers:
        assert [ChatCompletionChunk.model_validate(event, strict=True) for event in answer.events]


def the_role_is_in_the_first_delta_alone(answers: list[Answer]) -> None:
    for answer in answers:
        assert [delta.get("role", "none") for delta in answer.deltas] == ["assistant"] + ["none"] * (len(answer.deltas) - 1)


def the_thought_was_cut(answers: list[Answer]) -> None:
    for answer in answers:
        assert answer.text("reasoning_content")
        assert answer.text("content") == ""
        assert answer.finish_reason == "length"


def the_message_is_complete(answers: list[Answer]) -> None:
    (choice,) = answers[0].json["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"] == ""
    assert choice["logprobs"] is None


def three_tokens_are_the_most(answers: list[Answer]) -> None:
    (answer,) = answers
    assert 0 < answer.usage["completion_tokens"] <= 3
    assert answer.finish_reason == "length"


def the_server_s_cap_held(answers: list[Answer]) -> None:
    (answer,) = answers
    assert (answer.usage["completion_tokens"], answer.finish_reason) == (300, "length")  # as servers.json sets it


def the_chats_say_the_same(answers: list[Answer]) -> None:
    assert len({answer.said for answer in answers if answer.request.path.endswith("/chat/completions")}) == 1


def not_all_say_the_same(answers: list[Answer]) -> None:
    assert len({answer.said for answer in answers}) > 1


def the_prompts_are_as_long(answers: list[Answer]) -> None:
    assert len(prompt_lengths(answers)) > 1
    assert len(set(prompt_lengths(answers))) == 1


def all_prompts_but_the_first_are_as_long(answers: list[Answer]) -> None:
    the_prompts_are_as_long(answers[1:])


def the_first_prompt_is_the_shortest(answers: list[Answer]) -> None:
    first, *others = prompt_lengths(answers)
    assert first < min(others)


def prompt_lengths(answers: list[Answer]) -> list[int]:
    return [answer.usage["prompt_tokens"] for answer in answers]


def the_parts_were_read(answers: list[Answer]) -> None:
    assert all(answer.text("content") == "K7" for answer in answers), "the script says this where both parts are there"


def every_character_was_read_as_text(answers: list[Answer]) -> None:
    """The scripted server's tokens are bytes, so a control token would make a prompt shorter."""
    spelled, plain = (answer.request.body["messages"][0]["content"] for answer in answers)
    lengths = prompt_lengths(answers)
    assert lengths[0] - lengths[1] == len(spelled) - len(plain)


def the_first_allows_the_key_to_be_sent(answers: list[Answer]) -> None:
    allowed = answers[0].headers
    assert allowed["access-control-allow-origin"] == "http://localhost:3000"
    assert "authorization" in allowed["access-control-allow-headers"].lower()
    assert "access-control-allow-origin" not in answers[1].headers
