"""Chooses the next token of one sequence from its logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from maple_spec.engine.logits_processors import Floats, Ids, RepetitionPenalty, candidates
from maple_spec.types import SamplingParams

# Below this a temperature is greedy: dividing by it would only push all but the best token out of the numbers' range.
GREEDY_TEMPERATURE = 1e-5


class Sampler:
    """The choice of tokens for one sequence; made when the sequence runs, so that no other request shares its randomness."""

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], *, unused_ids: Ids) -> None:
        """unused_ids: int64 ids that have no token and are never chosen."""
        self._params = params
        self._unused_ids = unused_ids
        self._penalty = RepetitionPenalty(params.repetition_penalty, prompt_ids) if params.repetition_penalty != 1.0 else None
        self._generator: torch.Generator | None = None
        if params.temperature >= GREEDY_TEMPERATURE:
            self._generator = torch.Generator()
            if params.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(params.seed % 2**64)

    def next_token(self, logits: torch.Tensor) -> int:
        """The next token id for logits, float32 [vocab_size] on the CPU, which are changed in place.

        Raises ArithmeticError where the logits are not numbers: the model is broken.
        """
        array: Floats = logits.numpy()
        array[self._unused_ids] = -np.inf
        if self._penalty is not None:
            self._penalty.apply(array)
        best_id = int(array.argmax())
        if not np.isfinite(array[best_id]):
            raise ArithmeticError(f"the largest logit is {array[best_id]}")
        token_id = best_id if self._generator is None else self._draw(array, self._generator)
        if self._penalty is not None:
            self._penalty.add(token_id)
        return token_id

    def _draw(self, logits: Floats, generator: torch.Generator) -> int:
        params = self._params
        left = candidates(logits, temperature=params.temperature, top_k=params.top_k, top_p=params.top_p)
        # The point of the unit interval that the generator gives, found in the candidates laid end to end; one draw a token,
        # whatever the number of candidates is. A product that rounds up to the whole length belongs to the last of them.
        ends = np.cumsum(left.weights)
        point = torch.rand((), dtype=torch.float64, generator=generator).item() * ends[-1]
        return int(left.ids[min(int(ends.searchsorted(point, side="right")), int(ends.searchsorted(ends[-1])))])
