"""/v1/models and /v1/models/{model_id}."""

from starlette.responses import JSONResponse, Response

from handlers import service
from maple_spec.wire import responses


async def list_models() -> Response:
    """The one model, as a list."""
    return JSONResponse(responses.model_list(service().settings))


async def retrieve_model(model_id: str) -> Response:
    """The one model, by its id."""
    return JSONResponse(responses.model(model_id, service().settings))
