"""One run of the suite in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DEVIATIONS = HERE / "deviations.json"
PLUGINS = ("conformance.openai_sdk.plugin", "pytest_asyncio.plugin")
# What would change a run, or send it elsewhere.
NOT_INHERITED = ("OPENAI_", "PYTEST_", "PYTHONPATH", "TEST_API_BASE_URL")


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. tests: passed, deviated or what else came of each; version: of the SDK that ran."""

    exit_code: int
    output: str
    version: str
    tests: dict[str, str]

    @property
    def counts(self) -> Counter[str]:
        """How many tests came to what."""
        return Counter(self.tests.values())


def run(folder: Path, files: list[str], url: str, outcomes: Path, *options: str, deviations: Path = DEVIATIONS) -> Run:
    """Run these files of the suite in folder against url."""
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--override-ini", "addopts="]
    command += ["-q", "--tb=short", "-p", "no:cacheprovider", *(part for name in PLUGINS for part in ("-p", name))]
    command += ["--deviations", str(deviations), "--outcomes", str(outcomes), *options, *files]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    path = os.pathsep.join([str(folder), str(folder / "src"), str(HERE.parent.parent)])
    ours = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TEST_API_BASE_URL": f"{url}/v1"}
    done = subprocess.run(
        command, cwd=folder, env={**inherited, **ours}, capture_output=True, text=True, timeout=600, check=False
    )
    output = done.stdout + done.stderr
    assert outcomes.exists(), output
    told = json.loads(outcomes.read_text(encoding="utf-8"))
    return Run(done.returncode, output, told["openai"], told["tests"])
