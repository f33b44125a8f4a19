"""The forward pass of Maple: embedding, layers of attention and mixture of experts, final norm, output head.

    x = embedding[id]
    each layer: h = x + attention(norm(x)); x = h + experts(norm(h))
    logits = norm(x) lm_head^T

One sequence at a time; parameters bear the names of the published BF16 checkpoint.
"""

from __future__ import annotations

from torch import Tensor, nn

from maple_spec.model.attention import Attention, Projection, RMSNorm, Rotation, rotation, visibility
from maple_spec.model.config import ModelConfig
from maple_spec.model.kv_cache import KVCache, LayerCache
from maple_spec.model.moe import MoE


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
        return h + self.mlp(self.post_attention_layernorm(h))


class MapleBody(nn.Module):
    """Everything below the output head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.word_embeddings = Projection(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, token_ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """token_ids int64 [T], at the positions behind the cache's -> normalised hidden states [T, hidden].

        last_only: only the last position's, [1, hidden].
        """
        config, count = self.config, token_ids.shape[0]
        x = nn.functional.embedding(token_ids, self.word_embeddings.weight)
        start = cache.length if cache is not None else 0
        turn = rotation(config, start, count, x.device)
        masks: dict[tuple[int, bool], Tensor | None] = {}
        for index, layer in enumerate(self.layers):
            store = cache.layers[index] if cache is not None else None
            sliding = config.is_sliding(index)
            key = (store.reach if store is not None else 0, sliding)
            if key not in masks:
                masks[key] = visibility(key[0], count, config.window_keys if sliding else None, x.device)
            x = layer(x, turn if config.uses_rope(index) else None, masks[key], store)
        return self.norm(x[-1:] if last_only else x)  # type: ignore[no-any-return]

    def fuse(self) -> None:
        """Lay matrices that are used together out as one. Needed again after parameters were replaced (not: copied into)."""
        for layer in self.layers:
            layer.self_attn.fuse()  # type: ignore[union-attr, operator]
            layer.mlp.fuse()  # type: ignore[union-attr, operator]


class Maple(nn.Module):
    """The whole model. Made with uninitialised weights: copy a checkpoint into the parameters."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = MapleBody(config)
        self.lm_head = Projection(config.vocab_size, config.hidden_size)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.word_embeddings.weight

    def forward(self, token_ids: Tensor, cache: KVCache | None = None, *, last_only: bool = False) -> Tensor:
        """token_ids int64 [T] at the positions behind the cache's -> logits [T, vocab_size], or [1, vocab_size] with last_only.

        Without a cache the tokens are a whole sequence.
        """
        return self.lm_head(self.model(token_ids, cache, last_only=last_only))  # type: ignore[no-any-return]

    def new_cache(self) -> KVCache:
        """An empty cache in the dtype and on the device of the weights."""
        weight = self.lm_head.weight
        return KVCache(self.config, weight.dtype, device=weight.device)
