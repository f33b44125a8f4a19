"""`maple bench`: makes the model once, measures it, prints tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from maple_spec.bench.measure import Plan, Report, load, measure
from maple_spec.bench.synthetic import Sizes, synthetic_weights
from maple_spec.checkpoints import packed_file
from maple_spec.kernels.dispatch import choose_variant
from maple_spec.kernels.native import ModelWeights

Say = Callable[[str], None]
Served = Callable[[ModelWeights, Plan, Say], dict[str, Any]]


def bench(
    folder: Path,
    *,
    kernels: str,
    activations: str,
    threads: int,
    head_bits: int,
    contexts: Sequence[int],
    against: str | None = None,
    served: Served | None = None,
    as_json: bool,
) -> int:
    """Measure the kernels on a synthetic model of the published sizes; the model is made in folder where it is not there.

    against: "llama.cpp" measures both in turn, LlamaCppError where it is missing; served: what serving adds to a token.
    """
    console = Console(stderr=as_json)
    variant = choose_variant(kernels)
    if variant is None:
        console.print("maple bench measures the native kernels; this machine has none")
        return 1
    plan = Plan(variant, activations, threads, contexts)
    path = folder / f"published-sizes-{head_bits}-bit-head.maple"
    with _progress(console) as say:
        _make(path, head_bits, say)
        if against:
            from maple_spec.bench.against import compare
            from maple_spec.bench.llama_cpp import write_gguf

            gguf = folder / "published-sizes.gguf"
            if not gguf.exists():
                for part in write_gguf(gguf, Sizes()):
                    say(f"making the GGUF file: {part}")
        say("loading")
        weights, seconds = load(path, threads)
        if against:
            figures = compare(weights, gguf, plan, say)
        elif served:
            figures = served(weights, plan, say)
        else:
            figures = asdict(measure(weights, plan, seconds, say))
    if as_json:
        print(json.dumps(figures, indent=2))
    else:
        for line in _against(figures) if against else _served(figures) if served else _tables(Report(**figures)):
            console.print(line)
    return 0


@contextmanager
def _progress(console: Console) -> Iterator[Say]:
    """A line that says what is being done, and for how long."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None)
        yield lambda what: progress.update(task, description=what)


def _make(path: Path, head_bits: int, say: Say) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    for part in synthetic_weights(Sizes(), head_bits):
        if isinstance(part, str):
            say(f"making the model: {part}")
        else:
            say("writing the model")
            packed_file.write(path, part)
            del part


def _title(plan: dict[str, Any]) -> str:
    return (
        f"{plan['variant']}, {plan['activations']} activations, {plan['threads']} threads; medians of {plan['rounds']} rounds"
    )


def _table(title: str | None, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _tables(report: Report) -> Iterator[Table | str]:
    yield _table(
        _title(report.plan),
        ("decode at context", "tokens/s", "MB a token", "read bandwidth, GB/s", "share of it"),
        [
            (
                f"{row['context']:,}",
                f"{row['tokens_per_second']:.1f}",
                f"{row['bytes_per_token'] / 1e6:.0f}",
                f"{row['read_bandwidth'] / 1e9:.1f}",
                f"{row['share_of_bandwidth']:.0%}",
            )
            for row in report.decode
        ],
    )
    yield _table(
        None,
        ("prefill of tokens", "tokens/s", "seconds to the first token"),
        [
            (f"{row['tokens']:,}", f"{row['tokens_per_second']:.0f}", f"{row['seconds_to_first_token']:.2f}")
            for row in report.prefill
        ],
    )
    yield f"load {report.load_seconds:.1f} s; resident memory {report.resident_bytes / 1e9:.2f} GB"


def _against(figures: dict[str, Any]) -> Iterator[Table | str]:
    yield _table(
        _title(figures["plan"]),
        ("tokens/s", "ours", "llama.cpp", "ratio", "pair by pair"),
        [
            (
                row["figure"],
                f"{row['ours']:.1f}",
                f"{row['theirs']:.1f}",
                f"{row['ratio']:.2f}",
                " ".join(f"{ratio:.2f}" for ratio in row["ratios"]),
            )
            for row in figures["comparisons"]
        ],
    )


def _served(figures: dict[str, Any]) -> Iterator[Table | str]:
    times = figures["served"]
    yield _table(
        _title(figures["plan"]),
        ("a decoded token", "milliseconds"),
        [("the kernels alone", f"{times['alone']:.2f}"), ("over HTTP, streamed", f"{times['streamed']:.2f}")],
    )
    yield f"the server adds {times['added']:.1%}"
