"""Recognises one JSON object in text that comes in pieces: strictly by RFC 8259, in linear time, however deep it is nested.

json.loads would need the whole text, recurse, and accept NaN; here each character is looked at once, and text that can no
longer become an object is known at once. What is kept of it are the places of the outermost members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    _STRING,
    _ESCAPE,
    *_HEX,  # one, two, three, four digits of \u are missing yet, from the last on
    _MINUS,
    _ZERO,
    _DIGITS,
    _POINT,
    _FRACTION,
    _EXPONENT,
    _SIGN,
    _POWER,
    _FIRST_OF_WORDS,
) = range(23)

# Steps that depend on more than the state; negative, to be told from states.
_COMMA = -1
_STRING_BEGIN = -2
_STRING_END = -3
_KEY_BEGIN = -4
_OPEN_OBJECT = -5
_OPEN_ARRAY = -6
_CLOSE_OBJECT = -7
_CLOSE_ARRAY = -8
_SPOIL = -9  # no JSON object goes on like this

_WHITE = " \t\r\n"
_DECIMAL = "0123456789"


def _rules() -> Iterator[tuple[tuple[int, ...], str, int]]:
    """The grammar: in any of these states, any of these characters leads there."""
    for state in (_OBJECT, _NEXT_KEY, _KEY, _COLON, _ARRAY, _NEXT_ITEM, _VALUE):
        yield (state,), _WHITE, state
    value_comes = (_COLON, _ARRAY, _NEXT_ITEM)
    number_may_end = (_ZERO, _DIGITS, _FRACTION, _POWER)
    yield (_BEGIN, *value_comes), "{", _OPEN_OBJECT
    yield value_comes, "[", _OPEN_ARRAY
    yield (_OBJECT, _NEXT_KEY), '"', _KEY_BEGIN
    yield (_KEY,), ":", _COLON
    yield (_VALUE, *number_may_end), ",", _COMMA
    yield (_OBJECT, _VALUE, *number_may_end), "}", _CLOSE_OBJECT
    yield (_ARRAY, _VALUE, *number_may_end), "]", _CLOSE_ARRAY

    yield value_comes, '"', _STRING_BEGIN
    yield (_STRING,), '"', _STRING_END
    yield (_STRING,), "\\", _ESCAPE
    yield (_ESCAPE,), '"\\/bfnrt', _STRING
    yield (_ESCAPE,), "u", _HEX[3]
    for state, following in zip(_HEX, (_STRING, *_HEX), strict=False):
        yield (state,), "0123456789abcdefABCDEF", following

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

    state = _FIRST_OF_WORDS
    for word in ("true", "false", "null"):
        yield value_comes, word[0], state
        for character in word[1:-1]:
            yield (state,), character, state + 1
            state += 1
        yield (state,), word[-1], _VALUE
        state += 1


def _table() -> list[dict[str, int]]:
    rules = list(_rules())
    table: list[dict[str, int]] = [{} for _ in range(1 + max(max(states) for states, _, _ in rules))]
    for states, characters, result in rules:
        for state in states:
            table[state].update(dict.fromkeys(characters, result))
    return table


_TABLE = _table()
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_IN_OBJECT, _IN_ARRAY = b"{["


@dataclass(slots=True)
class Member:
    """Where one of the outermost members stands, in characters from the object's opening brace.

    The key's quotes lie at key_begin and key_end - 1; the colon and the value, white space around both, between key_end and
    value_end.
    """

    key_begin: int
    key_end: int = 0
    value_end: int = 0


class JsonObject:
    """Follows the text of one JSON object from its opening brace to its closing one."""

    __slots__ = ("_in_key", "_offset", "_open", "_state", "complete", "failed", "members")

    def __init__(self) -> None:
        self.complete = False
        self.failed = False
        self.members: list[Member] = []
        self._state = _BEGIN
        self._offset = 0  # characters of earlier pieces
        self._open = bytearray()  # the brackets that are open
        self._in_key = False  # the string that is being read is a key

    def feed(self, text: str, position: int = 0) -> int:
        """Read from text[position] on; return where reading stopped: at the end, behind the object, or at what spoils it."""
        begin, size = position, len(text)
        table, state, depth = _TABLE, self._state, self._open
        while position < size:
            if state == _STRING:
                run = _STRING_RUN.match(text, position)
                position = run.end() if run else position
                if position == size:
                    break
            following = table[state].get(text[position], _SPOIL)
            if following < 0:
                if following == _COMMA and len(depth) > 1:
                    following = _NEXT_KEY if depth[-1] == _IN_OBJECT else _NEXT_ITEM
                elif following == _STRING_BEGIN:
                    self._in_key = False
                    following = _STRING
                else:
                    self._state = state
                    following = self._act(following, self._offset + position - begin)
                    if self.failed:
                        break
            state = following
            position += 1
            if state == _VALUE and not depth:
                self.complete = True
                break
        self._state = state
        self._offset += position - begin
        return position

    def _act(self, act: int, place: int) -> int:
        """Carry out an act on the character at that place; return the state that follows."""
        outermost = len(self._open) == 1
        if act == _STRING_END:
            if self._in_key and outermost:
                self.members[-1].key_end = place + 1
            return _KEY if self._in_key else _VALUE
        if act == _KEY_BEGIN:
            self._in_key = True
            if outermost:
                self.members.append(Member(place))
            return _STRING
        if act in (_OPEN_OBJECT, _OPEN_ARRAY):
            self._open.append(_IN_OBJECT if act == _OPEN_OBJECT else _IN_ARRAY)
            return _OBJECT if act == _OPEN_OBJECT else _ARRAY
        if outermost and self.members and act in (_COMMA, _CLOSE_OBJECT):
            self.members[-1].value_end = place
        if act == _COMMA:
            return _NEXT_KEY
        self._close(act)
        return _VALUE

    def _close(self, act: int) -> None:
        if act == _SPOIL or self._open.pop() != (_IN_OBJECT if act == _CLOSE_OBJECT else _IN_ARRAY):
            self.failed = True
