"""Start and stop of real processes: bad settings, a missing model, signals while a stream is open."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.live_server import (
    LAUNCHERS,
    ROOT,
    ServerProcess,
    connection_closed,
    environment,
    eventually,
    free_port,
    launch,
    serving,
)

HI = {"role": "user", "content": "Hi"}
BAD = "MAPLE_TOP_P='7' must be a number from 0 to 1"


def read_stream(server: ServerProcess, lines: list[bytes]) -> None:
    body = {"messages": [HI], "stream": True, "max_tokens": 30000, "temperature": 0}
    connection, response = server.open("POST", "/v1/chat/completions", body, timeout=60)
    with connection_closed(connection):
        while line := response.readline():
            lines.append(line)


@pytest.mark.parametrize("launcher", ["connexion-run", "uvicorn"])
def test_a_bad_setting_is_told_by_health_where_the_launcher_cannot_end(launcher: str, tmp_path: Path) -> None:
    server = launch(launcher, tmp_path / "log", MAPLE_TOP_P="7")
    try:
        health = server.wait(lambda health: health["status"] == "error", 90)
        assert health["error"] == BAD
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
            answer = server.send(method, path, {"messages": [HI]} if method == "POST" else None)
            assert (answer.status, answer.error["code"]) == (503, "model_load_failed")
            assert answer.error["message"] == BAD
        assert server.get("/v1/nope").status == 404
        log = server.log.read_text()
        assert BAD in log
        assert "Traceback" not in log
    finally:
        server.stop()


def test_a_model_that_cannot_be_found_is_told_by_health(tmp_path: Path) -> None:
    server = launch("maple-serve", tmp_path / "log", MAPLE_MODEL_PATH=str(tmp_path / "nothing"))
    try:
        health = server.wait(lambda health: health["status"] == "error", 90)
        assert "no such folder" in health["error"]
        answer = server.chat()
        assert (answer.status, answer.error["code"]) == (503, "model_load_failed")
    finally:
        server.stop()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_signal_ends_open_streams_after_the_grace_period_with_an_error_and_done(
    launcher: str, random_checkpoint: Path, tmp_path: Path
) -> None:
    server = launch(launcher, tmp_path / "log", MAPLE_MODEL_PATH=str(random_checkpoint), MAPLE_SHUTDOWN_GRACE="0.5")
    lines: list[bytes] = []
    try:
        server.wait(lambda health: health["status"] == "ok", 90)
        reader = threading.Thread(target=read_stream, args=(server, lines))
        reader.start()
        eventually(lambda: len(lines) > 10)
        began = time.monotonic()
        server.stop(signal.SIGTERM)
        reader.join(30)
        assert time.monotonic() - began < 20
    finally:
        server.stop()
    events = [line for line in lines if line.strip()]
    assert events[-1] == b"data: [DONE]\n"
    error = json.loads(events[-2].removeprefix(b"data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "shutting_down")


def test_a_signal_while_nothing_runs_ends_the_server_at_once(random_checkpoint: Path, tmp_path: Path) -> None:
    server = launch("maple-serve", tmp_path / "log", MAPLE_MODEL_PATH=str(random_checkpoint), MAPLE_SHUTDOWN_GRACE="30")
    try:
        server.wait(lambda health: health["status"] == "ok", 90)
        began = time.monotonic()
        server.stop(signal.SIGTERM)
        assert time.monotonic() - began < 10
    finally:
        server.stop()


def test_a_start_without_a_model_path_says_what_is_served_and_how_to_serve_the_real_one(tmp_path: Path) -> None:
    server = launch("maple-serve", tmp_path / "log")
    try:
        assert server.wait(lambda health: health["status"] != "loading", 90)["model_path"] == "maple-tiny (embedded)"
        said = [line for line in server.log.read_text().splitlines() if "maple-tiny (embedded)" in line]
        assert len(said) == 1
        assert "MAPLE_MODEL_PATH" in said[0]
        assert "deepgrove/maple-preview" in said[0]
    finally:
        server.stop()


def test_starting_the_server_imports_neither_transformers_nor_torch_before_the_port_is_open() -> None:
    code = (
        "import sys, maple_spec.server.app; "
        "print([name for name in ('torch', 'transformers', 'numpy', 'openai') if name in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=60, check=True
    )
    assert printed.stdout == "[]\n"


def test_two_applications_in_one_process_keep_their_settings_apart() -> None:
    from tests.toys import loaded, says

    with serving(lambda: loaded(says("ok")), model_id="one") as one, serving(lambda: loaded(says("ok")), model_id="two") as two:
        assert [server.get("/v1/models").json()["data"][0]["id"] for server in (one, two, one)] == ["one", "two", "one"]


def test_the_port_answers_while_the_model_is_still_on_its_way(random_checkpoint: Path, tmp_path: Path) -> None:
    port = free_port()
    server = ServerProcess(LAUNCHERS["maple-serve"](port), port, tmp_path / "log", {"MAPLE_MODEL_PATH": str(random_checkpoint)})
    try:
        first = server.wait(lambda health: True, 90)
        assert first["status"] in ("loading", "ok")
        server.wait(lambda health: health["status"] == "ok", 90)
        assert server.chat(max_tokens=1).status == 200
    finally:
        server.stop()
