"""Maple whole: the layers and the output head, and the choice between the general forward pass and the decoding step.

One sequence at a time; parameters bear the names of the published BF16 checkpoint.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maple_spec.model.attention import Projection
from maple_spec.model.body import MapleBody
from maple_spec.model.config import ModelConfig
from maple_spec.model.decode import DecodeStep
from maple_spec.model.kv_cache import KVCache


class Maple(nn.Module):
    """The whole model. Made with uninitialised weights: copy a checkpoint into the parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = MapleBody(config)
        self.lm_head = Projection(config.vocab_size, config.hidden_size)
        self._decode_step: DecodeStep | None = None
        self.tie()

    def forward(self, token_ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """token_ids int64 [T] at the positions behind the cache's -> logits [T, vocab_size], or [1, vocab_size] with last_only.

        Without a cache the tokens are a whole sequence. A single token takes the fast step once prepare_decoding was called.
        """
        if self._decode_step is not None and cache is not None and token_ids.shape[0] == 1:
            return self._decode_step(int(token_ids), cache).unsqueeze(0)
        return self.lm_head(self.model(token_ids, cache, last_only=last_only))  # type: ignore[no-any-return]

    def tie(self) -> None:
        """Where the config ties them, make the head's matrix the embedding's; needed again after the embedding was replaced."""
        if self.config.tie_word_embeddings:
            self.lm_head.weight = self.model.word_embeddings.weight

    def new_cache(self) -> KVCache:
        """An empty cache in the dtype and on the device of the weights."""
        weight = self.lm_head.weight
        return KVCache(self.config, weight.dtype, device=weight.device)

    def prepare_decoding(self) -> None:
        """From now on run single tokens through the fast step, where the weights are float32 on the CPU.

        Call it when the weights are finished: gradients end here, and weights loaded later need another call.
        """
        weight = self.lm_head.weight
        if weight.dtype == torch.float32 and weight.device.type == "cpu":
            self.requires_grad_(False)
            self._decode_step = DecodeStep(self.config, self.model, self.lm_head)
