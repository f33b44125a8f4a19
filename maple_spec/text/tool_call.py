"""One <tool_call> block: recognised while its text arrives, read as a call when it is complete.

A block is `<tool_call>`, one JSON object with a name, `</tool_call>`, white space around the object allowed. A closing marker
inside a JSON string belongs to the string. Anything else is no block, and is known as such at the first character that does not
fit.
"""

from __future__ import annotations

import json

from maple_spec.text.json_object import JsonObject
from maple_spec.types import ToolCallDelta

TOOL_CALL = "<tool_call>"
END_TOOL_CALL = "</tool_call>"


class ToolCallBlock:
    """Follows the text behind a `<tool_call>` marker; `failed` or `complete` says when there is no more to follow."""

    __slots__ = ("_body", "_matched", "_object", "complete", "failed", "pieces")

    def __init__(self) -> None:
        self.failed = False
        self.complete = False
        self.pieces: list[str] = []  # the text followed so far
        self._object: JsonObject | None = None
        self._body: list[str] = []  # the object's text
        self._matched = 0  # characters of the closing marker

    def feed(self, text: str, position: int) -> int:
        """Read from text[position] on; return where reading stopped: at the end of text or block, or where it fails."""
        begin, size = position, len(text)
        while position < size and not (self.failed or self.complete):
            if self._object is None:
                if text[position] == "{":
                    self._object = JsonObject()
                elif text[position].isspace():
                    position += 1
                else:
                    self.failed = True
            elif not self._object.complete:
                position = self._feed_object(self._object, text, position)
            else:
                position = self._feed_end(text, position)
        self.pieces.append(text if begin == 0 and position == size else text[begin:position])
        return position

    def _feed_object(self, json_object: JsonObject, text: str, position: int) -> int:
        stopped = json_object.feed(text, position)
        self._body.append(text[position:stopped])
        self.failed = json_object.failed
        return stopped

    def _feed_end(self, text: str, position: int) -> int:
        character = text[position]
        if character == END_TOOL_CALL[self._matched]:
            self._matched += 1
            self.complete = self._matched == len(END_TOOL_CALL)
        elif self._matched or not character.isspace():
            self.failed = True
            return position
        return position + 1

    def call(self) -> ToolCallDelta | None:
        """The call that a complete block holds; None where its object is none.

        The name is a non-empty string. Arguments are passed on as the model wrote them: an object, or a string that holds the
        text of one. Models also write `parameters` for `arguments`, and leave them out, null or "" where there are none.
        """
        assert self.complete
        assert self._object is not None
        body = "".join(self._body)
        values = {
            _key(body[member.key_begin : member.key_end]): body[member.key_end : member.value_end].partition(":")[2].strip()
            for member in self._object.members
        }
        name = _string(values.pop("name", ""))
        arguments = _arguments(values)
        return ToolCallDelta(name, arguments) if name and arguments is not None else None


def _key(text: str) -> str:
    """A key's value from its JSON text; escapes are rare, so the plain ones are only unquoted."""
    return str(json.loads(text)) if "\\" in text else text[1:-1]


def _string(text: str) -> str | None:
    """The value of a JSON string; None for other values and for a string that holds half a surrogate pair, which is no text."""
    if not text.startswith('"'):
        return None
    value = str(json.loads(text))
    return None if any("\ud800" <= character <= "\udfff" for character in value) else value


def _arguments(values: dict[str, str]) -> str | None:
    """The arguments as JSON text of an object, from the JSON texts of a call's members; None where they are something else."""
    text = values.get("arguments", values.get("parameters"))
    if text is None:
        # Members of other names might be the arguments themselves: a call without them would do something else.
        return "{}" if values.keys() <= {"id", "type"} else None
    if text.startswith("{"):
        return text
    if text == "null":
        return "{}"
    inner = _string(text)
    if inner is None:
        return None
    inner = inner.strip()
    if not inner:
        return "{}"
    json_object = JsonObject()
    is_object = json_object.feed(inner) == len(inner) and json_object.complete
    return inner if is_object else None
