"""Maple as the engine's LanguageModel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from maple_spec import checkpoints
from maple_spec.engine.language_model import LoadedModel
from maple_spec.model import KVCache, Maple, ModelConfig
from maple_spec.text.chat_template import ChatTemplate
from maple_spec.text.tokenizer import Tokenizer

# What a slow core does in a tenth of a second at the least: multiplications of weights, in plain float32.
_WEIGHTS_PER_CHUNK = 500_000_000

_MODEL_FILES = (".safetensors", ".json", ".jinja")


class MapleLanguageModel:
    """Serves a Maple, in plain PyTorch."""

    def __init__(self, model: Maple, eos_token_ids: Sequence[int]) -> None:
        """model: with its weights loaded."""
        self._model = model
        self.vocab_size = model.config.vocab_size
        self.context_length = model.config.max_position_embeddings
        self.eos_token_ids = tuple(eos_token_ids)
        self.prefill_chunk = prefill_chunk(model.config)

    def new_cache(self, prompt_ids: Sequence[int]) -> KVCache:
        """An empty cache; it grows as tokens come."""
        return self._model.new_cache()

    def pause(self, cache: KVCache) -> float:
        """None: it computes as fast as it can."""
        return 0.0

    def forward(self, token_ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """The logits behind the last token, float32 [vocab_size]."""
        logits: torch.Tensor = self._model(torch.tensor(token_ids), cache, last_only=True)
        return logits[-1].float()


def prefill_chunk(config: ModelConfig) -> int:
    """How many prompt tokens go into one forward call: a power of two from 16 to 512, by the weights that a token meets."""
    attention = config.hidden_size * config.head_dim * 2 * (config.num_attention_heads + config.num_key_value_heads)
    experts = 3 * config.hidden_size * config.moe_intermediate_size * config.num_experts_per_tok
    per_token = config.num_hidden_layers * (attention + experts)
    whole_log2 = (_WEIGHTS_PER_CHUNK // per_token).bit_length() - 1
    return 1 << min(9, max(4, whole_log2))


def load_maple(path_or_id: str | Path | None = None, *, window_keys: int | None = None) -> LoadedModel:
    """Load a checkpoint for serving; None or "" is the embedded maple-tiny. CheckpointError says what is wrong with it."""
    checkpoint = checkpoints.load(path_or_id, window_keys=window_keys)
    tokenizer = Tokenizer.from_file(checkpoint.tokenizer_json)
    return LoadedModel(
        language_model=MapleLanguageModel(checkpoint.model, checkpoint.eos_token_ids),
        tokenizer=tokenizer,
        chat_template=ChatTemplate(checkpoint.chat_template, tokenizer.control_tokens),
        name=checkpoint.name,
        device="cpu",
        dtype_label=checkpoint.dtype_label,
        attention_label=checkpoint.attention_label,
        files=tuple(sorted(file for file in checkpoint.tokenizer_json.parent.iterdir() if file.suffix in _MODEL_FILES)),
    )
