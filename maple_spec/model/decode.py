"""One decoding step of the whole model on plain vectors: the fast twin of the forward pass for a single token.

At one token the arithmetic is a handful of matrix-vector products, and calling many small operations costs more than they do.
So matrices that meet the same vector are laid side by side (the published parameters become views of them), the norms' scales
ride along as factors of the products, and the experts' matrices are reached without gathering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from maple_spec.model.attention import Projection, Rotation
from maple_spec.model.body import DecoderLayer, MapleBody
from maple_spec.model.config import ModelConfig
from maple_spec.model.kv_cache import KVCache

ROTATION_BLOCK = 1024  # positions whose turns are computed at once
_UNREAD = torch.zeros(1)  # what beta = 0 multiplies


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one layer's step reads, each matrix with the row vector that it is multiplied with ready beside it."""

    attention_norm: Tensor  # [hidden]
    qkv: Tensor  # [(heads + 2 kv_heads) * head_dim, hidden]
    qk_gain: Tensor  # [heads + kv_heads, head_dim], with the constant factors of norm and softmax folded in
    uses_rope: bool
    out: Tensor  # [hidden, heads * head_dim]
    expert_norm: Tensor  # [hidden]
    router: Tensor  # [experts, hidden]
    gate_up: list[Tensor]  # each [2 * width, hidden]
    down: list[Tensor]  # each [hidden, width]


