"""The command line: `maple serve` and `maple spec`, also as `python -m maple_spec`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from maple_spec import __version__
from maple_spec.errors import MapleError, SettingsError
from maple_spec.settings import Settings, allowed_range, read_settings, shown_default, variable


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = vars(_parser().parse_args(argv))
    run = arguments.pop("run")
    status: int = run(**arguments)
    return status


def serve(**flags: str | None) -> int:
    """Serve until a signal comes. Flags come before the environment; a bad value or model ends it with status 1."""
    try:
        settings = read_settings(**flags)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    import uvicorn

    from maple_spec.server.app import create_app

    failed = False

    def load_failed() -> None:  # the engine has logged the line that says why
        nonlocal failed
        failed = server.should_exit = True

    config = uvicorn.Config(
        create_app(settings, load_failed=load_failed),
        host=settings.host,
        port=settings.port,
        lifespan="on",
        log_level=settings.log_level,
        access_log=False,  # our own line names the request's id
        timeout_graceful_shutdown=math.ceil(settings.shutdown_grace) + 5,  # the engine ends streams before this
    )
    server = uvicorn.Server(config)
    # The server has ended in good order when it passes the signal on, and said why when it exits for want of a port.
    with suppress(KeyboardInterrupt, SystemExit):
        server.run()
    if not failed and not server.started:
        print(f"nothing can listen on {variable('host')}={settings.host} {variable('port')}={settings.port}", file=sys.stderr)
    return 0 if server.started and not failed else 1


def spec() -> int:
    """Print where the installed openapi.yaml lies."""
    from maple_spec.server.contract import spec_path

    print(spec_path())
    return 0


def bench(
    folder: str,
    *,
    kernels: str,
    activations: str,
    threads: int,
    head_bits: int,
    contexts: Sequence[int],
    against: str | None,
    server: bool,
    json: bool,
) -> int:
    """Measure decoding, prefill and loading with random weights of the published sizes."""
    from maple_spec.bench.command import Served
    from maple_spec.bench.command import bench as run
    from maple_spec.kernels.dispatch import default_threads

    threads = threads or default_threads(2**40)
    served: Served | None = None
    if server:
        from maple_spec.server.stopwatch import serve_and_measure

        served = serve_and_measure
    try:
        return run(
            Path(folder).expanduser(),
            kernels=kernels,
            activations=activations,
            threads=threads,
            head_bits=head_bits,
            contexts=contexts,
            against=against,
            served=served,
            as_json=json,
        )
    except MapleError as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="maple", description="An OpenAI-compatible server for ternary Maple models.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    serving = commands.add_parser("serve", help="serve a model over the OpenAI API", description=serve.__doc__)
    serving.set_defaults(run=serve)
    for name, field in Settings.model_fields.items():
        default = shown_default(field)
        text = f"{field.description} {variable(name)}: {allowed_range(field)}" + (f", default {default}" if default else "")
        # Optional values so that a switch reads as one: --strict-model means --strict-model true.
        switch = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        serving.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=text.replace("%", "%%"), **switch)  # type: ignore[arg-type]
    benching = commands.add_parser("bench", help="measure the kernels on a model of the published sizes")
    benching.set_defaults(run=bench)
    benching.add_argument("--folder", default="~/.cache/maple/bench", help="where the model lies, or is made: 5 GB")
    benching.add_argument("--kernels", default="auto", help="instruction set, by default the best that the machine has")
    benching.add_argument("--activations", default="int16", choices=["int16", "int8"])
    benching.add_argument("--threads", type=int, default=0, help="by default one a core")
    benching.add_argument("--head-bits", type=int, default=4, choices=[4, 8, 16])
    benching.add_argument("--contexts", type=int, nargs="+", default=[128, 2048, 8192])
    instead = benching.add_mutually_exclusive_group()
    instead.add_argument("--against", choices=["llama.cpp"], help="instead: both in turn (needs the extra `bench`)")
    instead.add_argument("--server", action="store_true", help="instead: what the server adds to a decoded token")
    benching.add_argument("--json", action="store_true", help="print the figures as JSON")
    printing = commands.add_parser("spec", help="print where the installed openapi.yaml lies", description=spec.__doc__)
    printing.set_defaults(run=spec)
    return parser
