"""Both published layouts are read without loss, in every variant that is in use; what a writer wrote, its reader gives back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from maple_spec.checkpoints import Weights, mlx_2bit, safetensors_bf16
from maple_spec.model import ModelConfig
from tests.model.random_model import BASE, configs, random_model, random_tensors, random_tokens

KEPT = {"lm_head": False, "model.word_embeddings": False}
ENDPOINTS = ("model.word_embeddings.weight", "lm_head.weight")


def read(folder: Path) -> dict[str, Tensor]:
    """Every parameter that the folder's weights give."""
    config = ModelConfig.from_dict(json.loads((folder / "config.json").read_text()))
    return dict(Weights(folder).model(config).named_parameters())


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == torch.float32
        assert torch.equal(actual[name], tensor), name


@settings(max_examples=15)
@given(configs(), st.sampled_from([1, 3]), st.integers(0, 2**16))
def test_the_bf16_layout_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], shards: int, seed: int
) -> None:
    folder, tensors = tmp_path_factory.mktemp("bf16"), random_tensors(config, seed)
    safetensors_bf16.write(folder, config, tensors, shards=shards)
    assert Weights(folder).format == "safetensors-bf16"
    assert_same(read(folder), tensors)


@settings(max_examples=15)
@given(configs().map(lambda config: config | {"head_dim": 16}), st.sampled_from([1, 3]), st.booleans(), st.integers(0, 2**16))
def test_the_2bit_layout_loses_nothing_but_in_4bit_endpoints(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], shards: int, explicit_scales: bool, seed: int
) -> None:
    folder, tensors = tmp_path_factory.mktemp("2bit"), random_tensors(config, seed)
    kept = config | {"quantization": KEPT}
    mlx_2bit.write(folder, kept, tensors, shards=shards, explicit_scales=explicit_scales)
    assert Weights(folder).format == "mlx-2bit"
    assert_same(read(folder), tensors)

    mlx_2bit.write(folder / "packed", config, tensors, explicit_scales=explicit_scales)
    packed = read(folder / "packed")
    for name in ENDPOINTS:  # four bits: sixteen values a row's group, off by half a step and bfloat16's rounding
        low, high = tensors[name].min(), tensors[name].max()
        assert bool(((packed[name] - tensors[name]).abs() <= (high - low) * (1 / 30 + 2**-7)).all())
    assert_same({**packed, **{name: tensors[name] for name in ENDPOINTS}}, tensors)


def test_zeros_of_either_sign_and_rows_of_zeros(tmp_path: Path) -> None:
    """The published BF16 weights hold -0.0 among the zeros."""
    tensors = random_tensors(BASE)
    for name in [name for name in tensors if "_proj." in name]:
        tensors[name][0] = 0.0
        tensors[name][1] = -0.0
        tensors[name][2, ::2] = -0.0
    safetensors_bf16.write(tmp_path / "bf16", BASE, tensors)
    mlx_2bit.write(tmp_path / "2bit", BASE | {"quantization": KEPT}, tensors)
    assert_same(read(tmp_path / "bf16"), tensors)
    assert_same(read(tmp_path / "2bit"), tensors)
    alphas = load_file(tmp_path / "2bit" / "model.safetensors")["model.layers.0.self_attn.q_proj.row_alpha"]
    assert alphas[:2].tolist() == [0.0, 0.0]


def test_all_forms_give_the_same_logits_bit_for_bit(tmp_path: Path) -> None:
    tensors, tokens = random_tensors(BASE), random_tokens(BASE, 20)
    safetensors_bf16.write(tmp_path / "bf16", BASE, tensors, shards=2)
    mlx_2bit.write(tmp_path / "2bit", BASE | {"quantization": KEPT}, tensors)
    mlx_2bit.write(tmp_path / "explicit", BASE | {"quantization": KEPT}, tensors, explicit_scales=True)
    config = ModelConfig.from_dict(BASE)
    expected = random_model(BASE)(tokens)
    for form in ("bf16", "2bit", "explicit"):
        assert torch.equal(Weights(tmp_path / form).model(config)(tokens), expected), form


