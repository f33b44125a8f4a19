"""The API key: enforced only where MAPLE_API_KEY is set, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

from connexion.lifecycle import ConnexionRequest
from connexion.security import BearerSecurityHandler

from maple_spec.errors import Unauthorized
from maple_spec.server.assembly import Service


class OptionalBearer(BearerSecurityHandler):  # type: ignore[misc]  # Connexion ships no types
    """Connexion's own handler always demands a header, and its optional security takes a wrong key: this one does neither."""

    def get_fn(
        self, security_scheme: dict[str, Any], required_scopes: list[str]
    ) -> Callable[[ConnexionRequest], Awaitable[dict[str, str]]]:
        """The check that runs before every operation that needs a key."""
        return _verify


async def _verify(request: ConnexionRequest) -> dict[str, str]:
    service: Service = request.scope["state"]["service"]
    service.require_settings()
    key = service.settings.api_key
    if key is not None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized("an API key is required: send it as a bearer token in the Authorization header")
        # Header bytes arrive decoded as Latin-1; the key was given as text.
        if not hmac.compare_digest(token.strip().encode("latin-1"), key.encode()):
            raise Unauthorized("the API key is wrong")
    return {}
