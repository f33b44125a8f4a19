"""The sizes and switches of a Maple model, read from the checkpoint's config.json.

Only keys that change the forward pass live here. The published config carries dead keys beside them (intermediate_size,
max_window_layers, preaffine, quantize and older heritage keys such as n_group or score_function): they are ignored. Keys that
would ask for another architecture than this one are errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maple_spec.errors import CheckpointError

ARCHITECTURE = "MapleForCausalLM"
MODEL_TYPE = "maple"
SLIDING = "sliding_attention"
FULL = "full_attention"

# key -> the values of it that mean the architecture built here; any other value means one that is not.
_FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "rope_scaling": (None,),
    "num_shared_experts": (0, None),
    "first_k_dense_replace": (0, None),
    "moe_router_enable_expert_bias": (False,),
    "use_bias": (False,),
    "use_qkv_bias": (False,),
    "use_qk_norm": (True,),
    "use_rmsnorm": (True,),
    "router_dtype": ("fp32", "float32", None),
}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the forward pass needs to know. Sizes are counts; window_keys is how many keys a query sees, itself included."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    moe_intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    layer_types: tuple[str, ...]
    sliding_window: int = 512
    window_keys: int = 512
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 0.5
    nope_on_global_attention: bool = True
    norm_topk_prob: bool = True
    swiglu_limit: float = 7.0
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 131072
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise CheckpointError where two values contradict each other; the sentence names both."""
        if len(self.layer_types) != self.num_hidden_layers:
            raise _wrong(f"layer_types has {len(self.layer_types)} entries, num_hidden_layers is {self.num_hidden_layers}")
        for layer_type in self.layer_types:
            if layer_type not in (SLIDING, FULL):
                raise _wrong(f"layer_types holds {layer_type!r}, only {SLIDING} and {FULL} are known")
        if self.num_attention_heads % self.num_key_value_heads:
            raise _wrong(
                f"num_key_value_heads {self.num_key_value_heads} does not divide num_attention_heads {self.num_attention_heads}"
            )
        if self.num_experts_per_tok > self.num_experts:
            raise _wrong(f"num_experts_per_tok {self.num_experts_per_tok} is more than num_experts {self.num_experts}")
        if self.window_keys not in (self.sliding_window, self.sliding_window + 1):
            raise _wrong(
                f"sliding_window is {self.sliding_window}, so a query may see {self.sliding_window} or "
                f"{self.sliding_window + 1} keys, not {self.window_keys}",
                "choose one of the two, or leave the choice to the checkpoint",
            )
        if not 0 <= self.partial_rotary_factor <= 1 or self.rotary_dim % 2:
            raise _wrong(f"partial_rotary_factor {self.partial_rotary_factor} of head_dim {self.head_dim} is no even number")

    def ternary_weights(self, experts: int) -> int:
        """How many weights stand in ternary matrices, so many experts of each layer counted."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_attention_heads + self.num_key_value_heads)
        expert = 3 * self.hidden_size * self.moe_intermediate_size
        return self.num_hidden_layers * (attention + experts * expert)

    @property
    def rotary_dim(self) -> int:
        """Leading dimensions of a head that rotary embedding turns."""
        return int(self.head_dim * self.partial_rotary_factor)

    def is_sliding(self, layer: int) -> bool:
        """Whether the layer's queries see a window only."""
        return self.layer_types[layer] == SLIDING

    def window(self, layer: int) -> int | None:
        """How many keys the layer's queries see, themselves included; None is all."""
        return self.window_keys if self.is_sliding(layer) else None

    def uses_rope(self, layer: int) -> bool:
        """Whether the layer turns queries and keys by their positions."""
        return self.is_sliding(layer) or not self.nope_on_global_attention

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], *, window_keys: int | None = None) -> ModelConfig:
        """Read a config.json; window_keys overrides the number of keys in the window (sliding_window or one more).

        Raises CheckpointError, one line, where the config is of another architecture, lacks a size, or contradicts itself.
        """
        require_maple(config)
        for key, known in _FIXED.items():
            if key in config and config[key] not in known:
                raise _wrong(f"{key} is {config[key]!r}; this model is built for {known[0]!r} only")
        rope = config.get("rope_parameters") or {}
        if not isinstance(rope, Mapping):
            raise _wrong(f"rope_parameters must be an object, not {rope!r}")
        if rope.get("rope_type", "default") != "default":
            raise _wrong(f"rope_parameters asks for rope_type {rope['rope_type']!r}; this model is built for 'default' only")
        layer_types = config.get("layer_types")
        if not isinstance(layer_types, (list, tuple)) or not all(isinstance(item, str) for item in layer_types):
            raise _wrong(f"layer_types must be a list of strings, not {layer_types!r}")
        heads = _size(config, "num_attention_heads")
        hidden_size = _size(config, "hidden_size")
        sliding_window = _size(config, "sliding_window", 512)
        return cls(
            vocab_size=_size(config, "vocab_size"),
            hidden_size=hidden_size,
            num_hidden_layers=_size(config, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=_size(config, "num_key_value_heads", heads),
            head_dim=_size(config, "head_dim", hidden_size // heads),
            moe_intermediate_size=_size(config, "moe_intermediate_size"),
            num_experts=_size(config, "num_experts"),
            num_experts_per_tok=_size(config, "num_experts_per_tok"),
            layer_types=tuple(layer_types),
            sliding_window=sliding_window,
            window_keys=_size(config, "window_keys", sliding_window) if window_keys is None else window_keys,
            rms_norm_eps=_number(config, "rms_norm_eps", 1e-6),
            rope_theta=_number({**rope, **config}, "rope_theta", 10000.0),
            partial_rotary_factor=_number({**rope, **config}, "partial_rotary_factor", 0.5),
            nope_on_global_attention=_switch(config, "nope_on_global_attention", True),
            norm_topk_prob=_switch(config, "norm_topk_prob", True),
            swiglu_limit=_number(config, "swiglu_limit", 7.0),
            tie_word_embeddings=_switch(config, "tie_word_embeddings", False),
            max_position_embeddings=_size(config, "max_position_embeddings", 131072),
            eos_token_ids=token_ids(config, "eos_token_id"),
        )


def require_maple(config: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the config is a Maple's: by model_type, or by architectures where model_type is absent."""
    model_type = config.get("model_type")
    architectures = config.get("architectures")
    listed = isinstance(architectures, (list, tuple)) and ARCHITECTURE in architectures
    named = listed if architectures else model_type == MODEL_TYPE
    if not named or (model_type and model_type != MODEL_TYPE):
        raise _wrong(
            f"model_type is {model_type!r} and architectures {architectures!r}, "
            f"but only {MODEL_TYPE!r} ({ARCHITECTURE}) can be served",
            "point to a Maple checkpoint",
        )


def token_ids(config: Mapping[str, Any], key: str, *, file: str = "config.json") -> tuple[int, ...]:
    """The ids under a key that holds one id, a list of ids, or null. file is named in the CheckpointError for anything else."""
    value = config.get(key)
    ids = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in ids):
        raise _wrong(f"{key} must be a token id or a list of them, not {value!r}", file=file)
    return tuple(ids)


def _wrong(sentence: str, remedy: str = "correct it or download the file again", file: str = "config.json") -> CheckpointError:
    return CheckpointError(f"{file}: {sentence}; {remedy}")


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if value is None:
        raise _wrong(f"{key} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _wrong(f"{key} must be a whole number above 0, not {value!r}")
    return value


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e38:
        raise _wrong(f"{key} must be a number of at least 0, not {value!r}")
    return float(value)


def _switch(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise _wrong(f"{key} must be true or false, not {value!r}")
    return value
