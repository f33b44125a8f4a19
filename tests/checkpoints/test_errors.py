"""A checkpoint that is wrong is one line: which file, which tensor, what to do. Never a crash, never a silent load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from maple_spec import checkpoints
from maple_spec.checkpoints import mlx_2bit, safetensors_bf16
from maple_spec.errors import CheckpointError
from tests.model.random_model import BASE, random_tensors

FILE = "model.safetensors"
Q_PROJ = "model.layers.1.self_attn.q_proj"
EXPERTS = "model.layers.2.mlp.switch_mlp.down_proj"
Tensors = dict[str, Tensor]


def write_text_files(folder: Path) -> None:
    """The smallest tokenizer and template that a folder must hold."""
    tokenizer = {"added_tokens": [{"id": 3, "content": "<|im_end|>"}], "model": {"vocab": {"a": 0}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text("{{ messages }}")


@pytest.fixture
def bf16(tmp_path: Path) -> Path:
    safetensors_bf16.write(tmp_path, BASE, random_tensors(BASE))
    write_text_files(tmp_path)
    return tmp_path


@pytest.fixture
def two_bit(tmp_path: Path) -> Path:
    mlx_2bit.write(tmp_path, BASE, random_tensors(BASE))
    write_text_files(tmp_path)
    return tmp_path


def refusal(folder: Path) -> str:
    """The one line that loading the folder ends with."""
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def change(folder: Path, edit: Callable[[Tensors], object]) -> None:
    """Edit the tensors of the folder's only file."""
    tensors = load_file(folder / FILE)
    edit(tensors)
    save_file(tensors, folder / FILE)


def put(name: str, tensor: Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensor})


def at(name: str, index: tuple[int, ...], value: float) -> Callable[[Tensors], object]:
    """Set one entry; words are set through their signed view."""

    def edit(tensors: Tensors) -> None:
        tensor = tensors[name]
        (tensor.view(torch.int32) if tensor.dtype == torch.uint32 else tensor)[index] = value

    return edit


