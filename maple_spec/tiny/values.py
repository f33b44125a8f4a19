"""Parameters of invented tools and the values they take: as JSON, and as a question says them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maple_spec.tiny.words import Draw

JSON_TYPE = {"int": "integer", "float": "number", "bool": "boolean", "list": "array"}
PARAMETERS = [
    ("city", "place"), ("location", "place"), ("country", "place"), ("destination", "place"), ("origin", "place"), ("name",
    "name"),
    ("user", "name"), ("recipient", "name"), ("date", "date"), ("day", "date"), ("time", "time"), ("email", "email"), ("to",
    "email"),
    ("path", "path"), ("filename", "path"), ("id", "code"), ("order_id", "code"), ("user_id", "int"), ("count", "int"),
    ("limit", "int"), ("amount", "float"), ("price", "float"), ("level", "int"), ("temperature", "int"), ("symbol", "caps"),
    ("ticker", "caps"), ("currency", "caps"), ("query", "phrase"), ("text", "phrase"), ("message", "phrase"), ("title",
    "phrase"),
    ("topic", "word"), ("unit", "enum"), ("color", "word"), ("language", "word"), ("enabled", "bool"), ("verbose", "bool"),
    ("room", "word"), ("category", "enum"), ("zip", "digits"), ("a", "int"), ("b", "int"), ("x", "int"), ("y", "int"),
    ("input", "int"), ("n", "int"), ("tags", "list"), ("items", "list"), ("city_name", "place"), ("phone", "digits"), ("url",
    "url"),
]  # fmt: skip
KINDS = [
    "place",
    "name",
    "int",
    "float",
    "date",
    "code",
    "word",
    "phrase",
    "caps",
    "word",
    "int",
    "enum",
    "digits",
    "list",
    "place",
]


@dataclass(frozen=True)
class Parameter:
    """One parameter: its name, the kind of its values, and the choices of an enum."""

    name: str
    kind: str
    required: bool
    choices: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        """The JSON Schema type."""
        return JSON_TYPE.get(self.kind, "string")


def value(draw: Draw, parameter: Parameter) -> Any:  # noqa: PLR0911, PLR0912 -- a table of kinds
    """A value of the parameter's kind; a text on the draw's side of the held-out rule."""
    r = draw.random
    match parameter.kind:
        case "place":
            return draw.place()
        case "name":
            return draw.name() if draw.chance(0.8) else draw.fresh(lambda: f"{draw.name()} {draw.name()}")
        case "int":
            return -draw.number(3) if draw.chance(0.05) else draw.number()
        case "float":
            return round(r.uniform(0, 100), r.randint(1, 2))
        case "bool":
            return draw.chance(0.5)
        case "date":
            return f"20{r.randint(20, 39)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"
        case "time":
            return f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
        case "email":
            return draw.fresh(lambda: f"{draw.syllables(1, 2)}@{draw.syllables(1, 2)}.{draw.pick(['com', 'org', 'net'])}")
        case "url":
            tail = f"/{draw.word()}" if draw.chance(0.5) else ""
            return draw.fresh(lambda: f"https://{draw.syllables(1, 2)}.{draw.pick(['com', 'org', 'io'])}{tail}")
        case "path":
            return draw.fresh(lambda: _path(draw))
        case "code":
            return draw.code(4, 8)
        case "caps":
            return draw.fresh(lambda: "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(3, 4))))
        case "digits":
            return draw.fresh(lambda: "".join(r.choice("0123456789") for _ in range(r.randint(4, 7))))
        case "phrase":
            return draw.fresh(lambda: " ".join(draw.word() for _ in range(r.randint(2, 5))))
        case "enum":
            return draw.pick(parameter.choices)
        case "list":
            return [draw.word(), draw.word()]
    return draw.word()


def _path(draw: Draw) -> str:
    folders = "/".join(draw.syllables(1, 2) for _ in range(draw.random.randint(1, 2)))
    return f"{draw.pick(['/', ''])}{folders}.{draw.pick(['txt', 'csv', 'py', 'json'])}"


def spoken(item: Any) -> str:
    """A value as a question says it."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, list):
        return " and ".join(item)
    return str(item)
