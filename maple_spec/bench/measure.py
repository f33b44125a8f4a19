"""Times decoding, prefill and loading, each beside the machine's own read bandwidth measured in the same moments."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maple_spec.checkpoints import packed_file
from maple_spec.kernels.native import PLANES, ModelWeights, NativeModel, read_memory

_BANDWIDTH_BYTES = 1 << 28
KV_BYTES = 2 * 2  # of a dimension of a position: a key and a value in 16 bits


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    variant: str
    activations: str = "int16"
    threads: int = 2
    contexts: Sequence[int] = (128, 2048, 8192)
    prompts: Sequence[int] = (32, 512, 2048)
    rounds: int = 5
    tokens: int = 16


@dataclass(slots=True)
class Report:
    """All figures: tokens a second, seconds, bytes, and shares of the bandwidth measured beside them. Medians of the rounds."""

    plan: dict[str, Any]
    load_seconds: float
    weights_bytes: int
    decode: list[dict[str, float]] = field(default_factory=list)
    prefill: list[dict[str, float]] = field(default_factory=list)
    resident_bytes: int = 0


def load(path: Path, threads: int) -> tuple[ModelWeights, float]:
    """Read a packed file; the seconds that it took."""
    began = time.perf_counter()
    weights = packed_file.read(path, threads)
    return weights, time.perf_counter() - began


def measure(weights: ModelWeights, plan: Plan, load_seconds: float, progress: Callable[[str], None]) -> Report:
    """Run the plan."""
    model = NativeModel(weights, variant=plan.variant, planes=PLANES[plan.activations], threads=plan.threads)
    report = Report(asdict(plan), load_seconds, weights.bytes_a_token)
    other = np.ones(_BANDWIDTH_BYTES, np.uint8)
    draw = np.random.default_rng(0)
    for context in plan.contexts:
        progress(f"decode at context {context}")
        report.decode.append(_decode(model, plan, context, other))
    for length in plan.prompts:
        progress(f"prefill of {length} tokens")
        report.prefill.append(_prefill(model, plan, length, draw))
    report.resident_bytes = _resident_bytes()
    return report


def bandwidth(memory: NDArray[np.uint8], plan: Plan) -> float:
    """Bytes a second that the threads read."""
    began = time.perf_counter()
    read_memory(memory, variant=plan.variant, threads=plan.threads)
    return memory.nbytes / (time.perf_counter() - began)


def _decode(model: NativeModel, plan: Plan, context: int, other: NDArray[np.uint8]) -> dict[str, float]:
    draw = np.random.default_rng(context)
    cache = model.new_cache(context + plan.tokens + 1)
    cache.seek(context)
    model.forward([1], cache)  # first touch
    rates, shares, available = [], [], []
    moved = model.weights.bytes_a_token + _cache_bytes(model.weights, context)
    for _ in range(plan.rounds):
        before = bandwidth(other, plan)
        cache.seek(context)
        ids = draw.integers(0, model.vocab_size, plan.tokens).tolist()
        began = time.perf_counter()
        for token_id in ids:
            model.forward((token_id,), cache)
        rates.append(plan.tokens / (time.perf_counter() - began))
        available.append(statistics.mean((before, bandwidth(other, plan))))
        shares.append(rates[-1] * moved / available[-1])
    return {
        "context": context,
        "tokens_per_second": statistics.median(rates),
        "bytes_per_token": moved,
        "read_bandwidth": statistics.median(available),
        "share_of_bandwidth": statistics.median(shares),
    }


def _prefill(model: NativeModel, plan: Plan, length: int, draw: np.random.Generator) -> dict[str, float]:
    seconds = []
    for _ in range(max(2, plan.rounds // 2)):
        cache, ids = model.new_cache(length + 1), draw.integers(0, model.vocab_size, length).tolist()
        began = time.perf_counter()
        for start in range(0, length, model.chunk):
            model.forward(ids[start : start + model.chunk], cache)
        seconds.append(time.perf_counter() - began)
    middle = statistics.median(seconds)
    return {"tokens": length, "tokens_per_second": length / middle, "seconds_to_first_token": middle}


def _cache_bytes(weights: ModelWeights, context: int) -> int:
    """Keys and values that a token at this position reads."""
    seen = sum(min(context, layer.window or context) for layer in weights.layers)
    return seen * weights.kv_heads * (weights.head_dim * KV_BYTES + 8)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * 4096
