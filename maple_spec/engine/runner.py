"""What the engine's worker thread does with a sequence that has the slot: prefill in chunks, then token after token."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from maple_spec.engine.language_model import ContextFull, LoadedModel
from maple_spec.engine.sampler import Sampler
from maple_spec.engine.sequence import Sequence
from maple_spec.errors import ApiError, GenerationFailed
from maple_spec.types import FinishReason, TokenEvent

logger = logging.getLogger("maple_spec.engine")


class Runner:
    """Generates sequences with one model, one after the other."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._model = loaded.language_model
        self._eos = frozenset(self._model.eos_token_ids)
        self._unused = np.array(loaded.tokenizer.unused_ids(self._model.vocab_size), dtype=np.int64)

    def run(self, sequence: Sequence) -> TokenEvent | ApiError | None:
        """Generate; return the last event, the error that ended it, or None where it was aborted. Never raises."""
        if sequence.aborted.is_set():
            return None
        try:
            with torch.inference_mode():
                return self._generate(sequence)
        except ApiError as error:
            return error
        except ContextFull:
            return TokenEvent(None, FinishReason.LENGTH)
        except Exception:
            logger.exception("request %s: the model failed", sequence.request_id)
            return GenerationFailed("the model failed while generating")

    def _generate(self, sequence: Sequence) -> TokenEvent | None:
        model, prompt_ids = self._model, sequence.prompt_ids
        cache = model.new_cache(prompt_ids)
        sequence.aborted.tell(lambda: model.interrupt(cache))
        cached = model.cached_tokens(cache)
        sequence.put_started(cached)
        limit = min(sequence.sampling.max_new_tokens, model.context_length - len(prompt_ids))
        if limit < 1:
            return TokenEvent(None, FinishReason.LENGTH)
        for start in range(cached, len(prompt_ids), model.prefill_chunk):
            if self._aborted(sequence, cache):
                return None
            logits = model.forward(prompt_ids[start : start + model.prefill_chunk], cache)
        sampler = Sampler(sequence.sampling, prompt_ids, unused_ids=self._unused)
        for count in range(1, limit + 1):
            token_id = sampler.next_token(logits)
            if token_id in self._eos:
                return TokenEvent(token_id, FinishReason.STOP)
            if count == limit:
                break
            sequence.put(TokenEvent(token_id))
            if self._aborted(sequence, cache):
                return None
            logits = model.forward((token_id,), cache)
        return TokenEvent(token_id, FinishReason.LENGTH)

    def _aborted(self, sequence: Sequence, cache: Any) -> bool:
        """Whether the sequence is aborted before the model's next call, for which the model may want to pause."""
        seconds = self._model.pause(cache)
        return sequence.aborted.wait(seconds) if seconds > 0 else sequence.aborted.is_set()
