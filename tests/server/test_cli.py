"""The commands, as a person runs them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from maple_spec import __version__
from maple_spec.server.cli import main
from maple_spec.settings import Settings, variable
from tests.live_server import ROOT, environment


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "maple_spec", *arguments],
        cwd=ROOT, env=environment(variables), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_spec_prints_where_the_contract_lies() -> None:
    printed = run("spec")
    assert printed.returncode == 0
    assert Path(printed.stdout.strip()).read_text(encoding="utf-8").startswith("# The contract")


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [((), {"MAPLE_PORT": "99999"}), (("--port", "99999"), {}), (("--port", "99999"), {"MAPLE_PORT": "80"})],
)
def test_a_bad_value_ends_serve_with_status_1_and_one_line(arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    ended = run("serve", *arguments, **variables)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == "MAPLE_PORT='99999' must be an integer from 0 to 65535\n"


def test_a_model_that_cannot_be_loaded_ends_serve_with_status_1_and_one_line(tmp_path: Path) -> None:
    ended = run("serve", "--port", "0", "--log-level", "error", "--model-path", str(tmp_path / "absent"))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.endswith(f"{tmp_path}/absent: no such folder; name a folder that holds config.json and safetensors files")


def test_a_faulty_script_ends_serve_with_status_1_and_one_line(tmp_path: Path) -> None:
    script = tmp_path / "answers.json"
    script.write_text('[{"output": ["x"], "end": "never"}]', encoding="utf-8")
    ended = run("serve", "--port", "0", "--log-level", "error", "--model-path", f"script:{script}")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.endswith(f'{script}: entry 1: end must be one of eos, length, error, not "never"')


def test_a_port_that_is_taken_ends_serve_with_status_1_and_a_line_that_names_it(random_checkpoint: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port, MAPLE_MODEL_PATH=str(random_checkpoint))
    assert done.returncode == 1
    assert f"MAPLE_PORT={port}" in done.stderr


def test_serve_has_a_flag_for_every_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in shown
        assert variable(name) in shown


def test_the_version_is_told_and_a_missing_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
