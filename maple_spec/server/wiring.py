"""How plain `connexion run` becomes this server: the one place that reaches into Connexion, which is therefore pinned exactly.

The CLI builds its own app and takes no error handlers, validators, security map, middleware or lifespan. It imports `handlers`
while the middleware stack is being built, at the first ASGI event. By then Connexion's registries of validators and security
handlers have not been copied yet, so they are filled through their dicts; the ExceptionMiddleware exists already, so its class
is extended, and acts only for an app that was given no error handlers of its own. create_app passes the same parts through
Connexion's options instead.
"""

from __future__ import annotations

import connexion.security
import connexion.validators
from connexion.context import scope as current_scope
from connexion.middleware.exceptions import ExceptionMiddleware
from starlette.types import Receive, Scope, Send

from maple_spec.server.assembly import Service, assemble
from maple_spec.server.bearer import OptionalBearer
from maple_spec.server.body_validator import VALIDATORS
from maple_spec.server.edge import Edge
from maple_spec.server.error_envelope import HANDLERS
from maple_spec.server.lifespan import running

SECURITY = {"bearer": OptionalBearer}


def service() -> Service:
    """What stands behind the request that is being served."""
    found: Service = current_scope["state"]["service"]
    return found


def install() -> None:
    """Wire apps that are built without create_app; a second call does nothing."""
    original = ExceptionMiddleware.__call__
    if getattr(original, "wires", False):
        return
    connexion.validators.VALIDATOR_MAP.update(VALIDATORS)
    connexion.security.SECURITY_HANDLERS.update(SECURITY)

    async def call(self: ExceptionMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
        app = scope.get("app")  # the ConnexionMiddleware around everything
        if app is None or app.error_handlers:
            await original(self, scope, receive, send)
            return
        if not hasattr(self, "edge"):
            for raised, handler in HANDLERS:
                self.add_exception_handler(raised, handler)
            self.service = assemble()
            self.edge = Edge(original.__get__(self), self.service)
        if scope["type"] == "lifespan":
            async with running(self.service):
                await original(self, scope, receive, send)
        else:
            await self.edge(scope, receive, send)

    call.wires = True  # type: ignore[attr-defined]
    ExceptionMiddleware.__call__ = call
