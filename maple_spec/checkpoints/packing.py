"""A checkpoint's weights as the native kernels take them: packed codes straight from the files, never the float32 model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from maple_spec.checkpoints.tensor_files import TensorFiles, bfloat16_bits
from maple_spec.kernels.native import LayerWeights, ModelWeights
from maple_spec.kernels.packed import AffineRows, Floats, Halves, PackedTernary, Words, pack_head, pack_ternary_rows
from maple_spec.model.config import ModelConfig


class Reader(Protocol):
    """A format: gives parameters by the names of the BF16 layout, in float32 or packed."""

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The parameter of that name in float32; it must have that shape."""
        ...

    def read_ternary(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Words, Floats]:
        """Words [names, rows, columns / 16] and row scales [names, rows]."""
        ...

    def read_rows(self, name: str, shape: tuple[int, int]) -> AffineRows | Halves:
        """An embedding or a head."""
        ...


class Packing:
    """Packs what a reader gives; files: where it reads, for errors."""

    def __init__(self, reader: Reader, files: TensorFiles, config: ModelConfig) -> None:
        self._reader, self._files, self._config = reader, files, config

    def weights(self) -> ModelWeights:
        """All of them. Raises CheckpointError, one line naming file and tensor."""
        config = self._config
        rows = (config.vocab_size, config.hidden_size)
        embedding = self._reader.read_rows("model.word_embeddings.weight", rows)
        head = embedding if config.tie_word_embeddings else self._reader.read_rows("lm_head.weight", rows)
        return ModelWeights(
            layers=[self._layer(index) for index in range(config.num_hidden_layers)],
            embedding=embedding,
            head=pack_head(head) if isinstance(head, AffineRows) else head,
            final_norm=self._vector("model.norm", config.hidden_size),
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            width=config.moe_intermediate_size,
            experts=config.num_experts,
            experts_per_token=config.num_experts_per_tok,
            rotary_dim=config.rotary_dim,
            norm_topk_prob=config.norm_topk_prob,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_theta,
            swiglu_limit=config.swiglu_limit,
        )

    def _layer(self, index: int) -> LayerWeights:
        config, at = self._config, f"model.layers.{index}"
        hidden, width, dim = config.hidden_size, config.moe_intermediate_size, config.head_dim
        queries, keys = config.num_attention_heads * dim, config.num_key_value_heads * dim
        attention = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        router = f"{at}.mlp.gate.weight"
        return LayerWeights(
            qkv=_below([self._matrices([f"{at}.self_attn.{name}.weight"], (rows, hidden)) for name, rows in attention.items()]),
            out=_below([self._matrices([f"{at}.self_attn.o_proj.weight"], (hidden, queries))]),
            gate_up=_below([self._experts(at, name, (width, hidden)) for name in ("gate_proj", "up_proj")]),
            down=_below([self._experts(at, "down_proj", (hidden, width))]),
            router=bfloat16_bits(self._reader.read(router, (config.num_experts, hidden)), self._files.where(router)),
            attention_norm=self._vector(f"{at}.input_layernorm", hidden),
            expert_norm=self._vector(f"{at}.post_attention_layernorm", hidden),
            query_gain=self._vector(f"{at}.self_attn.q_norm", dim),
            key_gain=self._vector(f"{at}.self_attn.k_norm", dim),
            window=config.window(index),
            turns=config.uses_rope(index),
        )

    def _experts(self, at: str, name: str, shape: tuple[int, int]) -> tuple[Words, Floats]:
        return self._matrices([f"{at}.mlp.experts.{i}.{name}.weight" for i in range(self._config.num_experts)], shape)

    def _matrices(self, names: Sequence[str], shape: tuple[int, int]) -> tuple[Words, Floats]:
        return self._reader.read_ternary(names, shape)

    def _vector(self, name: str, size: int) -> Floats:
        return np.ascontiguousarray(self._reader.read(f"{name}.weight", (size,)).numpy(), dtype=np.float32)


def _below(parts: Sequence[tuple[Words, Floats]]) -> PackedTernary:
    """Matrices whose rows stand below each other, packed as one."""
    words, scales = zip(*parts, strict=True)
    return pack_ternary_rows(np.concatenate(words, axis=1), np.concatenate(scales, axis=1))