def test_the_2bit_files_hold_the_official_tensors(tmp_path: Path) -> None:
    """Names, dtypes and shapes of the official checkpoint, at small sizes: groups of 64, an alpha a row, stacked experts."""
    config = BASE | {"hidden_size": 128, "num_experts": 3, "moe_intermediate_size": 32}
    mlx_2bit.write(tmp_path, config, random_tensors(config))
    layer = "model.layers.2"
    expected = {
        "model.word_embeddings.weight": ("U32", [40, 16]),
        "model.word_embeddings.scales": ("BF16", [40, 2]),
        "model.word_embeddings.biases": ("BF16", [40, 2]),
        "lm_head.weight": ("U32", [40, 16]),
        "lm_head.scales": ("BF16", [40, 2]),
        "lm_head.biases": ("BF16", [40, 2]),
        "model.norm.weight": ("BF16", [128]),
        f"{layer}.input_layernorm.weight": ("BF16", [128]),
        f"{layer}.post_attention_layernorm.weight": ("BF16", [128]),
        f"{layer}.self_attn.q_norm.weight": ("BF16", [8]),
        f"{layer}.self_attn.k_norm.weight": ("BF16", [8]),
        f"{layer}.self_attn.q_proj.weight": ("U32", [32, 8]),
        f"{layer}.self_attn.q_proj.row_alpha": ("BF16", [32]),
        f"{layer}.self_attn.k_proj.weight": ("U32", [16, 8]),
        f"{layer}.self_attn.k_proj.row_alpha": ("BF16", [16]),
        f"{layer}.self_attn.v_proj.weight": ("U32", [16, 8]),
        f"{layer}.self_attn.v_proj.row_alpha": ("BF16", [16]),
        f"{layer}.self_attn.o_proj.weight": ("U32", [128, 2]),
        f"{layer}.self_attn.o_proj.row_alpha": ("BF16", [128]),
        f"{layer}.mlp.gate.weight": ("BF16", [3, 128]),
        f"{layer}.mlp.switch_mlp.gate_proj.weight": ("U32", [3, 32, 8]),
        f"{layer}.mlp.switch_mlp.gate_proj.row_alpha": ("BF16", [3, 32]),
        f"{layer}.mlp.switch_mlp.up_proj.weight": ("U32", [3, 32, 8]),
        f"{layer}.mlp.switch_mlp.up_proj.row_alpha": ("BF16", [3, 32]),
        f"{layer}.mlp.switch_mlp.down_proj.weight": ("U32", [3, 128, 2]),
        f"{layer}.mlp.switch_mlp.down_proj.row_alpha": ("BF16", [3, 128]),
    }
    found = {}
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            if name.startswith(layer) or not name.startswith("model.layers."):
                found[name] = (file.get_slice(name).get_dtype(), file.get_slice(name).get_shape())
    assert found == expected
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["model_type"] == "maple"
    assert written["quantization"]["lm_head"] == {"group_size": 64, "bits": 4}
    assert written["quantization"]["bits"] == 2


def test_words_written_by_hand_are_read_as_the_format_says(tmp_path: Path) -> None:
    """One matrix of a checkpoint replaced by words and alphas spelled out here: w = alpha * (code - 1), lowest bits first."""
    mlx_2bit.write(tmp_path, BASE, random_tensors(BASE))
    stored = load_file(tmp_path / "model.safetensors")
    stack = torch.zeros(4, 16, 1, dtype=torch.int64)
    stack[1, 0, 0] = sum(code << 2 * lane for lane, code in enumerate([2, 0, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 0, 2]))
    words = torch.where(stack >= 1 << 31, stack - (1 << 32), stack).to(torch.int32).view(torch.uint32)
    stored["model.layers.0.mlp.switch_mlp.up_proj.weight"] = words
    stored["model.layers.0.mlp.switch_mlp.up_proj.row_alpha"] = torch.full((4, 16), 0.375, dtype=torch.bfloat16)
    save_file(stored, tmp_path / "model.safetensors")
    row = read(tmp_path)["model.layers.0.mlp.experts.1.up_proj.weight"][0] / 0.375
    assert row.tolist() == [1, -1, 0, 0, 1, 1, 1, 1, -1, -1, -1, -1, 0, 0, -1, 1]


def test_the_approximate_head_of_the_official_checkpoint_is_left_alone(tmp_path: Path) -> None:
    tensors = random_tensors(BASE)
    mlx_2bit.write(tmp_path, BASE | {"quantization": KEPT}, tensors)
    stored = load_file(tmp_path / "model.safetensors")
    stored["lm_head_flash.token_map"] = torch.zeros(4, 10, dtype=torch.int32)
    save_file(stored, tmp_path / "model.safetensors")
    assert_same(read(tmp_path), tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_wider_floats_are_read_too(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {name: tensor.half().float() for name, tensor in random_tensors(BASE).items()}
    safetensors_bf16.write(tmp_path, BASE, tensors)
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    assert_same(read(tmp_path), tensors)


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    config = BASE | {"tie_word_embeddings": True}
    tensors = random_tensors(config)
    assert "lm_head.weight" not in tensors
    safetensors_bf16.write(tmp_path, config, tensors)
    model = Weights(tmp_path).model(ModelConfig.from_dict(config))
    assert model.lm_head.weight is model.model.word_embeddings.weight
    assert torch.equal(model.lm_head.weight, tensors["model.word_embeddings.weight"])


@pytest.mark.parametrize(
    "row", [[0.5, 0.25], [0.5, float("nan")], [0.3, 0.0]], ids=["two sizes", "NaN", "alpha is no bfloat16"]
)
def test_a_matrix_that_is_not_ternary_is_not_written(tmp_path: Path, row: list[float]) -> None:
    tensors = random_tensors(BASE)
    tensors["model.layers.1.self_attn.v_proj.weight"][0, :2] = torch.tensor(row)
    tensors["model.layers.1.self_attn.v_proj.weight"][0, 2:] = 0
    with pytest.raises(ValueError, match=r"model\.layers\.1\.self_attn\.v_proj is not ternary"):
        mlx_2bit.write(tmp_path, BASE, tensors)


def test_rows_that_do_not_fill_words_are_not_written(tmp_path: Path) -> None:
    config = BASE | {"moe_intermediate_size": 24}
    with pytest.raises(ValueError, match=r"switch_mlp\.down_proj has rows of 24 weights, which do not fill words of 16"):
        mlx_2bit.write(tmp_path, config, random_tensors(config))