class DecodeStep:
    """Runs single tokens through float32 weights on the CPU.

    Shares the matrices' memory with the parameters. Made from finished weights: what is loaded afterwards needs a new one.
    Keeps no state of a sequence, the cache does; one thread at a time may call it.
    """

    def __init__(self, config: ModelConfig, body: MapleBody, lm_head: Projection) -> None:
        self._config = config
        self._embedding = body.word_embeddings.weight.data
        self._norm = body.norm.weight.data
        self._head = lm_head.weight.data
        self._heads = config.num_attention_heads
        self._qk_heads = config.num_attention_heads + config.num_key_value_heads
        # |x| / sqrt(d) with eps under the root is hypot(|x|, sqrt(d eps)) / sqrt(d).
        self._qk_floor = torch.tensor(math.sqrt(config.head_dim * config.rms_norm_eps))
        self._block_start = -ROTATION_BLOCK
        self._block = Rotation.of(config, 0, 0, torch.device("cpu"))
        # Outside inference mode, so that the parameters stay usable outside it.
        with torch.inference_mode(False), torch.no_grad():
            self._layers = [_prepare(config, index, layer) for index, layer in enumerate(body.decoder_layers())]

    def __call__(self, token_id: int, cache: KVCache) -> Tensor:
        """The logits behind the token, float32 [vocab_size]; the cache grows by one position."""
        config = self._config
        cos, sin, partner = self._turn(cache.length)
        active = torch.empty(config.num_experts_per_tok, 2 * config.moe_intermediate_size)
        gate, up = active[:, : config.moe_intermediate_size], active[:, config.moe_intermediate_size :]
        active_rows, gate_rows = list(active), list(gate)
        x = self._embedding[token_id]
        for layer, store in zip(self._layers, cache.layers, strict=True):
            h, scale = self._norm_of(x, layer.attention_norm)
            heads = _product(layer.qkv, h, scale).view(-1, config.head_dim)
            qk = heads[: self._qk_heads]
            qk.div_(torch.hypot(torch.linalg.vector_norm(qk, dim=-1, keepdim=True), self._qk_floor)).mul_(layer.qk_gain)
            if layer.uses_rope:
                turned = qk.index_select(1, partner)
                qk.mul_(cos).addcmul_(turned, sin)
            keys, values = store.append_one(heads[self._heads :])
            queries = heads[: self._heads].view(keys.shape[0], -1, config.head_dim)
            mixed = torch.bmm(torch.bmm(queries, keys.mT).softmax(-1), values)
            x = torch.addmv(x, layer.out, mixed.view(-1))

            h, scale = self._norm_of(x, layer.expert_norm)
            topk_ids, topk_weights = self._route(_product(layer.router, h, scale))
            for row, expert in zip(active_rows, topk_ids, strict=True):
                torch.addmv(row, layer.gate_up[expert], h, beta=0, alpha=scale, out=row)
            functional.silu(gate.clamp_(max=config.swiglu_limit), inplace=True)
            gate.mul_(up.clamp_(-config.swiglu_limit, config.swiglu_limit))
            for row, expert, weight in zip(gate_rows, topk_ids, topk_weights, strict=True):
                x = torch.addmv(x, layer.down[expert], row, alpha=weight)
        h, scale = self._norm_of(x, self._norm)
        return _product(self._head, h, scale)

    def _norm_of(self, x: Tensor, weight: Tensor) -> tuple[Tensor, float]:
        """RMSNorm in two factors: the vector weight * x, and the number it is still to be multiplied with."""
        mean_square = torch.dot(x, x).item() / x.shape[0]
        return x * weight, 1 / math.sqrt(mean_square + self._config.rms_norm_eps)

    def _turn(self, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """cos and sin [1, head_dim] of a position, and the partner of each dimension."""
        offset = position - self._block_start
        if not 0 <= offset < ROTATION_BLOCK:
            self._block_start = position - position % ROTATION_BLOCK
            self._block = Rotation.of(self._config, self._block_start, ROTATION_BLOCK, torch.device("cpu"))
            offset = position - self._block_start
        return self._block.cos[offset], self._block.sin[offset], self._block.partner

    def _route(self, router_logits: Tensor) -> tuple[list[int], list[float]]:
        """The chosen experts and their weights, as MoE.route chooses them."""
        if self._config.norm_topk_prob:
            best, topk_ids = router_logits.topk(self._config.num_experts_per_tok)
            logits = best.tolist()
            shares = [math.exp(logit - logits[0]) for logit in logits]
            total = sum(shares)
            return topk_ids.tolist(), [share / total for share in shares]
        topk_weights, topk_ids = router_logits.softmax(-1).topk(self._config.num_experts_per_tok)
        return topk_ids.tolist(), topk_weights.tolist()


def _product(matrix: Tensor, vector: Tensor, scale: float) -> Tensor:
    """scale * (matrix vector), [rows]."""
    return torch.addmv(_UNREAD, matrix, vector, beta=0, alpha=scale)


def _prepare(config: ModelConfig, index: int, layer: DecoderLayer) -> _Layer:
    attention, experts = layer.self_attn, layer.mlp.each_expert()
    # The norm divides by |x| / sqrt(d); the queries are also divided by sqrt(d) before the softmax, which cancels.
    query_gain, key_gain = attention.q_norm.weight, attention.k_norm.weight * math.sqrt(config.head_dim)
    gains = (query_gain.expand(config.num_attention_heads, -1), key_gain.expand(config.num_key_value_heads, -1))
    return _Layer(
        attention_norm=layer.input_layernorm.weight.data,
        qkv=_side_by_side((attention.q_proj, attention.k_proj, attention.v_proj)),
        qk_gain=torch.cat(gains),
        uses_rope=config.uses_rope(index),
        out=attention.o_proj.weight.data,
        expert_norm=layer.post_attention_layernorm.weight.data,
        router=layer.mlp.gate.weight.data,
        gate_up=[_side_by_side((expert.gate_proj, expert.up_proj)) for expert in experts],
        down=[expert.down_proj.weight.data for expert in experts],
    )


def _side_by_side(projections: Sequence[Projection]) -> Tensor:
    """One matrix of all the projections' rows, whose views become the projections' weights: no memory is held twice."""
    joined = torch.cat([projection.weight for projection in projections])
    parts = torch.split(joined, [projection.weight.shape[0] for projection in projections])
    for projection, part in zip(projections, parts, strict=True):
        projection.weight.data = part
    return joined
