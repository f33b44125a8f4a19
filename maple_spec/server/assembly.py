"""The one place where the parts are put together: settings -> engine -> generator, behind the Service that handlers ask."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from connexion.context import receive, scope
from starlette.responses import Response

from maple_spec import __version__
from maple_spec.engine import Engine, EngineState, LoadedModel
from maple_spec.errors import ModelLoadFailed, SettingsError
from maple_spec.generation import Generator
from maple_spec.server import delivery
from maple_spec.settings import EMBEDDED_NAME, SCRIPT_PREFIX, Settings, default_settings, read_settings
from maple_spec.wire import responses
from maple_spec.wire.requests import Call
from maple_spec.wire.responses import Writer

logger = logging.getLogger("maple_spec.server")

_STATUS = {EngineState.READY: "ok", EngineState.LOADING: "loading"}


class ReadCall(Protocol):
    """A reader of request bodies, from wire.requests."""

    def __call__(self, body: Mapping[str, Any], settings: Settings, *, request_id: str, created: int) -> Call: ...


class Service:
    """What stands behind the operations of one server: its settings, its engine, its generator.

    load: what brings the model, in the engine's thread; by default the model that the settings name. fault: why the
    settings could not be read; then nothing is loaded, and everything but /health answers 503.
    """

    def __init__(self, settings: Settings, *, load: Callable[[], LoadedModel] | None = None, fault: str | None = None) -> None:
        self.settings = settings
        self.fault = fault
        self._bring = load or self._load_model
        self._fingerprint = ""
        self.engine = Engine(self._load, max_queue_depth=settings.max_queue_depth, queue_timeout=settings.queue_timeout)
        self.generator = Generator(self.engine, max_prompt_tokens=settings.max_prompt_tokens)

    def start(self) -> None:
        """Begin to load the model, in the background."""
        if self.fault is not None:
            logger.error("%s", self.fault)
            return
        self.engine.start()

    @property
    def model_path(self) -> str:
        """What is served, as /health shows it."""
        return self.settings.model_path or EMBEDDED_NAME

    def require_settings(self) -> None:
        """Raise ModelLoadFailed where the settings could not be read."""
        if self.fault is not None:
            raise ModelLoadFailed(self.fault)

    async def answer(
        self, body: Mapping[str, Any], read_call: ReadCall, make_writer: Callable[[Call, str], Writer]
    ) -> Response:
        """Answer the request that is being served: generate what its body asks for, and spell it as the body asks."""
        request_id: str = scope["state"]["request_id"]
        call = read_call(body, self.settings, request_id=request_id, created=int(time.time()))
        events = self.generator.generate(call.generation)

        def write() -> Writer:
            return make_writer(call, self._fingerprint)

        if call.stream:
            return await delivery.streamed(events, write, receive, request_id)
        return await delivery.whole(events, write, receive)

    def health(self) -> dict[str, Any]:
        """The body of /health."""
        loaded = self.engine.loaded
        error = self.fault or self.engine.error
        seconds = self.engine.load_seconds
        return responses.health(
            status="error" if error else _STATUS.get(self.engine.state, "error"),
            model=self.settings.model_id,
            model_path=loaded.name if loaded else self.model_path,
            device=loaded.device if loaded else None,
            dtype=loaded.dtype_label if loaded else None,
            attention=loaded.attention_label if loaded else None,
            load_seconds=None if seconds is None else round(seconds, 3),
            queue_depth=self.engine.queue_depth,
            active=self.engine.active,
            version=__version__,
            error=error,
        )

    def _load(self) -> LoadedModel:
        """Runs in the engine's worker thread, which then owns the model; torch is imported there, while the port is open."""
        import torch

        from maple_spec.server.fingerprint import fingerprint

        if self.settings.threads is not None:
            torch.set_num_threads(self.settings.threads)
        loaded = self._bring()
        self._fingerprint = fingerprint(loaded.files, (loaded.dtype_label, loaded.attention_label))
        return loaded

    def _load_model(self) -> LoadedModel:
        from maple_spec.engine import load_maple, load_script

        path = self.settings.model_path
        if path is None:
            logger.info(
                "serving %s, a very small model for tests; to serve the real one, set MAPLE_MODEL_PATH (or --model-path) to a "
                "folder with the files of deepgrove/maple-preview",
                self.model_path,
            )
        elif path.startswith(SCRIPT_PREFIX):
            return load_script(path)
        settings = self.settings
        return load_maple(
            path,
            window_keys=settings.window_keys,
            kernels=settings.kernels,
            activations=settings.activations,
            threads=settings.threads,
            prefix_cache_tokens=settings.prefix_cache_tokens,
        )


def assemble(settings: Settings | None = None, *, load: Callable[[], LoadedModel] | None = None) -> Service:
    """The service for these settings; None reads the environment, and keeps a fault in it for /health to tell."""
    if settings is not None:
        return Service(settings, load=load)
    try:
        return Service(read_settings(), load=load)
    except SettingsError as error:
        return Service(default_settings(), fault=str(error))
