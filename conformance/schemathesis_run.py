"""One run of Schemathesis against a server, by its command line, and what it reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

# Every phase and every check is on unless it is named here. Streams are read to their end: by default 20 events are.
CONFIG = """\
workers = 1
hooks = "conformance.schemathesis_hooks"
continue-on-failure = true
request-timeout = 60
max-stream-events = 1000000
cache.enabled = false
warnings.display = [{warnings}]
warnings.fail-on = true
generation.database = "none"
generation.max-examples = {max_examples}
generation.deterministic = {deterministic}
phases.stateful.generation.max-examples = 20
checks.max_response_time = 60
"""

WITH_KEY = """
auth.openapi.bearerAuth.bearer = "${SCHEMATHESIS_KEY}"
"""

# Without a key every request is served: there is no auth to be ignored and no header to be missed.
WITHOUT_KEY = """
generation.with-security-parameters = false
checks.ignored_auth.enabled = false
checks.missing_required_header.enabled = false
"""

# All that version 4.32 has; a warning of any of them fails the run.
WARNINGS = (
    "missing_auth",
    "missing_test_data",
    "base_url_mismatch",
    "validation_mismatch",
    "missing_deserializer",
    "unused_openapi_auth",
    "unsupported_regex",
    "method_not_allowed",
    "constants_extraction",
    "unmatched_filter",
    "unresolvable_reference",
    "low_valid_rate",
    "rate_limited",
    "dictionary_mismatch",
    "timeout_units",
)


def spec_path() -> Path:
    """The document that the server is held to: CONFORMANCE_SPEC, or the one beside this folder."""
    return Path(os.environ.get("CONFORMANCE_SPEC", ROOT / "openapi.yaml"))


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    checks: how often each check judged an answer, by phase. answers: how often each (operation, status, media type) was seen.
    """

    exit_code: int
    output: str
    report: dict[str, Any]
    checks: dict[str, Counter[str]]
    answers: Counter[tuple[str, int, str]]


def run(
    url: str, folder: Path, *, key: str | None, max_examples: int, seed: int | None = None, options: tuple[str, ...] = ()
) -> Run:
    """Judge the server at url; folder takes the reports. seed: None draws the same examples every time."""
    config = folder / "schemathesis.toml"
    head = CONFIG.format(
        warnings=", ".join(f'"{name}"' for name in WARNINGS),
        max_examples=max_examples,
        deterministic="true" if seed is None else "false",
    )
    config.write_text(head + (WITHOUT_KEY if key is None else WITH_KEY), encoding="utf-8")
    report, events = folder / "report.json", folder / "events.ndjson"
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", str(spec_path()), "--url", url]
    command += ["--no-color", "--report-json-path", str(report), "--report-ndjson-path", str(events), *options]
    command += [] if seed is None else ["--seed", str(seed)]
    environment = {**os.environ, **({} if key is None else {"SCHEMATHESIS_KEY": key})}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert report.exists(), output
    return Run(done.returncode, output, json.loads(report.read_text(encoding="utf-8")), *_seen(events))


def _seen(events: Path) -> tuple[dict[str, Counter[str]], Counter[tuple[str, int, str]]]:
    checks: dict[str, Counter[str]] = {}
    answers: Counter[tuple[str, int, str]] = Counter()
    for line in events.read_text(encoding="utf-8").splitlines():
        finished = json.loads(line).get("ScenarioFinished")
        if finished is None:
            continue
        recorder = finished["recorder"]
        judged = checks.setdefault(finished["phase"], Counter())
        for results in recorder.get("checks", {}).values():
            judged.update(result["name"] for result in results)
        for case, interaction in recorder.get("interactions", {}).items():
            response = interaction.get("response")
            if response is not None:
                asked = recorder["cases"][case]["value"]
                media_type = response["headers"].get("content-type", [""])[0].partition(";")[0]
                answers[f"{asked['method']} {asked['path']}", response["status_code"], media_type] += 1
    return checks, answers
