"""A body against its schema: Draft 4 as OpenAPI 3.0 means it, and refusals that name the field as OpenAI's do.

Four keywords differ from jsonschema's own: oneOf follows its discriminator and anyOf the instance's type, so that an error
names the field inside the branch that was meant; properties speak the refusal that openapi.yaml holds (x-message); items stop
at the first bad item and pass over long lists of token ids quickly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connexion.json_schema import Draft4RequestValidator
from jsonschema import Draft4Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from maple_spec.errors import InvalidRequest

Schema = Mapping[str, Any]
REFUSAL = "x-message"

_KINDS = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "object": "an object",
    "array": "an array",
}


def check(body: Any, schema: Schema) -> None:
    """Raise InvalidRequest for the fault that says most, where the body does not fit the schema."""
    fault = min(_BodyValidator(schema).iter_errors(body), key=_rank, default=None)
    if fault is not None:
        raise _refusal(fault)


def _rank(fault: ValidationError) -> tuple[bool, int]:
    """Refusals that the contract words itself come first, then the shallowest fault; ties go by the order of the schema."""
    return fault.validator != REFUSAL, len(fault.absolute_path)


def _refusal(fault: Any) -> InvalidRequest:
    """fault: a ValidationError, whose attributes jsonschema types as perhaps unset."""
    path = list(fault.absolute_path)
    if fault.validator == "required":
        path.append(next(name for name in fault.validator_value if name not in fault.instance))
        param = _param(path)
        return InvalidRequest(f"{param} is required", param=param, code="missing_required_parameter")
    param = _param(path)
    if fault.validator == REFUSAL:
        return InvalidRequest(fault.message, param=param)
    code = "invalid_type" if fault.validator in ("type", "anyOf") else "invalid_value"
    return InvalidRequest(f"{param or 'the request body'} must {_demand(fault)}", param=param, code=code)


def _param(path: Sequence[str | int]) -> str | None:
    """messages[0].content, as OpenAI spells a path; None for the body itself."""
    spelled = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return spelled.removeprefix(".") or None


def _demand(fault: Any) -> str:
    """What the schema demands, to follow "must"."""
    wanted = fault.validator_value
    match fault.validator:
        case "type":
            demand = f"be {_KINDS[wanted]}"
        case "anyOf":
            demand = "be " + " or ".join(dict.fromkeys(_KINDS[branch["type"]] for branch in wanted))
        case "enum":
            demand = "be one of " + ", ".join(json.dumps(value) for value in wanted if value is not None)
        case "minimum":
            demand = f"be {'greater than' if fault.schema.get('exclusiveMinimum') else 'at least'} {wanted}"
        case "maximum":
            demand = f"be at most {wanted}"
        case "minItems" | "minLength":
            demand = "not be empty"
        case _:
            demand = f"fit the schema's {fault.validator} {json.dumps(wanted)[:100]}"
    return demand


def _one_of(validator: Any, branches: Sequence[Schema], instance: Any, schema: Schema) -> Iterator[ValidationError]:
    key = schema.get("discriminator", {}).get("propertyName")
    if key is None:
        yield from Draft4Validator.VALIDATORS["oneOf"](validator, branches, instance, schema)
        return
    known: list[Any] = []
    for branch in branches:
        values = branch["properties"][key]["enum"]
        if isinstance(instance, dict) and instance.get(key) in values:
            yield from validator.descend(instance, branch)
            return
        known += values
    yield from validator.descend(
        instance, {"type": "object", "required": [key], "properties": {key: {"type": "string", "enum": known}}}
    )


def _any_of(validator: Any, branches: Sequence[Schema], instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if any(validator.evolve(schema=branch).is_valid(instance) for branch in branches):
        return
    meant = [branch for branch in branches if validator.is_type(instance, branch["type"])]
    if len(meant) == 1:
        yield from validator.descend(instance, meant[0])
    else:
        yield ValidationError("fits none of the accepted forms")


def _properties(validator: Any, properties: Schema, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for name, subschema in properties.items():
        if name not in instance:
            continue
        faults = validator.descend(instance[name], subschema, path=name, schema_path=name)
        if REFUSAL not in subschema:
            yield from faults
        elif next(faults, None) is not None:
            yield ValidationError(
                subschema[REFUSAL],
                validator=REFUSAL,
                path=[name],
                instance=instance[name],
                schema=subschema,
                validator_value=None,
            )


def _items(validator: Any, items: Schema, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    for index in range(_token_ids(instance, items), len(instance)):
        faults = list(validator.descend(instance[index], items, path=index))
        if faults:
            yield from faults
            return


def _token_ids(instance: list[Any], items: Schema) -> int:
    """How many items from the first on are token ids as the schema wants them: a prompt can hold very many."""
    if items.keys() != {"type", "minimum"} or items["type"] != "integer":
        return 0
    lowest = items["minimum"]
    bad = (index for index, item in enumerate(instance) if type(item) is not int or item < lowest)
    return next(bad, len(instance))


_BodyValidator = extend(  # type: ignore[no-untyped-call]
    Draft4RequestValidator, {"oneOf": _one_of, "anyOf": _any_of, "properties": _properties, "items": _items}
)
