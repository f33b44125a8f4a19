"""/v1/completions."""

from typing import Any

from starlette.responses import Response

from handlers import service
from maple_spec.wire.requests import completion_call
from maple_spec.wire.responses import CompletionWriter


async def create_completion(params: dict[str, Any]) -> Response:
    """Continue a raw prompt; params is the body, valid."""
    return await service().answer(params, completion_call, CompletionWriter)
