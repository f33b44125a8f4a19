"""Bytes of a request as a JSON object, or a refusal: all that can be wrong with a body before its fields are looked at."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from maple_spec.errors import InvalidRequest

MAX_DEPTH = 100  # no schema of a tool comes near; templates and validators recurse far deeper than this

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json_object(raw: bytes) -> dict[str, Any]:
    """The object that raw spells. Raises InvalidRequest, code invalid_json or invalid_type, for anything else.

    Refused beyond broken JSON: bytes that are not UTF-8, NaN and Infinity, numbers too large for a float or of thousands of
    digits, halves of surrogate pairs, and nesting deeper than MAX_DEPTH.
    """
    try:
        # A byte order mark is no JSON, but some clients write one; RFC 8259 section 8.1 lets a parser ignore it.
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite)
        if _SURROGATE_ESCAPE.search(raw):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise _invalid("it holds half of a surrogate pair") from None
    except RecursionError:
        raise _invalid(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise _invalid(str(error)) from None
    except ValueError:  # what int() says of more digits than Python is willing to read
        raise _invalid("it holds an integer of too many digits") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the request body must be a JSON object", code="invalid_type")
    if _deeper_than(MAX_DEPTH, value):
        raise _invalid(f"it is nested deeper than {MAX_DEPTH} levels")
    return value


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"the request body could not be read as JSON: {reason[:200]}", code="invalid_json")


def _refuse_constant(name: str) -> NoReturn:
    raise _invalid(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise _invalid(f"{digits[:20]} is too large a number")
    return value


def _deeper_than(limit: int, value: dict[str, Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
