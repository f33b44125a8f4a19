"""`maple bench`: makes the model once, measures it, prints tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from maple_spec.bench.measure import Plan, Report, load, measure
from maple_spec.bench.synthetic import Sizes, synthetic_weights
from maple_spec.checkpoints import packed_file
from maple_spec.kernels.dispatch import choose_variant


def bench(
    folder: Path, *, kernels: str, activations: str, threads: int, head_bits: int, contexts: Sequence[int], as_json: bool
) -> int:
    """Measure the kernels on a synthetic model of the published sizes; the model is made in folder where it is not there."""
    console = Console(stderr=as_json)
    variant = choose_variant(kernels)
    if variant is None:
        console.print("maple bench measures the native kernels; this machine has none")
        return 1
    plan = Plan(variant, activations, threads, contexts)
    path = folder / f"published-sizes-{head_bits}-bit-head.maple"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None)
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for part in synthetic_weights(Sizes(), head_bits):
                if isinstance(part, str):
                    progress.update(task, description=f"making the model: {part}")
                else:
                    progress.update(task, description="writing the model")
                    packed_file.write(path, part)
                    del part
        progress.update(task, description="loading")
        weights, seconds = load(path, threads)
        report = measure(weights, plan, seconds, lambda what: progress.update(task, description=what))
    if as_json:
        print(json.dumps(asdict(report), indent=2))
    else:
        _print(console, report)
    return 0


def _print(console: Console, report: Report) -> None:
    plan = report.plan
    title = (
        f"{plan['variant']}, {plan['activations']} activations, {plan['threads']} threads; medians of {plan['rounds']} rounds"
    )
    decode = Table(title=title)
    for heading in ("decode at context", "tokens/s", "MB a token", "read bandwidth, GB/s", "share of it"):
        decode.add_column(heading, justify="right")
    for row in report.decode:
        decode.add_row(
            f"{row['context']:,}",
            f"{row['tokens_per_second']:.1f}",
            f"{row['bytes_per_token'] / 1e6:.0f}",
            f"{row['read_bandwidth'] / 1e9:.1f}",
            f"{row['share_of_bandwidth']:.0%}",
        )
    prefill = Table()
    for heading in ("prefill of tokens", "tokens/s", "seconds to the first token"):
        prefill.add_column(heading, justify="right")
    for row in report.prefill:
        prefill.add_row(f"{row['tokens']:,}", f"{row['tokens_per_second']:.0f}", f"{row['seconds_to_first_token']:.2f}")
    console.print(decode)
    console.print(prefill)
    console.print(f"load {report.load_seconds:.1f} s; resident memory {report.resident_bytes / 1e9:.2f} GB")
