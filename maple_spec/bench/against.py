"""Our kernels and llama.cpp in turn on models of the same sizes: a ratio for each pair of figures, since machines drift."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maple_spec.bench.llama_cpp import LlamaCpp
from maple_spec.bench.measure import Plan
from maple_spec.kernels.native import PLANES, ModelWeights, NativeModel

CONTEXT = 128  # of the decoded tokens
PROMPT = 512


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens a second of both, medians, and the ratios ours / theirs of the pairs."""

    figure: str
    ours: float
    theirs: float
    ratio: float
    ratios: list[float]


def compare(weights: ModelWeights, gguf: Path, plan: Plan, progress: Callable[[str], None]) -> dict[str, Any]:
    """Decode at CONTEXT and prefill PROMPT tokens, both engines, plan.rounds times. LlamaCppError where llama.cpp fails."""
    ours = NativeModel(weights, variant=plan.variant, planes=PLANES[plan.activations], threads=plan.threads)
    theirs = LlamaCpp(gguf, threads=plan.threads, context=2 * PROMPT)
    cache = ours.new_cache(2 * PROMPT)
    draw = np.random.default_rng(0)

    def tokens(count: int) -> list[int]:
        drawn: list[int] = draw.integers(0, ours.vocab_size, count).tolist()
        return drawn

    def timed(ids: list[int]) -> float:
        began = time.perf_counter()
        ours.forward(ids, cache)
        return time.perf_counter() - began

    def decode_ours() -> float:
        cache.seek(CONTEXT)
        return plan.tokens / sum(timed([token]) for token in tokens(plan.tokens))

    def decode_theirs() -> float:
        theirs.forget()
        theirs.forward(tokens(CONTEXT))
        return plan.tokens / sum(theirs.forward([token]) for token in tokens(plan.tokens))

    def prefill_ours() -> float:
        cache.reset()
        return PROMPT / timed(tokens(PROMPT))

    def prefill_theirs() -> float:
        theirs.forget()
        return PROMPT / theirs.forward(tokens(PROMPT))

    decode_ours(), decode_theirs()  # first touches
    figures = {
        f"decode at context {CONTEXT}": (decode_ours, decode_theirs),
        f"prefill of {PROMPT} tokens": (prefill_ours, prefill_theirs),
    }
    rates: dict[str, list[tuple[float, float]]] = {figure: [] for figure in figures}
    for number in range(plan.rounds):
        for figure, (of_ours, of_theirs) in figures.items():
            progress(f"round {number + 1} of {plan.rounds}: {figure}")
            rates[figure].append((of_ours(), of_theirs()))
    theirs.close()
    return {"plan": asdict(plan), "comparisons": [asdict(_comparison(*item)) for item in rates.items()]}


def _comparison(figure: str, pairs: list[tuple[float, float]]) -> Comparison:
    ratios = [ours / theirs for ours, theirs in pairs]
    ours, theirs = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    return Comparison(figure, ours, theirs, statistics.median(ratios), ratios)
