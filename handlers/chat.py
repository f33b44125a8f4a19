"""/v1/chat/completions."""

from typing import Any

from starlette.responses import Response

from handlers import service
from maple_spec.wire.requests import chat_call
from maple_spec.wire.responses import ChatWriter


async def create_chat_completion(params: dict[str, Any]) -> Response:
    """Answer a conversation; params is the body, valid."""
    return await service().answer(params, chat_call, ChatWriter)
