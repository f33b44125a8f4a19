"""What our code costs a request and a streamed token, beside a bare Starlette route: `python -m tests.overhead`.

Two servers, each a process of its own under the same uvicorn: ours with a model that answers at once, and a route that sends
the same bytes. They take turns. Figures are processor time of the server process, all threads, which a busy machine disturbs
less than the clock; medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.live_server import ROOT, Server, free_port

SHORT, LONG = 16, 528  # tokens of the two streams, whose difference is what a token costs
PATH = "/v1/chat/completions"


def ours() -> Any:
    """Our application with a model that costs next to nothing: as many letters as the prompt's number says."""
    from maple_spec.server.app import create_app
    from maple_spec.settings import Settings
    from tests.toys import ToyModel, loaded, toy_tokenizer

    close = toy_tokenizer().encode("</think>", control_tokens=True)

    def speak(prompt_ids: Any) -> list[int]:
        prompt = bytes(i for i in prompt_ids if i < 256)
        size = int(prompt.split(b"say ")[1].split()[0])
        return [*close, *b"x" * (size - 2)]

    return create_app(Settings(log_level="warning"), load=lambda: loaded(ToyModel(speak)))


def bare() -> Starlette:
    """Reads the body as JSON and sends bytes that are ready; a stream's chunks go out one by one."""
    whole: dict[int, bytes] = {}
    chunks: dict[int, list[bytes]] = {}

    async def learn(request: Request) -> Response:
        """Take what our server answered, so that both send the same bytes."""
        size = int(request.query_params["size"])
        body = await request.body()
        if request.query_params["stream"] == "1":
            chunks[size] = [part + b"\n\n" for part in body.split(b"\n\n") if part]
        else:
            whole[size] = body
        return Response()

    async def chat(request: Request) -> Response:
        asked = await request.json()
        size = int(asked["messages"][0]["content"].split()[1])
        if not asked.get("stream"):
            return Response(whole[size], media_type="application/json")

        async def parts() -> AsyncIterator[bytes]:
            for part in chunks[size]:
                yield part
                await asyncio.sleep(0)

        return StreamingResponse(parts(), media_type="text/event-stream")

    async def health(request: Request) -> Response:
        return Response(b'{"status": "ok"}', media_type="application/json")

    return Starlette(
        routes=[Route(PATH, chat, methods=["POST"]), Route("/learn", learn, methods=["POST"]), Route("/health", health)]
    )


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


class Measured(Server):
    """One of the two servers, in a process of its own."""

    def __init__(self, which: str) -> None:
        super().__init__(free_port())
        command = [sys.executable, "-m", "tests.overhead", "--serve", which, "--port", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT)
        self.wait(lambda health: health["status"] == "ok", 90)

    def cost(self, size: int, stream: bool, requests: int) -> tuple[float, float]:
        """Seconds a request: processor time, and the clock."""
        body = json.dumps(
            {"messages": [{"role": "user", "content": f"say {size} letters"}], "stream": stream, "temperature": 0}
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        cpu, began = cpu_seconds(self.process.pid), time.perf_counter()
        for _ in range(requests):
            connection.request("POST", PATH, body, {"content-type": "application/json"})
            answer = connection.getresponse().read()
            assert size < len(answer), answer
        used = cpu_seconds(self.process.pid) - cpu, time.perf_counter() - began
        connection.close()
        return used[0] / requests, used[1] / requests


def measure(rounds: int) -> None:
    """Print what a request and a token cost on each side."""
    servers = {"ours": Measured("ours"), "bare Starlette": Measured("bare")}
    for size in (SHORT, LONG):
        for stream in (False, True):
            answer = servers["ours"].chat(f"say {size} letters", temperature=0, stream=stream)
            servers["bare Starlette"].send("POST", f"/learn?size={size}&stream={int(stream)}", answer.body)
    figures: dict[str, list[tuple[float, ...]]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, server in servers.items():
            whole_cpu, whole_clock = server.cost(SHORT, False, 100)
            short_cpu, short_clock = server.cost(SHORT, True, 50)
            long_cpu, long_clock = server.cost(LONG, True, 10)
            tokens = LONG - SHORT
            if number:  # the first round warms up
                figures[name].append(
                    (whole_cpu, whole_clock, short_cpu, (long_cpu - short_cpu) / tokens, (long_clock - short_clock) / tokens)
                )
    titles = ("whole answer, cpu", "whole answer, clock", "stream of 16, cpu", "streamed token, cpu", "streamed token, clock")
    print(f"microseconds, medians of {rounds} rounds")
    print(f"{'':24}{'ours':>10}{'bare Starlette':>18}{'difference':>14}")
    for index, title in enumerate(titles):
        ours_, bare_ = (statistics.median(row[index] for row in rows) * 1e6 for rows in figures.values())
        print(f"{title:24}{ours_:10.1f}{bare_:18.1f}{ours_ - bare_:14.1f}")
    for server in servers.values():
        server.process.terminate()
        server.process.wait(10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", choices=["ours", "bare"])
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.serve:
        uvicorn.run(ours() if options.serve == "ours" else bare(), port=options.port, log_level="warning")
    else:
        measure(options.rounds)
