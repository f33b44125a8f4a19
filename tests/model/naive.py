"""Maple's equations in Python numbers, one loop an index: slow, in double precision, and sharing no code with the model.

Weights come as nested lists under the published names. Every sum is math.fsum, so that what is left of rounding lies far below
float32's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Vector = list[float]


def forward(config: Mapping[str, Any], weights: Mapping[str, Any], token_ids: Sequence[int]) -> list[Vector]:
    """The logits at every position of the sequence. config: a config.json, with window_keys where it is not sliding_window."""
    eps = config["rms_norm_eps"]
    xs = [list(weights["model.word_embeddings.weight"][token]) for token in token_ids]
    for layer, layer_type in enumerate(config["layer_types"]):
        prefix = f"model.layers.{layer}."
        part = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
        normed = [norm(x, part["input_layernorm.weight"], eps) for x in xs]
        mixed = attention(config, part, normed, sliding=layer_type == "sliding_attention")
        xs = [add(x, y) for x, y in zip(xs, mixed, strict=True)]
        xs = [add(x, experts(config, part, norm(x, part["post_attention_layernorm.weight"], eps))) for x in xs]
    return [times(weights["lm_head.weight"], norm(x, weights["model.norm.weight"], eps)) for x in xs]


def attention(config: Mapping[str, Any], part: Mapping[str, Any], xs: list[Vector], *, sliding: bool) -> list[Vector]:
    """Causal attention over all positions: QK norm first, then rotary embedding, then the softmax."""
    d, heads, kv_heads = config["head_dim"], config["num_attention_heads"], config["num_key_value_heads"]
    rotates = sliding or not config["nope_on_global_attention"]
    window = config.get("window_keys", config["sliding_window"]) if sliding else len(xs)

    def projected(name: str, x: Vector, count: int) -> list[Vector]:
        y = times(part[f"self_attn.{name}_proj.weight"], x)
        return [y[head * d : (head + 1) * d] for head in range(count)]

    def prepared(name: str, x: Vector, position: int, count: int) -> list[Vector]:
        normed = [norm(y, part[f"self_attn.{name}_norm.weight"], config["rms_norm_eps"]) for y in projected(name, x, count)]
        return [rotated(config, y, position) for y in normed] if rotates else normed

    queries = [prepared("q", x, position, heads) for position, x in enumerate(xs)]
    keys = [prepared("k", x, position, kv_heads) for position, x in enumerate(xs)]
    values = [projected("v", x, kv_heads) for x in xs]
    out = []
    for position in range(len(xs)):
        joined: Vector = []
        seen = range(max(0, position - window + 1), position + 1)
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            scores = [dot(queries[position][head], keys[other][kv_head]) / math.sqrt(d) for other in seen]
            shares = softmax(scores)
            for j in range(d):
                joined.append(math.fsum(share * values[other][kv_head][j] for share, other in zip(shares, seen, strict=True)))
        out.append(times(part["self_attn.o_proj.weight"], joined))
    return out


def rotated(config: Mapping[str, Any], x: Vector, position: int) -> Vector:
    """Dimension j turns with j + half inside the rotary part, by position * theta^(-2j / rotary_dim)."""
    rotary_dim = int(config["head_dim"] * config["partial_rotary_factor"])
    half = rotary_dim // 2
    out = list(x)
    for j in range(half):
        angle = position * config["rope_theta"] ** (-2 * j / rotary_dim)
        out[j] = x[j] * math.cos(angle) - x[j + half] * math.sin(angle)
        out[j + half] = x[j + half] * math.cos(angle) + x[j] * math.sin(angle)
    return out


def experts(config: Mapping[str, Any], part: Mapping[str, Any], x: Vector) -> Vector:
    """The k likeliest experts, weighted; p / (sum of the k p + 1e-20) where norm_topk_prob, else p."""
    shares = softmax(times(part["mlp.gate.weight"], x))
    chosen = sorted(range(len(shares)), key=lambda expert: -shares[expert])[: config["num_experts_per_tok"]]
    total = math.fsum(shares[expert] for expert in chosen) + 1e-20 if config["norm_topk_prob"] else 1.0
    out = [0.0] * len(x)
    for expert in chosen:
        name = f"mlp.experts.{expert}"
        gate = [min(g, 7.0) for g in times(part[f"{name}.gate_proj.weight"], x)]
        up = [min(max(u, -7.0), 7.0) for u in times(part[f"{name}.up_proj.weight"], x)]
        inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
        out = add(out, [shares[expert] / total * y for y in times(part[f"{name}.down_proj.weight"], inner)])
    return out


def norm(x: Vector, weight: Vector, eps: float) -> Vector:
    """weight * x / sqrt(mean(x^2) + eps)."""
    size = math.sqrt(dot(x, x) / len(x) + eps)
    return [w * value / size for w, value in zip(weight, x, strict=True)]


def softmax(scores: Vector) -> Vector:
    """exp(s) over their sum."""
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    return [power / math.fsum(powers) for power in powers]


def times(matrix: list[Vector], x: Vector) -> Vector:
    """Matrix times vector."""
    return [dot(row, x) for row in matrix]


def dot(a: Vector, b: Vector) -> float:
    """The inner product."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def add(a: Vector, b: Vector) -> Vector:
    """The sum, element by element."""
    return [x + y for x, y in zip(a, b, strict=True)]