def drop(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def test_the_untouched_folders_load(bf16: Path) -> None:
    assert checkpoints.load(bf16).format == "safetensors-bf16"


def test_the_untouched_2bit_folder_loads(two_bit: Path) -> None:
    assert checkpoints.load(two_bit).format == "mlx-2bit"


@pytest.mark.parametrize(
    ("edit", "sentences"),
    [
        (drop(f"{Q_PROJ}.weight"), [f"{FILE}: tensor {Q_PROJ}.weight is missing", "download it again"]),
        (drop("lm_head.weight"), [f"{FILE}: tensor lm_head.weight is missing"]),
        (put(f"{Q_PROJ}.weight", torch.zeros(32, 17).bfloat16()), [f"tensor {Q_PROJ}.weight has shape [32, 17]", "[32, 16]"]),
        (
            put("model.norm.weight", torch.zeros(1, 16).bfloat16()),
            ["tensor model.norm.weight has shape [1, 16]", "asks for [16]"],
        ),
        (put("lm_head.weight", torch.zeros(40, 16, dtype=torch.int8)), ["tensor lm_head.weight is torch.int8"]),
        (at("model.norm.weight", (3,), float("nan")), ["tensor model.norm.weight holds NaN or infinity"]),
        (at(f"{Q_PROJ}.weight", (0, 0), float("inf")), [f"tensor {Q_PROJ}.weight holds NaN or infinity"]),
        (put("model.layers.3.mlp.gate.weight", torch.zeros(4, 16)), ["tensor model.layers.3.mlp.gate.weight has no place"]),
        (put("model.layers.0.mlp.gate.bias", torch.zeros(4)), ["tensor model.layers.0.mlp.gate.bias has no place"]),
        (put("model.word_embeddings.weight", torch.zeros(41, 16)), ["shape [41, 16]", "vocab_size 40"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_tensor_of_the_bf16_layout(bf16: Path, edit: Callable[[Tensors], object], sentences: list[str]) -> None:
    change(bf16, edit)
    message = refusal(bf16)
    assert message.startswith(f"{FILE}: tensor ")
    assert all(sentence in message for sentence in sentences), message


@pytest.mark.parametrize(
    ("edit", "sentences"),
    [
        (at(f"{Q_PROJ}.weight", (5, 0), -1), [f"tensor {Q_PROJ}.weight: code 3 stands in a 2-bit word"]),
        (at(f"{EXPERTS}.weight", (3, 15, 0), -1), [f"tensor {EXPERTS}.weight: code 3 stands in a 2-bit word"]),
        (at(f"{Q_PROJ}.row_alpha", (7,), float("nan")), [f"tensor {Q_PROJ}.row_alpha holds NaN or infinity"]),
        (at(f"{EXPERTS}.row_alpha", (3, 2), float("inf")), [f"tensor {EXPERTS}.row_alpha holds NaN or infinity"]),
        (at(f"{Q_PROJ}.row_alpha", (7,), -0.5), [f"tensor {Q_PROJ}.row_alpha holds a negative alpha"]),
        (drop(f"{Q_PROJ}.row_alpha"), [f"tensor {Q_PROJ}.scales is missing"]),
        (drop(f"{Q_PROJ}.weight"), [f"tensor {Q_PROJ}.weight is missing"]),
        (drop(f"{EXPERTS}.weight"), [f"tensor {EXPERTS}.weight is missing"]),
        (put(f"{Q_PROJ}.row_alpha", torch.zeros(31)), [f"tensor {Q_PROJ}.row_alpha has shape [31]", "[32]"]),
        (
            put(f"{Q_PROJ}.weight", torch.zeros(32, 3, dtype=torch.int32).view(torch.uint32)),
            ["has shape [32, 3]", "2 or 4 bits"],
        ),
        (put("model.norm.weight", torch.zeros(1, dtype=torch.int32).view(torch.uint32)), ["model.norm.weight has shape [1]"]),
        (put(f"{EXPERTS}.weight", torch.zeros(3, 16, 1, dtype=torch.int32).view(torch.uint32)), ["it lacks", "experts.3.down"]),
        (
            put(f"{EXPERTS}.weight", torch.zeros(5, 16, 1, dtype=torch.int32).view(torch.uint32)),
            [f"{EXPERTS}.weight has no place"],
        ),
        (put(f"{EXPERTS}.weight", torch.zeros(16, 1, dtype=torch.int32).view(torch.uint32)), ["has shape [16, 1], it lacks"]),
        (put(f"{EXPERTS}.row_alpha", torch.zeros(3, 16)), [f"tensor {EXPERTS}.row_alpha cannot be read"]),
        (at("lm_head.scales", (0, 0), float("nan")), ["tensor lm_head.scales holds NaN or infinity"]),
        (drop("lm_head.biases"), ["tensor lm_head.biases is missing"]),
        (put("lm_head.scales", torch.zeros(40, 3)), ["tensor lm_head.scales has shape [40, 3], no grouping of [40, 16]"]),
        (put("lm_head.biases", torch.zeros(40, 2)), ["tensor lm_head.biases has shape [40, 2]"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_tensor_of_the_2bit_layout(two_bit: Path, edit: Callable[[Tensors], object], sentences: list[str]) -> None:
    change(two_bit, edit)
    message = refusal(two_bit)
    assert message.startswith(f"{FILE}: tensor ")
    assert message.endswith("download it again")
    assert all(sentence in message for sentence in sentences), message


@pytest.mark.parametrize(("part", "value"), [("biases", 0.25), ("scales", 0.25)])
def test_explicit_scales_that_are_not_ternary(tmp_path: Path, part: str, value: float) -> None:
    mlx_2bit.write(tmp_path, BASE, random_tensors(BASE), explicit_scales=True)
    write_text_files(tmp_path)
    change(tmp_path, at(f"{Q_PROJ}.{part}", (0, 0), value))
    assert "not alpha and -alpha along a row: not ternary" in refusal(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    safetensors_bf16.write(tmp_path, BASE, random_tensors(BASE), shards=3)
    write_text_files(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    message = refusal(tmp_path)
    assert message == f"model-00002-of-00003.safetensors: the shard is missing from {tmp_path}; download it again"


def test_a_tensor_that_only_the_index_knows(tmp_path: Path) -> None:
    safetensors_bf16.write(tmp_path, BASE, random_tensors(BASE), shards=2)
    write_text_files(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    shard = content["weight_map"]["model.norm.weight"]
    others = {name: tensor for name, tensor in load_file(tmp_path / shard).items() if name != "model.norm.weight"}
    save_file(others, tmp_path / shard)
    assert refusal(tmp_path).startswith(f"{shard}: tensor model.norm.weight cannot be read")
    del content["weight_map"]["model.norm.weight"]
    index.write_text(json.dumps(content))
    assert refusal(tmp_path).startswith("model.safetensors.index.json: tensor model.norm.weight is missing")


def test_a_cut_file(bf16: Path) -> None:
    data = (bf16 / FILE).read_bytes()
    for length in (0, 5, 200, len(data) - 1):
        (bf16 / FILE).write_bytes(data[:length])
        message = refusal(bf16)
        assert message.startswith(f"{FILE}: damaged or cut short")
        assert message.endswith("download it again")


@pytest.mark.parametrize(
    ("file", "text", "start"),
    [
        ("config.json", None, "config.json: missing from "),
        ("config.json", "{", "config.json: cannot be read as JSON"),
        ("config.json", "[]", "config.json: must hold a JSON object"),
        ("config.json", '{"n": ' + "9" * 5000 + "}", "config.json: cannot be read as JSON"),
        ("config.json", json.dumps(BASE | {"architectures": ["LlamaForCausalLM"]}), "config.json: model_type is None"),
        (
            "config.json",
            json.dumps(BASE | {"num_experts": 10**9}),
            f"{FILE}: tensor model.layers.2.mlp.gate.weight has shape [4, 16]",
        ),
        (
            "config.json",
            json.dumps(BASE | {"hidden_size": 64}),
            f"{FILE}: tensor model.layers.2.mlp.gate.weight has shape [4, 16]",
        ),
        ("config.json", json.dumps(BASE | {"head_dim": 10**12}), f"{FILE}: tensor model.layers.0.self_attn.q_proj.weight"),
        ("config.json", json.dumps(BASE | {"eos_token_id": 40}), "config.json: eos_token_id 40 lies outside vocab_size 40"),
        (FILE, None, "{folder}: holds neither model.safetensors nor model.safetensors.index.json"),
        ("tokenizer.json", None, "tokenizer.json: missing from "),
        ("tokenizer.json", "{}", "tokenizer.json: holds no vocabulary"),
        (
            "tokenizer.json",
            '{"model": {"vocab": {"a": 40}}}',
            "tokenizer.json: token id 40 lies outside config.json's vocab_size 40",
        ),
        ("tokenizer.json", '{"added_tokens": 5, "model": []}', "tokenizer.json: holds no vocabulary"),
        ("chat_template.jinja", None, "chat_template.jinja: missing from "),
        ("generation_config.json", '{"eos_token_id": "x"}', "generation_config.json: eos_token_id must be a token id"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_wrong_file(bf16: Path, file: str, text: str | None, start: str) -> None:
    if text is None:
        (bf16 / file).unlink()
    else:
        (bf16 / file).write_text(text)
    message = refusal(bf16)
    assert message.startswith(start.format(folder=bf16)), message
    assert "; " in message, "it says what to do"


def test_an_index_that_names_a_file_elsewhere(bf16: Path) -> None:
    (bf16 / FILE).rename(bf16.parent / "elsewhere.safetensors")
    index: dict[str, Any] = {"weight_map": {"lm_head.weight": "../elsewhere.safetensors"}}
    (bf16 / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusal(bf16).startswith("model.safetensors.index.json: weight_map must name a file beside it")


def test_no_folder(tmp_path: Path) -> None:
    message = refusal(tmp_path / "absent")
    assert message == f"{tmp_path / 'absent'}: no such folder; name a folder that holds config.json and safetensors files"


@pytest.mark.parametrize("key", ["num_experts", "vocab_size", "num_hidden_layers"])
def test_packing_refuses_what_the_float32_model_refuses(two_bit: Path, key: str) -> None:
    change(two_bit, put("model.extra.weight", torch.zeros(2).bfloat16()))
    with pytest.raises(CheckpointError, match=r"tensor model\.extra\.weight has no place"):
        checkpoints.load_packed(two_bit)
    config = json.loads((two_bit / "config.json").read_text())
    size = config[key] + 1
    layer_types = (config["layer_types"] * 2)[: size if key == "num_hidden_layers" else len(config["layer_types"])]
    (two_bit / "config.json").write_text(json.dumps({**config, key: size, "layer_types": layer_types}))
    with pytest.raises(CheckpointError) as refused:
        checkpoints.load_packed(two_bit)
    assert str(refused.value) == refusal(two_bit)


@settings(max_examples=40)
@given(st.data())
def test_a_damaged_file_is_loaded_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes of any file of a folder overwritten at random; what still loads has finite weights."""
    folder = tmp_path_factory.mktemp("damaged")
    writer = data.draw(st.sampled_from([safetensors_bf16.write, mlx_2bit.write]))
    writer(folder, BASE, random_tensors(BASE), shards=data.draw(st.sampled_from([1, 2])))
    write_text_files(folder)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    reach = len(content) if data.draw(st.booleans()) else min(len(content), 3000)  # headers stand in front
    for place in data.draw(st.lists(st.integers(0, reach - 1), min_size=1, max_size=5)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    refused = ""
    try:
        checkpoint = checkpoints.load(folder)
    except CheckpointError as error:
        refused = str(error)
    else:
        assert all(bool(parameter.isfinite().all()) for parameter in checkpoint.model.parameters())
    assert "\n" not in refused
