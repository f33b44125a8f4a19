"""Chooses the next token of one sequence from its logits.

With a seed the choice is the one that transformers' generate() makes after torch.manual_seed(seed): the same processors in the
same order and the same draw from the same generator (tests/engine holds it to that).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from maple_spec.engine.logits_processors import GREEDY_TEMPERATURE, RepetitionPenalty, keep_top_k, keep_top_p
from maple_spec.types import SamplingParams


class Sampler:
    """The choice of tokens for one sequence; made when the sequence runs, so that no other request shares its randomness."""

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], *, unused_ids: torch.Tensor) -> None:
        """unused_ids: int64 ids that have no token and are never chosen."""
        self._params = params
        self._unused_ids = unused_ids
        self._greedy = params.temperature < GREEDY_TEMPERATURE
        self._penalty = RepetitionPenalty(params.repetition_penalty, prompt_ids) if params.repetition_penalty != 1.0 else None
        self._generator: torch.Generator | None = None
        if not self._greedy:
            self._generator = torch.Generator()
            if params.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(params.seed % 2**64)

    def next_token(self, logits: torch.Tensor) -> int:
        """The next token id for float32 logits [vocab_size], which are changed in place; ArithmeticError where they are NaN."""
        logits[self._unused_ids] = -math.inf
        if self._penalty is not None:
            logits = self._penalty(logits)
        best_logit, best_id = torch.max(logits, dim=-1)
        if not math.isfinite(best_logit.item()):
            raise ArithmeticError(f"the best logit is {best_logit.item()}")
        token_id = int(best_id.item()) if self._greedy else self._draw(logits)
        if self._penalty is not None:
            self._penalty.add(token_id)
        return token_id

    def _draw(self, logits: torch.Tensor) -> int:
        params = self._params
        if params.temperature != 1.0:
            logits = logits.div_(params.temperature)
        if params.top_k > 0:
            logits = keep_top_k(logits, params.top_k)
        if params.top_p < 1.0:
            logits = keep_top_p(logits, params.top_p)
        probabilities = torch.softmax(logits, dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=self._generator).item())
