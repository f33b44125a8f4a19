"""`maple bench --server`: what the server adds. The same model decodes by itself and over HTTP with streaming, in turn.

The server runs in this process, on a thread of its own, with the application that serves everybody; its client is another
process, which reads the stream as it comes and looks at the clock at the first and at the last token.
"""

from __future__ import annotations

import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import uvicorn

from maple_spec.bench.measure import Plan
from maple_spec.checkpoints.embedded import embedded_folder
from maple_spec.checkpoints.text_files import read_chat_template
from maple_spec.engine import LoadedModel
from maple_spec.engine.maple_adapter import NativeLanguageModel
from maple_spec.kernels.native import PLANES, ModelWeights, NativeModel
from maple_spec.server.app import create_app
from maple_spec.settings import default_settings
from maple_spec.text.byte_tokenizer import ByteTokenizer
from maple_spec.text.chat_template import ChatTemplate

CONTEXT = 128
TOKENS = 64
CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Served:
    """Milliseconds a decoded token, medians: the kernels alone, and between chunks of a stream; added: the share."""

    alone: float
    streamed: float
    added: float
    pairs: list[tuple[float, float]]


def serve_and_measure(weights: ModelWeights, plan: Plan, progress: Callable[[str], None]) -> dict[str, Any]:
    """Decode TOKENS tokens behind CONTEXT alone and over HTTP, with the default sampling, plan.rounds times."""
    planes = PLANES[plan.activations]

    def load() -> LoadedModel:
        model = NativeModel(weights, variant=plan.variant, planes=planes, threads=plan.threads)
        words = (f" w{number}".encode() for number in range(model.vocab_size))
        tokenizer = ByteTokenizer(CONTROL, words)
        return LoadedModel(
            language_model=NativeLanguageModel(model, 4 * CONTEXT, (), prefix_cache_tokens=0),
            tokenizer=tokenizer,
            chat_template=ChatTemplate(read_chat_template(embedded_folder()), CONTROL),
            name="random weights",
        )

    alone = NativeModel(weights, variant=plan.variant, planes=planes, threads=plan.threads)
    cache = alone.new_cache(4 * CONTEXT)
    draw = np.random.default_rng(0)
    pairs = []
    with _serving(load) as port:
        for number in range(plan.rounds + 1):
            progress(f"round {number} of {plan.rounds}" if number else "first touches")
            cache.seek(CONTEXT)
            ids = draw.integers(0, alone.vocab_size, TOKENS).tolist()
            began = time.perf_counter()
            for token_id in ids:
                alone.forward((token_id,), cache)
            own = (time.perf_counter() - began) / TOKENS
            client = [sys.executable, "-m", "maple_spec.server.stopwatch", str(port)]
            streamed = float(subprocess.run(client, capture_output=True, text=True, check=True).stdout)  # noqa: S603 -- our own
            if number:
                pairs.append((1000 * own, 1000 * streamed))
    own, streamed = (statistics.median(times) for times in zip(*pairs, strict=True))
    added = statistics.median(b / a - 1 for a, b in pairs)
    return {"plan": asdict(plan), "served": asdict(Served(own, streamed, added, pairs))}


@contextmanager
def _serving(load: Callable[[], LoadedModel]) -> Iterator[int]:
    """A running server that has loaded; its port."""
    app = create_app(default_settings(), load=load)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        port: int = listening.getsockname()[1]
        while _health(port) != "ok":
            time.sleep(0.1)
        yield port
        server.should_exit = True
        thread.join()


def _health(port: int) -> str:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("GET", "/health")
        status: str = json.loads(connection.getresponse().read())["status"]
    return status


def stream(port: int) -> float:
    """The client: seconds a token between the first and the last chunk of a streamed answer."""
    body = {"prompt": "x" * CONTEXT, "max_tokens": TOKENS, "stream": True}
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        times = [time.perf_counter() for line in connection.getresponse() if line.startswith(b"data: {")]
    # The last chunk holds no token of its own, but says why the answer ended.
    return (times[-2] - times[0]) / (len(times) - 2)


if __name__ == "__main__":
    print(stream(int(sys.argv[1])))
