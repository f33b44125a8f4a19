"""The operations that openapi.yaml names: a function each, no logic.

Importing this package is the one moment that a project gets under plain `connexion run`, so it wires the server here.
"""

from maple_spec.server import wiring

__all__ = ["service"]

wiring.install()
service = wiring.service
