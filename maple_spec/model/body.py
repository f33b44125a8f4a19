"""The layers of Maple between token ids and the output head.

x = embedding[id]
each layer: h = x + attention(norm(x)); x = h + experts(norm(h))
hidden states = norm(x)
"""

from __future__ import annotations

from torch import Tensor, nn

from maple_spec.model.attention import Attention, RMSNorm, Rotation, visibility
from maple_spec.model.config import ModelConfig
from maple_spec.model.kv_cache import KVCache, LayerCache
from maple_spec.model.moe import MoE


class Embedding(nn.Embedding):
    """A row a token; the memory is not initialised, since a checkpoint is copied into it."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class DecoderLayer(nn.Module):
    """One layer: two pre-norm residual branches."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MoE(config)

    def forward(self, x: Tensor, turn: Rotation | None, seen: Tensor | None, cache: LayerCache | None) -> Tensor:
        """x [T, hidden] -> [T, hidden]."""
        h = x + self.self_attn(self.input_layernorm(x), turn, seen, cache)
        return h + self.mlp(self.post_attention_layernorm(h))  # type: ignore[no-any-return]


class MapleBody(nn.Module):
    """Everything below the output head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, token_ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """token_ids int64 [T], at the positions behind the cache's -> normalised hidden states [T, hidden].

        last_only: only the last position's, [1, hidden].
        """
        config, count = self.config, token_ids.shape[0]
        x = self.word_embeddings(token_ids)
        turn = Rotation.of(config, cache.length if cache is not None else 0, count, x.device)
        masks: dict[tuple[int, int | None], Tensor | None] = {}
        for index, layer in enumerate(self.layers):
            store = cache.layers[index] if cache is not None else None
            reach, window = store.reach if store is not None else 0, config.window(index)
            if (reach, window) not in masks:
                masks[reach, window] = visibility(reach, count, window, x.device)
            x = layer(x, turn if config.uses_rope(index) else None, masks[reach, window], store)
        return self.norm(x[-1:] if last_only else x)  # type: ignore[no-any-return]

    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers in order."""
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
