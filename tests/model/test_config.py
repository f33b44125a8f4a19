"""config.json: the published one is read whatever its dead keys say; what is foreign or contradictory is one clear line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maple_spec.errors import CheckpointError
from maple_spec.model import ModelConfig
from tests.model.published import PUBLISHED
from tests.model.random_model import BASE


def test_the_published_config() -> None:
    config = ModelConfig.from_dict(PUBLISHED)
    assert (config.hidden_size, config.num_experts, config.num_experts_per_tok, config.head_dim) == (2048, 256, 8, 128)
    assert [layer for layer in range(24) if not config.is_sliding(layer)] == [3, 7, 11, 15, 19, 23]
    assert [layer for layer in range(24) if not config.uses_rope(layer)] == [3, 7, 11, 15, 19, 23]
    assert config.rotary_dim == 64
    assert config.swiglu_limit == 7.0
    assert config.window(0) == 512
    assert config.window(3) is None
    assert config.eos_token_ids == (151645,)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "maple"},
        {"model_type": "maple", "architectures": None},
        {"max_position_embeddings": 128000, "first_k_dense_replace": 0, "use_bias": False, "model_file": "maple.py"},
        {"score_function": "sigmoid", "n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5},
        {"quantization": {"bits": 2}, "flash_head": {"n_clusters": 4748}},
        {"intermediate_size": 1, "max_window_layers": 3, "preaffine": True, "quantize": False},
        {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        {"eos_token_id": [151645, 151643]},
    ],
    ids=str,
)
def test_dead_and_foreign_keys_do_not_matter(change: dict[str, Any]) -> None:
    plain, config = ModelConfig.from_dict(PUBLISHED), ModelConfig.from_dict(PUBLISHED | change)
    assert config.layer_types == plain.layer_types
    assert config.rope_theta == plain.rope_theta


def test_rope_parameters_are_read_where_the_plain_keys_are_absent() -> None:
    nested = {key: value for key, value in BASE.items() if key not in ("rope_theta", "partial_rotary_factor")}
    nested["rope_parameters"] = {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.25}
    config = ModelConfig.from_dict(nested)
    assert (config.rope_theta, config.partial_rotary_factor) == (5e5, 0.25)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, "point to a Maple checkpoint"),
        ({"model_type": "qwen3_moe"}, "model_type is 'qwen3_moe'"),
        ({"model_type": "maple", "architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM"),
        ({"architectures": None}, "model_type is None"),
        ({"architectures": []}, "only 'maple' (MapleForCausalLM) can be served"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"hidden_size": 0}, "hidden_size must be a whole number above 0, not 0"),
        ({"hidden_size": True}, "hidden_size must be a whole number above 0, not True"),
        ({"num_experts": "256"}, "num_experts must be a whole number above 0, not '256'"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps must be a number of at least 0, not 'tiny'"),
        ({"rope_theta": 10**400}, "rope_theta must be a number of at least 0"),
        ({"rope_theta": float("nan")}, "rope_theta must be a number of at least 0, not nan"),
        ({"norm_topk_prob": 1}, "norm_topk_prob must be true or false, not 1"),
        ({"layer_types": None}, "layer_types must be a list of strings, not None"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries, num_hidden_layers is 3"),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "layer_types holds 'linear_attention'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3 does not divide num_attention_heads 4"),
        ({"num_experts_per_tok": 5}, "num_experts_per_tok 5 is more than num_experts 4"),
        ({"partial_rotary_factor": 0.4}, "partial_rotary_factor 0.4 of head_dim 8"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rope_scaling is {'type': 'yarn', 'factor': 4}"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
        ({"rope_parameters": "yarn"}, "rope_parameters must be an object"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; this model is built for 'silu' only"),
        ({"num_shared_experts": 1}, "num_shared_experts is 1"),
        ({"use_bias": True}, "use_bias is True"),
        ({"use_qk_norm": False}, "use_qk_norm is False"),
        ({"moe_router_enable_expert_bias": True}, "moe_router_enable_expert_bias is True"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be a token id or a list of them, not '</s>'"),
        ({"eos_token_id": [-1]}, "eos_token_id must be a token id"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_is_one_line_that_names_key_and_value(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        ModelConfig.from_dict(BASE | change)
    message = str(caught.value)
    assert message.startswith("config.json: ")
    assert sentence in message
    assert "; " in message, "it says what to do"
    assert "\n" not in message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(sorted({*PUBLISHED, "model_type", "rope_parameters", "window_keys"})), JSON))
def test_any_config_is_read_or_refused_in_one_line(change: dict[str, Any]) -> None:
    refusal = ""
    try:
        ModelConfig.from_dict(PUBLISHED | change)
    except CheckpointError as error:
        refusal = str(error)
    assert "\n" not in refusal


def test_the_window_may_have_one_key_more() -> None:
    assert ModelConfig.from_dict(PUBLISHED, window_keys=513).window(0) == 513
    assert ModelConfig.from_dict(PUBLISHED | {"window_keys": 513}).window(0) == 513
    with pytest.raises(CheckpointError, match="sliding_window is 512, so a query may see 512 or 513 keys, not 500"):
        ModelConfig.from_dict(PUBLISHED, window_keys=500)
