"""The processors between logits and choice, in transformers' order: repetition penalty, temperature, top_k, top_p.

Each takes float32 logits [vocab_size] and may change them in place; a token that is ruled out has the logit -inf. They keep the
very tokens that transformers' processors of the same names keep (tests/engine holds them to it), without sorting the
vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

# Below this a temperature is greedy: dividing by it would only push all but the best token out of float32's range.
GREEDY_TEMPERATURE = 1e-5

# How many of the best tokens top_p looks at first; a trained model's nucleus is nearly always among them.
_FIRST_LOOK = 256


class RepetitionPenalty:
    """Divides positive logits of tokens already seen by the penalty, multiplies negative ones; prompt and output count."""

    def __init__(self, penalty: float, prompt_ids: Sequence[int]) -> None:
        """penalty > 0; above 1 it discourages repetition."""
        self._penalty = penalty
        self._seen = set(prompt_ids)
        self._seen_ids = torch.tensor(sorted(self._seen), dtype=torch.long)

    def add(self, token_id: int) -> None:
        """Count a generated token as seen."""
        if token_id not in self._seen:
            self._seen.add(token_id)
            self._seen_ids = torch.cat([self._seen_ids, torch.tensor([token_id])])

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        seen = logits[self._seen_ids]
        logits[self._seen_ids] = torch.where(seen < 0, seen * self._penalty, seen / self._penalty)
        return logits


def keep_top_k(logits: torch.Tensor, top_k: int) -> torch.Tensor:
    """Rule out all below the k-th best logit; ties with it stay. top_k >= 1, clamped to the vocabulary."""
    kth_best = torch.topk(logits, min(top_k, logits.shape[-1])).values[-1]
    return logits.masked_fill_(logits < kth_best, -math.inf)


def keep_top_p(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of best tokens whose probability reaches top_p, and always the best one.

    A token stays when those better than it have less than top_p together. Looks at the best tokens alone and widens the look
    only where they do not reach top_p.
    """
    probabilities = torch.softmax(logits, dim=-1)
    size = probabilities.shape[-1]
    look = min(_FIRST_LOOK, size)
    while True:
        best, ids = torch.topk(probabilities, look)
        before = torch.cumsum(best, dim=-1) - best
        kept = before < top_p
        kept[0] = True
        if look == size or not bool(kept[-1]):
            break
        look = min(look * 16, size)
    ids = ids[kept]
    kept_logits = logits[ids]
    return logits.fill_(-math.inf).index_copy_(0, ids, kept_logits)
