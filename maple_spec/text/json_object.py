"""Recognises one JSON object in text that comes in pieces: strictly by RFC 8259, in linear time, however deep it is nested.

json.loads would need the whole text, recurse, and accept NaN; here each character is looked at once, and text that can no
longer become an object is known at once. What is kept of it are the places of the outermost members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, islice, pairwise
from typing import NamedTuple

# What has been read last, and so what may come next. Plain integers: the loop over them is the hot path of the parser.
(
    _BEGIN,
    _OBJECT,  # after "{": a key or "}"
    _NEXT_KEY,  # after "," in an object
    _KEY,  # after a key: ":"
    _COLON,  # after ":"
    _ARRAY,  # after "[": a value or "]"
    _NEXT_ITEM,  # after "," in an array
    _VALUE,  # after a value: "," or the end of what holds it
    _MINUS,
    _ZERO,
    _DIGITS,
    _POINT,
    _FRACTION,
    _EXPONENT,
    _SIGN,
    _POWER,
    _KEY_STRING,
    _STRING,
    _OTHERS,  # from here on: inside escapes and inside true, false and null
) = range(19)

# Steps that depend on more than the state; negative, to be told from states.
_COMMA = -1
_OPEN_OBJECT = -2
_OPEN_ARRAY = -3
_CLOSE_OBJECT = -4
_CLOSE_ARRAY = -5
_SPOIL = -6  # no JSON object goes on like this

_WHITE = " \t\r\n"
_DECIMAL = "0123456789"


def _rules() -> Iterator[tuple[tuple[int, ...], str, int]]:
    """The grammar: in any of these states, any of these characters leads there."""
    value_comes = (_COLON, _ARRAY, _NEXT_ITEM)
    number_may_end = (_ZERO, _DIGITS, _FRACTION, _POWER)
    for state in (_OBJECT, _NEXT_KEY, _KEY, _COLON, _ARRAY, _NEXT_ITEM, _VALUE):
        yield (state,), _WHITE, state
    yield (_BEGIN, *value_comes), "{", _OPEN_OBJECT
    yield value_comes, "[", _OPEN_ARRAY
    yield (_OBJECT, _NEXT_KEY), '"', _KEY_STRING
    yield (_KEY,), ":", _COLON
    yield (_VALUE, *number_may_end), ",", _COMMA
    yield (_OBJECT, _VALUE, *number_may_end), "}", _CLOSE_OBJECT
    yield (_ARRAY, _VALUE, *number_may_end), "]", _CLOSE_ARRAY

    yield value_comes, "-", _MINUS
    yield (_MINUS, *value_comes), "0", _ZERO
    yield (_MINUS, *value_comes), "123456789", _DIGITS
    yield (_DIGITS,), _DECIMAL, _DIGITS
    yield (_ZERO, _DIGITS), ".", _POINT
    yield (_POINT, _FRACTION), _DECIMAL, _FRACTION
    yield (_ZERO, _DIGITS, _FRACTION), "eE", _EXPONENT
    yield (_EXPONENT,), "+-", _SIGN
    yield (_EXPONENT, _SIGN, _POWER), _DECIMAL, _POWER
    yield number_may_end, _WHITE, _VALUE

    yield value_comes, '"', _STRING
    fresh = count(_OTHERS)
    for string, end in ((_KEY_STRING, _KEY), (_STRING, _VALUE)):
        escape, *hexadecimal = islice(fresh, 5)
        yield (string,), '"', end
        yield (string,), "\\", escape
        yield (escape,), '"\\/bfnrt', string
        yield (escape,), "u", hexadecimal[0]
        for state, following in pairwise((*hexadecimal, string)):
            yield (state,), "0123456789abcdefABCDEF", following

    for word in ("true", "false", "null"):
        steps = list(islice(fresh, len(word) - 1))
        yield value_comes, word[0], steps[0]
        for character, (state, following) in zip(word[1:], pairwise((*steps, _VALUE)), strict=True):
            yield (state,), character, following


def _table() -> list[dict[str, int]]:
    rules = list(_rules())
    table: list[dict[str, int]] = [{} for _ in range(1 + max(max(states) for states, _, _ in rules))]
    for states, characters, result in rules:
        for state in states:
            table[state].update(dict.fromkeys(characters, result))
    return table


_TABLE = _table()
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_STRINGS = (_STRING, _KEY_STRING)
_BEFORE_KEY = (_OBJECT, _NEXT_KEY)
_IN_OBJECT, _IN_ARRAY = b"{["


class Member(NamedTuple):
    """Where one of the outermost members stands, in characters from the object's opening brace.

    The key's quotes lie at key_begin and key_end - 1; the colon and the value, white space around both, between key_end and
    value_end.
    """

    key_begin: int
    key_end: int
    value_end: int


class JsonObject:
    """Follows the text of one JSON object from its opening brace to its closing one."""

    __slots__ = ("_key_begins", "_key_ends", "_offset", "_open", "_state", "_value_ends", "complete", "failed")

    def __init__(self) -> None:
        self.complete = False
        self.failed = False
        self._state = _BEGIN
        self._offset = 0  # characters of earlier pieces
        self._open = bytearray()  # the brackets that are open
        # Of the outermost members; plain numbers, since a hostile object may have a member every five characters.
        self._key_begins: list[int] = []
        self._key_ends: list[int] = []
        self._value_ends: list[int] = []

    @property
    def members(self) -> list[Member]:
        """The outermost members whose values have ended, in order."""
        return list(map(Member, self._key_begins, self._key_ends, self._value_ends))

    def feed(self, text: str, position: int = 0) -> int:
        """Read from text[position] on; return where reading stopped: at the end, behind the object, or at what spoils it."""
        size = len(text)
        offset = self._offset - position
        table, state, depth = _TABLE, self._state, self._open
        while position < size and not (self.complete or self.failed):
            if state in _STRINGS:
                run = _STRING_RUN.match(text, position)
                position = run.end() if run else position
                if position == size:
                    break
            following = table[state].get(text[position], _SPOIL)
            if following == _COMMA and len(depth) > 1:
                following = _NEXT_KEY if depth[-1] == _IN_OBJECT else _NEXT_ITEM
            elif following < 0:
                following = self._act(following, offset + position)
            elif following == _KEY_STRING:
                if len(depth) == 1 and state in _BEFORE_KEY:
                    self._key_begins.append(offset + position)
            elif following == _KEY and state == _KEY_STRING and len(depth) == 1:
                self._key_ends.append(offset + position + 1)
            state = following
            position += 1
        if self.failed:
            position -= 1
        self._state = state
        self._offset = offset + position
        return position

    def _act(self, act: int, place: int) -> int:
        """Carry out an act on the character at that place; return the state that follows."""
        if act == _OPEN_ARRAY:
            self._open.append(_IN_ARRAY)
            return _ARRAY
        if act == _OPEN_OBJECT:
            self._open.append(_IN_OBJECT)
            return _OBJECT
        if act == _SPOIL:
            self.failed = True
            return _VALUE
        if len(self._open) == 1 and self._key_begins:
            self._value_ends.append(place)
        if act == _COMMA:
            return _NEXT_KEY
        self.failed = self._open.pop() != (_IN_OBJECT if act == _CLOSE_OBJECT else _IN_ARRAY)
        self.complete = not (self._open or self.failed)
        return _VALUE
