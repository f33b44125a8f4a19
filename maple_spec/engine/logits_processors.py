"""The steps between logits and choice, in transformers' order: repetition penalty, temperature, top_k, top_p.

They keep the very tokens that transformers' processors of these names keep, with the same probabilities (tests/engine holds
them to it), but never sort the vocabulary: top_k and top_p look at the few best tokens, found by the maxima of columns.

Logits are float32 arrays [vocab_size], in NumPy, whose calls cost a fraction of torch's at these sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

# How many of the best tokens top_p looks at first; a trained model's nucleus is nearly always among them.
_FIRST_LOOK = 256

# From this size on, looking at maxima first is faster than looking at all.
_LARGE = 8192
_COLUMN = 64  # logits in a column


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens that may be chosen. ids: int64 [n]; weights: float64 [n], in proportion to their probabilities."""

    ids: Ids
    weights: NDArray[np.float64]


class RepetitionPenalty:
    """Divides positive logits of tokens already seen by the penalty, multiplies negative ones; prompt and output count."""

    def __init__(self, penalty: float, prompt_ids: Sequence[int]) -> None:
        """penalty > 0; above 1 it discourages repetition."""
        self._penalty = np.float32(penalty)
        self._ids = np.zeros(64, dtype=np.int64)  # those seen stand first; doubled when full
        self._seen: set[int] = set()
        for token_id in prompt_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        """Count a token as seen."""
        if token_id in self._seen:
            return
        if len(self._seen) == len(self._ids):
            self._ids = np.concatenate([self._ids, self._ids])
        self._ids[len(self._seen)] = token_id
        self._seen.add(token_id)

    def apply(self, logits: Floats) -> None:
        """Change the logits in place."""
        ids = self._ids[: len(self._seen)]
        seen = logits[ids]
        logits[ids] = np.where(seen < 0, seen * self._penalty, seen / self._penalty)


def candidates(logits: Floats, *, temperature: float, top_k: int, top_p: float) -> Candidates:
    """The tokens that top_k and top_p leave, best first where either rules tokens out.

    temperature > 0. top_k: the k best, and those that equal the k-th; 0 is no limit. top_p: the smallest set of best tokens
    whose probability reaches top_p, at least one; 1 is no limit. Tokens whose logit is -inf never count.
    """
    best = logits.max()
    if top_k > 0:
        ids = best_ids(logits, top_k)
        weights = _weights(logits[ids], best, temperature)
        return _nucleus(ids, weights, top_p * float(weights.sum())) if top_p < 1 else Candidates(ids, weights)
    everything = _weights(logits, best, temperature)
    if top_p >= 1:
        return Candidates(np.arange(logits.size), everything)
    threshold = top_p * float(everything.sum())
    look = _FIRST_LOOK
    while True:
        ids = best_ids(logits, look)
        weights = everything[ids]
        if float(weights.sum()) >= threshold or look >= logits.size:
            return _nucleus(ids, weights, threshold)
        look *= 16


def _weights(logits: Floats, best: np.float32, temperature: float) -> NDArray[np.float64]:
    return np.exp((logits - best).astype(np.float64) / temperature)


def _nucleus(ids: Ids, weights: NDArray[np.float64], threshold: float) -> Candidates:
    """The first ids, best first, up to the one with which their weights reach the threshold."""
    kept = int(np.cumsum(weights).searchsorted(threshold)) + 1
    return Candidates(ids[:kept], weights[:kept])


def best_ids(logits: Floats, count: int) -> Ids:
    """The ids of the `count` largest logits and of those that equal the last of them, largest first; -inf is left out."""
    if count < logits.size:
        ids = _no_less_than_best(logits, count)
        values = logits[ids]
        ids = ids[values >= np.partition(values, -count)[-count]]
    else:
        ids = np.arange(logits.size)
    ids = ids[logits[ids] > -np.inf]
    return ids[np.argsort(-logits[ids], kind="stable")]


def _no_less_than_best(logits: Floats, count: int) -> Ids:
    """Ids that hold the `count` best; few more where the vocabulary is large.

    The `count` largest of the columns' maxima are so many logits, so the count-th best of all is no less than their least.
    """
    columns = logits.size // _COLUMN
    if logits.size < _LARGE or columns < count:
        return np.arange(logits.size)
    maxima = logits[: columns * _COLUMN].reshape(_COLUMN, columns).max(axis=0)
    return np.flatnonzero(logits >= np.partition(maxima, -count)[-count])
