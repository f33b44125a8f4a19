"""The rules of a stream that no schema of one event can hold: what comes first, what stays the same, what comes last.

A rule is a function that yields a sentence for every breach of it; RULES holds them all. They know the request's body and the
bytes of the answer, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
SAME = ("id", "object", "created", "model", "system_fingerprint")


@dataclass(frozen=True, slots=True)
class Stream:
    """A request's body and the events that answered it: `data` holds the text of each event, `values` what it spells.

    chat: whether it is a chat that was streamed, and not a raw completion.
    """

    request: Mapping[str, Any]
    chat: bool
    data: list[str]
    values: list[dict[str, Any]]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [value for value in self.values if "error" not in value]

    @property
    def choices(self) -> list[dict[str, Any]]:
        """All choices of all chunks; a stream has one choice, so they are its pieces in order."""
        return [choice for chunk in self.chunks for choice in chunk["choices"]]

    @property
    def failed(self) -> bool:
        return any("error" in value for value in self.values)

    def asked(self, *path: str) -> Any:
        """What the request says at this path; None where it says nothing."""
        found: Any = self.request
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


Rule = Callable[[Stream], Iterator[str]]


def breaches(request: Mapping[str, Any], body: bytes, *, chat: bool) -> list[str]:
    """Every breach of a rule in a stream that answers this request."""
    if not body.endswith(b"\n\n"):
        return ["the last event is cut off"]
    data = []
    for event in body.decode().removesuffix("\n\n").split("\n\n"):
        if not event.startswith(":"):  # a comment
            if not event.startswith("data: ") or "\n" in event:
                return [f"an event is not one line of data, but {event!r}"]
            data.append(event.removeprefix("data: "))
    try:
        stream = Stream(request, chat, data, [json.loads(text) for text in data if text != DONE])
        return [breach for rule in RULES for breach in rule(stream)]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return [f"an event is not what its schema says: {error!r}"]


def ends_with_the_one_done(stream: Stream) -> Iterator[str]:
    if stream.data[-1:] != [DONE]:
        yield f"the last event is not {DONE}"
    if stream.data.count(DONE) > 1:
        yield f"{DONE} comes {stream.data.count(DONE)} times"


def an_error_is_the_last_event_but_done(stream: Stream) -> Iterator[str]:
    if any("error" in value for value in stream.values[:-1]):
        yield f"after an error comes something else than {DONE}"


def every_chunk_names_the_same_answer(stream: Stream) -> Iterator[str]:
    for name in SAME:
        if len({json.dumps(chunk.get(name)) for chunk in stream.chunks}) > 1:
            yield f"{name} changes within the stream"
    model = stream.asked("model")
    if model and any(chunk["model"] != model for chunk in stream.chunks):
        yield "the model that was asked for is not echoed"


def the_role_comes_first_and_once(stream: Stream) -> Iterator[str]:
    if not stream.chat:
        return
    deltas = [choice["delta"] for choice in stream.choices]
    if deltas[:1] != [{"role": "assistant", "content": ""}]:
        yield f"the first delta is not the role with an empty content, but {deltas[:1]}"
    if any("role" in delta for delta in deltas[1:]):
        yield "the role comes a second time"


def one_finish_reason_ends_the_choice(stream: Stream) -> Iterator[str]:
    reasons = [choice["finish_reason"] for choice in stream.choices]
    given = [reason for reason in reasons if reason is not None]
    if len(given) > 1:
        yield f"the choice ends {len(given)} times"
    if not stream.failed and not given:
        yield "no finish_reason was given"
    if given and reasons[-1] is None:
        yield "the choice goes on after its finish_reason"


def no_piece_is_empty(stream: Stream) -> Iterator[str]:
    for choice in stream.choices[1 if stream.chat else 0 :]:
        piece = choice["delta"] if stream.chat else {"text": choice["text"]}
        if choice["finish_reason"] is not None:
            if any(piece.values()):
                yield f"the finish_reason comes with {piece}"
        elif len(piece) != 1 or not all(piece.values()):
            yield f"a piece is not one text or one call, but {piece}"


def reasoning_comes_before_the_answer(stream: Stream) -> Iterator[str]:
    kinds = [kind for choice in stream.choices[1:] for kind in choice.get("delta", ())]
    if "reasoning_content" in kinds:
        if stream.asked("include_reasoning") is False:
            yield "reasoning comes although it was not wanted"
        if kinds != sorted(kinds, key=lambda kind: kind != "reasoning_content"):
            yield "reasoning comes after the answer has begun"


def calls_are_counted_and_told(stream: Stream) -> Iterator[str]:
    if not stream.chat:
        return
    calls = [call for choice in stream.choices for call in choice["delta"].get("tool_calls", ())]
    if [call["index"] for call in calls] != list(range(len(calls))):
        yield f"the calls are numbered {[call['index'] for call in calls]}"
    if len({call["id"] for call in calls}) != len(calls):
        yield "two calls have the same id"
    if calls and stream.asked("tool_choice") == "none":
        yield "a call comes although tool_choice is none"
    reasons = {choice["finish_reason"] for choice in stream.choices}
    if ("tool_calls" in reasons and not calls) or ("stop" in reasons and calls):
        yield f"with {len(calls)} calls the finish_reason is {reasons - {None}}"


def usage_comes_last_and_only_where_asked(stream: Stream) -> Iterator[str]:
    if not stream.asked("stream_options", "include_usage"):
        if any("usage" in chunk for chunk in stream.chunks):
            yield "usage comes unasked"
        if any(not chunk["choices"] for chunk in stream.chunks):
            yield "a chunk without usage has no choice"
        return
    if any("usage" not in chunk for chunk in stream.chunks):
        yield "a chunk lacks usage, which is null in all but the last"
    counted = [index for index, value in enumerate(stream.values) if value.get("usage") is not None]
    if counted != ([] if stream.failed else [len(stream.values) - 1]):
        yield f"usage comes in {counted} of {len(stream.values)} events, not in the last alone"
    if [index for index, value in enumerate(stream.values) if value.get("choices") == []] != counted:
        yield "the chunk of the usage, and no other, has no choice"
    for index in counted:
        yield from faults_of_usage(stream.values[index]["usage"], stream.request, chat=stream.chat)


def faults_of_usage(usage: Mapping[str, Any], request: Mapping[str, Any], *, chat: bool) -> Iterator[str]:
    """What is wrong with the token counts of an answer, streamed or not."""
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"]:
        yield f"the counts do not add up: {usage}"
    if usage["completion_tokens_details"]["reasoning_tokens"] > usage["completion_tokens"]:
        yield f"there is more reasoning than output: {usage}"
    cap = (request.get("max_completion_tokens") if chat else None) or request.get("max_tokens")
    if cap is not None and usage["completion_tokens"] > cap:
        yield f"{usage['completion_tokens']} tokens are more than the {cap} asked for"


RULES: tuple[Rule, ...] = (
    ends_with_the_one_done,
    an_error_is_the_last_event_but_done,
    every_chunk_names_the_same_answer,
    the_role_comes_first_and_once,
    one_finish_reason_ends_the_choice,
    no_piece_is_empty,
    reasoning_comes_before_the_answer,
    calls_are_counted_and_told,
    usage_comes_last_and_only_where_asked,
)
