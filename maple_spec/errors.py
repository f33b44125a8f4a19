"""Every error that this project raises on purpose; status, type and code are facts of the class.

    MapleError
    |- ApiError                          answered over HTTP in the OpenAI shape
    |  |- InvalidRequest            400  invalid_request_error
    |  |  |- ContextLengthExceeded  400  context_length_exceeded
    |  |- Unauthorized              401  invalid_api_key
    |  |- NotFound                  404
    |  |  |- ModelNotFound          404  model_not_found
    |  |- MethodNotAllowed          405  method_not_allowed
    |  |- RequestTooLarge           413  request_too_large
    |  |- GenerationFailed          500  server_error
    |  `- Unavailable               503  server_error
    |     |- ModelLoading           503  model_loading
    |     |- ModelLoadFailed        503  model_load_failed
    |     |- EngineOverloaded       503  engine_overloaded
    |     `- ShuttingDown           503  shutting_down
    |- SettingsError                     a MAPLE_* variable is wrong: one line that names it, its value and its range
    `- CheckpointError                   a model file is wrong: one line that names the file, the tensor and what to do

Plain Python: maple_spec.server maps ApiError to responses; nothing below it knows of HTTP beyond the numbers here.
"""

from __future__ import annotations

from typing import Any, ClassVar


class MapleError(Exception):
    """Base of all; str() is the sentence that a person reads."""


class ApiError(MapleError):
    """An error that a client sees as {"error": {"message", "type", "param", "code"}}."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        """message names the field and the limit; param is the field's path as OpenAI spells it, messages[0].content."""
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code

    def body(self) -> dict[str, Any]:
        """The body of the response, as the API reference prints it."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class InvalidRequest(ApiError):
    """The request cannot be served as it stands."""

    status = 400
    type = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    """The rendered prompt is longer than the server or the model allows."""

    default_code = "context_length_exceeded"


class Unauthorized(ApiError):
    """A key is required and the bearer token is missing or wrong."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"
    headers: ClassVar[dict[str, str]] = {"WWW-Authenticate": "Bearer"}


class NotFound(ApiError):
    """No such route."""

    status = 404
    type = "invalid_request_error"


class ModelNotFound(NotFound):
    """The request names a model that is not served."""

    default_code = "model_not_found"


class MethodNotAllowed(ApiError):
    """The route exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class RequestTooLarge(ApiError):
    """The body is larger than MAPLE_MAX_BODY_BYTES."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"
    headers: ClassVar[dict[str, str]] = {"Connection": "close"}


class GenerationFailed(ApiError):
    """The model failed while generating; the next request works."""


class Unavailable(ApiError):
    """The server cannot take the request now."""

    status = 503


class ModelLoading(Unavailable):
    """Weights are still being loaded."""

    default_code = "model_loading"
    headers: ClassVar[dict[str, str]] = {"Retry-After": "5"}


class ModelLoadFailed(Unavailable):
    """Weights or settings could not be loaded; /health says why."""

    default_code = "model_load_failed"


class EngineOverloaded(Unavailable):
    """The queue is full, or the wait for the slot took too long."""

    default_code = "engine_overloaded"
    headers: ClassVar[dict[str, str]] = {"Retry-After": "5"}


class ShuttingDown(Unavailable):
    """The server was asked to stop."""

    default_code = "shutting_down"


class SettingsError(MapleError):
    """A MAPLE_* variable holds a value outside its type or range."""


class CheckpointError(MapleError):
    """A model file is missing, damaged, foreign or contradictory."""
