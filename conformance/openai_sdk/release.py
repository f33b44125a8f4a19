"""A release of the SDK: its sdist from the package registry, checked and unpacked."""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / "maple-conformance"  # what is found there is checked like what is fetched


@dataclass(frozen=True, slots=True)
class Release:
    """An unpacked sdist, and what its suite asks of a server."""

    folder: Path

    @property
    def version(self) -> str:
        """Its number."""
        return self.folder.name.removeprefix("openai-")

    @property
    def key(self) -> str:
        """The key that the suite sends."""
        return self._spelled("tests/conftest.py", r'^api_key = "(.+?)"')

    @property
    def model(self) -> str:
        """The id of the model that the suite retrieves."""
        return self._spelled("tests/api_resources/test_models.py", r'models\.retrieve\(\s*"(.+?)"')

    def _spelled(self, file: str, pattern: str) -> str:
        found = re.search(pattern, (self.folder / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert found is not None, f"{file} has no {pattern}"
        return found[1]


def fetched(version: str, sha256: str | None, folder: Path) -> Release:
    """The release, unpacked below the folder. version: a number or "latest". sha256: None trusts the registry."""
    if sha256 is None:
        archive = _downloaded(version, sha256, folder)
    else:
        archive = _kept(version)
        if hashlib.sha256(archive).hexdigest() != sha256:
            archive = _downloaded(version, sha256, folder)
            _keep(version, archive)
        assert hashlib.sha256(archive).hexdigest() == sha256, "the sdist is not the one that was pinned"
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    (unpacked,) = folder.glob("openai-*/")
    return Release(unpacked)


def _kept(version: str) -> bytes:
    with suppress(OSError):
        return (CACHE / f"openai-{version}.tar.gz").read_bytes()
    return b""


def _keep(version: str, archive: bytes) -> None:
    with suppress(OSError):  # the folder may be another user's, and then every run fetches
        CACHE.mkdir(exist_ok=True)
        part = CACHE / f"{os.getpid()}.part"  # renamed when whole: another run may be reading
        part.write_bytes(archive)
        part.replace(CACHE / f"openai-{version}.tar.gz")


def _downloaded(version: str, sha256: str | None, folder: Path) -> bytes:
    wanted = "openai" if version == "latest" else f"openai=={version}"
    requirements = folder / "requirements.txt"
    requirements.write_text(wanted + (f" --hash=sha256:{sha256}" if sha256 else ""), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", "openai", "--dest", str(folder), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = folder.glob("openai-*.tar.gz")
    return archive.read_bytes()
