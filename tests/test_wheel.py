"""A wheel, built and installed into an environment of its own, serves the same as the source tree, from any folder."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import launch_variables
from tests.live_server import BIN, ROOT, ServerProcess, environment, free_port
from tests.server.test_launchers import CASES, seen

COMPARED = ("chat", "chat, streamed with usage", "raw", "models", "n", "broken", "no key", "unknown route", "method")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=environment({}), timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, and this one's libraries by a path alone.

    A path in a .pth file runs no .pth files of that path, so an editable install of this project stays out of sight.
    """
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--python", str(python), "install", "--no-deps", "--no-compile", str(wheel)],
        check=True, env=environment({}), timeout=300,
    )  # fmt: skip
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def test_the_wheel_adds_one_name_to_site_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"maple_spec"}
    assert {"maple_spec/contract/openapi.yaml", "maple_spec/contract/handlers/__init__.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def launchers(python: Path, spec: str) -> dict[str, Callable[[int], list[str]]]:
    return {
        "maple serve": lambda port: [str(python.parent / "maple"), "serve", "--port", str(port)],
        "uvicorn": lambda port: [str(python), "-m", "uvicorn", "maple_spec.server.app:app", "--port", str(port)],
        "connexion run": lambda port: [str(python), str(BIN / "connexion"), "run", spec, "-p", str(port)],
    }


def test_the_installed_package_serves_the_same_from_any_folder(
    python: Path, launched: dict[str, ServerProcess], random_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / "handlers.py").write_text("raise ImportError('not the handlers of the contract')\n")
    printed = subprocess.run(
        [str(python), "-m", "maple_spec", "spec"],
        cwd=tmp_path, env=environment({}), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    spec = printed.stdout.strip()
    assert Path(spec).is_relative_to(python.parent.parent)
    variables = launch_variables(random_checkpoint)
    for launcher, command in launchers(python, spec).items():
        port = free_port()
        server = ServerProcess(command(port), port, tmp_path / launcher, variables, folder=tmp_path)
        try:
            server.wait(lambda health: health["status"] == "ok", 120)
            for name in (
                "chat",
                "chat, streamed with usage",
                "raw",
                "models",
                "n",
                "broken",
                "no key",
                "unknown route",
                "method",
            ):
                case = CASES[name]
                answer = server.send(case.method, case.path, case.body, case.headers)
                source = launched["maple-serve"].send(case.method, case.path, case.body, case.headers)
                assert seen(answer) == seen(source), (launcher, name)
            assert server.get("/ui/").status == 200
        finally:
            server.stop()
