"""/health."""

from starlette.responses import JSONResponse, Response

from handlers import service


async def get_health() -> Response:
    """What is loaded and how busy it is."""
    return JSONResponse(service().health())
