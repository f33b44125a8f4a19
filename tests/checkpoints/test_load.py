"""load gives the model with everything that serving it needs, from a folder or from the package itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from maple_spec import checkpoints
from maple_spec.checkpoints import mlx_2bit, safetensors_bf16
from maple_spec.errors import CheckpointError
from tests.checkpoints.test_errors import write_text_files
from tests.model.random_model import BASE, random_model, random_tensors, random_tokens

KEPT = {"lm_head": False, "model.word_embeddings": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mlx_2bit.write(tmp_path, BASE | {"quantization": KEPT}, random_tensors(BASE))
    write_text_files(tmp_path)
    return tmp_path


def test_a_folder_gives_model_tokenizer_template_and_labels(folder: Path) -> None:
    checkpoint = checkpoints.load(str(folder))
    assert checkpoint.name == str(folder)
    assert checkpoint.format == "mlx-2bit"
    assert checkpoint.dtype_label == f"float32 + 2-bit ternary ({3 * (4 + 3 * 4)} packed)"
    assert "5 keys" in checkpoint.attention_label
    assert checkpoint.tokenizer_json == folder / "tokenizer.json"
    assert checkpoint.chat_template == "{{ messages }}"
    assert checkpoint.eos_token_ids == (3,)


def test_the_loaded_model_decodes_what_the_weights_say(folder: Path) -> None:
    model, tokens = checkpoints.load(folder).model, random_tokens(BASE, 12)
    with torch.inference_mode():
        cache = model.new_cache()
        steps = torch.cat([model(step, cache, last_only=True) for step in tokens.split([4, *[1] * 8])])
    torch.testing.assert_close(steps, random_model(BASE)(tokens)[3:], rtol=1e-4, atol=1e-4)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_bf16_weights_are_served_as_float32(tmp_path: Path) -> None:
    safetensors_bf16.write(tmp_path, BASE, random_tensors(BASE))
    write_text_files(tmp_path)
    checkpoint = checkpoints.load(tmp_path)
    assert (checkpoint.format, checkpoint.dtype_label) == ("safetensors-bf16", "float32")


def test_the_window_option_reaches_the_model(folder: Path) -> None:
    assert checkpoints.load(folder).model.config.window_keys == 5
    assert checkpoints.load(folder, window_keys=6).model.config.window_keys == 6
    with pytest.raises(CheckpointError, match="5 or 6 keys, not 512"):
        checkpoints.load(folder, window_keys=512)


@pytest.mark.parametrize(
    ("config", "generation", "added", "expected"),
    [
        ({"eos_token_id": 7}, None, {}, (7,)),
        ({"eos_token_id": [7, 8]}, None, {}, (7, 8)),
        ({"eos_token_id": 7}, {"eos_token_id": [9, 7]}, {}, (7, 9)),
        ({"eos_token_id": 7}, None, {"<|im_end|>": 7, "<|endoftext|>": 5, "<think>": 6}, (7, 5)),
        ({"eos_token_id": None}, None, {"<|endoftext|>": 5}, (5,)),
    ],
)
def test_an_answer_ends_at_every_token_that_any_file_names(
    folder: Path, config: dict[str, Any], generation: dict[str, Any] | None, added: dict[str, int], expected: tuple[int, ...]
) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | config))
    entries = [{"id": number, "content": token} for token, number in added.items()]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": entries, "model": {"vocab": {"a": 0}}}))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    assert checkpoints.load(folder).eos_token_ids == expected


def test_nothing_that_ends_an_answer_is_an_error(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"eos_token_id": None}))
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    with pytest.raises(CheckpointError, match="eos_token_id is missing, so no answer would end"):
        checkpoints.load(folder)


@pytest.mark.parametrize(
    "template", ["{{ inner }}", [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ inner }}"}]]
)
def test_a_template_inside_the_tokenizers_settings_counts(folder: Path, template: Any) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    assert checkpoints.load(folder).chat_template == "{{ inner }}"


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_name_is_the_embedded_model(nothing: str | None) -> None:
    checkpoint = checkpoints.load(nothing)
    assert checkpoint.name == "maple-tiny (embedded)"
    assert checkpoint.format == "mlx-2bit"
    assert "packed" in checkpoint.dtype_label
