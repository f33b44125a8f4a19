"""The server as an ASGI application: `uvicorn maple_spec.server.app:app`, or create_app(settings) with other settings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import connexion
from connexion.middleware import MiddlewarePosition

from maple_spec.engine import LoadedModel
from maple_spec.server.assembly import assemble
from maple_spec.server.body_validator import VALIDATORS
from maple_spec.server.contract import spec_path
from maple_spec.server.edge import Edge
from maple_spec.server.error_envelope import HANDLERS
from maple_spec.server.lifespan import running
from maple_spec.server.wiring import SECURITY
from maple_spec.settings import Settings


def create_app(
    settings: Settings | None = None,
    *,
    load: Callable[[], LoadedModel] | None = None,
    load_failed: Callable[[], None] | None = None,
) -> connexion.AsyncApp:
    """An application that loads its model when its lifespan begins.

    settings: None reads the environment; a fault in it is then told by /health, and requests get 503. load: what brings the
    model, where it is not the checkpoint that the settings name. load_failed: called where the load fails.
    """
    service = assemble(settings, load=load)
    spec = spec_path()
    if sys.path[0] != str(spec.parent):
        # First, because the folder that the server was started in may hold a module called handlers too.
        sys.path.insert(0, str(spec.parent))

    def lifespan(app: Any) -> AbstractAsyncContextManager[None]:
        return running(service, load_failed)

    app = connexion.AsyncApp(
        "maple_spec", specification_dir=spec.parent, lifespan=lifespan, validator_map=VALIDATORS, security_map=SECURITY
    )
    for raised, handler in HANDLERS:
        app.add_error_handler(raised, handler)
    app.add_middleware(Edge, position=MiddlewarePosition.BEFORE_EXCEPTION, service=service)
    app.add_api(spec.name)
    return app


def __getattr__(name: str) -> Any:
    """`app`, made of the environment when it is first asked for: who calls create_app pays for no second application."""
    if name == "app":
        return globals().setdefault("app", create_app())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
