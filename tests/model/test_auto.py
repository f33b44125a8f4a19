"""transformers loads, runs, generates with and saves Maple through its Auto classes, without code from the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from maple_spec.checkpoints import mlx_2bit, safetensors_bf16
from maple_spec.errors import CheckpointError
from maple_spec.model import MapleConfig, MapleForCausalLM
from tests.model.random_model import BASE, random_model, random_tensors, random_tokens

# What the published BF16 repository holds beside the sizes; auto_map must not lead to any code being looked for.
PUBLISHED = BASE | {
    "auto_map": {"AutoConfig": "configuration_maple.MapleConfig", "AutoModelForCausalLM": "modeling_maple.MapleForCausalLM"},
    "dtype": "bfloat16",
    "rope_scaling": None,
    "quantize": True,
    "preaffine": False,
    "bos_token_id": None,
}
KEPT = {"lm_head": False, "model.word_embeddings": False}  # embedding and head stay in bfloat16: the 2-bit layout without loss


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """No progress bars, no advice about padding."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    transformers.logging.set_verbosity(verbosity)
    transformers.logging.enable_progress_bar()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same weights in every form."""
    root, tensors = tmp_path_factory.mktemp("auto"), random_tensors(BASE)
    safetensors_bf16.write(root / "published", PUBLISHED, tensors, shards=3)
    safetensors_bf16.write(root / "bf16", PUBLISHED | {"model_type": "maple"}, tensors)
    mlx_2bit.write(root / "2bit", PUBLISHED | {"quantization": KEPT}, tensors)
    return {folder.name: folder for folder in root.iterdir()}


@pytest.fixture(scope="module")
def model(folders: dict[str, Path]) -> MapleForCausalLM:
    return AutoModelForCausalLM.from_pretrained(folders["bf16"])


def logits_of(tokens: Tensor) -> Tensor:
    """What the plain model says."""
    return random_model(BASE)(tokens)


@pytest.mark.parametrize("form", ["bf16", "2bit"])
def test_a_folder_that_names_its_model_type_loads_by_itself(folders: dict[str, Path], form: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(folders[form])
    assert type(model) is MapleForCausalLM
    assert model.dtype == torch.float32
    tokens = random_tokens(BASE, 12)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[None]).logits[0], logits_of(tokens))


def test_a_folder_without_a_model_type_loads_with_its_config(folders: dict[str, Path]) -> None:
    folder = folders["published"]
    assert "model_type" not in json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder, config=MapleConfig.from_pretrained(folder))
    tokens = random_tokens(BASE, 12)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[None]).logits[0], logits_of(tokens))


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 5, "num_return_sequences": 2}], ids=str)
def test_generation_with_the_cache_is_generation_without(model: MapleForCausalLM, options: dict[str, Any]) -> None:
    """Twenty tokens through a window of five keys."""
    prompt = random_tokens(BASE, 14).view(2, 7)
    options = options | {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 20, "pad_token_id": 0}
    outputs = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        outputs.append(model.generate(prompt, use_cache=use_cache, **options))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_padding_on_either_side_changes_nothing(model: MapleForCausalLM, left: bool) -> None:
    short, long = random_tokens(BASE, 5, seed=1), random_tokens(BASE, 9, seed=2)
    place = slice(4, 9) if left else slice(0, 5)
    batch, mask = torch.zeros(2, 9, dtype=torch.long), torch.zeros(2, 9, dtype=torch.long)
    batch[0, place], mask[0, place] = short, 1
    batch[1], mask[1] = long, 1
    with torch.no_grad():
        logits = model(batch, attention_mask=mask).logits
    torch.testing.assert_close(logits[0, place], logits_of(short), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits[1], logits_of(long), rtol=1e-4, atol=1e-4)


def test_a_padded_batch_generates_what_each_prompt_generates_alone(model: MapleForCausalLM) -> None:
    short, long = random_tokens(BASE, 4, seed=1), random_tokens(BASE, 9, seed=2)
    batch = torch.stack([torch.cat([torch.zeros(5, dtype=torch.long), short]), long])
    mask = torch.ones_like(batch)
    mask[0, :5] = 0
    options = {"min_new_tokens": 8, "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    together = model.generate(batch, attention_mask=mask, **options)
    for row, prompt in zip(together, (short, long), strict=True):
        alone = model.generate(prompt[None], attention_mask=torch.ones_like(prompt[None]), **options)
        assert torch.equal(row[9:], alone[0, len(prompt) :])


def test_a_returned_cache_continues_the_sequence(model: MapleForCausalLM) -> None:
    tokens = random_tokens(BASE, 15)
    with torch.no_grad():
        first = model(tokens[None, :8])
        assert first.cache.get_seq_length() == 8
        second = model(tokens[None, 8:], cache=first.cache, attention_mask=torch.ones(1, 15))
    torch.testing.assert_close(second.logits[0], logits_of(tokens)[8:], rtol=1e-4, atol=1e-4)


def test_logits_to_keep_are_the_last_ones(model: MapleForCausalLM) -> None:
    tokens = random_tokens(BASE, 9)
    with torch.no_grad():
        logits, _ = model(tokens[None], logits_to_keep=2, return_dict=False)
    torch.testing.assert_close(logits[0], logits_of(tokens)[-2:], rtol=1e-4, atol=1e-4)


def test_it_trains(folders: dict[str, Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(folders["bf16"])
    batch = random_tokens(BASE, 40).view(2, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[2] < losses[0]


def test_what_was_saved_loads_as_it_was(model: MapleForCausalLM, tmp_path: Path) -> None:
    """In the published layout: transformers' own writer, under the published names."""
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.config.model_config() == model.config.model_config()
    for name, parameter in model.named_parameters():
        assert torch.equal(again.get_parameter(name), parameter), name


def test_a_dtype_that_is_asked_for_is_given(folders: dict[str, Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(folders["2bit"], dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    output = model.generate(random_tokens(BASE, 6)[None], min_new_tokens=4, max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert output.shape == (1, 10)


def test_a_fresh_model_has_transformers_initial_values() -> None:
    config = AutoConfig.for_model("maple", **{key: BASE[key] for key in BASE if key != "architectures"})
    model = AutoModelForCausalLM.from_config(config)
    assert bool((model.model.norm.weight == 1).all())
    assert 0.01 < float(model.lm_head.weight.detach().std()) < 0.03


def test_the_defaults_are_the_published_sizes() -> None:
    config = MapleConfig().model_config()
    assert (config.num_hidden_layers, config.hidden_size, config.num_experts, config.window_keys) == (24, 2048, 256, 512)
    assert [layer for layer in range(24) if not config.is_sliding(layer)] == [3, 7, 11, 15, 19, 23]


def test_a_generation_config_beside_the_weights_counts(folders: dict[str, Path], tmp_path: Path) -> None:
    mlx_2bit.write(tmp_path, BASE, random_tensors(BASE))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "do_sample": true, "eos_token_id": [3, 4]}')
    assert AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == [3, 4]


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BASE | {"architectures": ["Qwen3MoeForCausalLM"]}))
    with pytest.raises(CheckpointError, match="only 'maple'"):
        MapleConfig.from_pretrained(tmp_path)


def test_a_missing_tensor_is_an_error_not_a_random_weight(tmp_path: Path) -> None:
    tensors = random_tensors(BASE)
    del tensors["model.norm.weight"]
    safetensors_bf16.write(tmp_path, BASE | {"model_type": "maple"}, tensors)
    with pytest.raises(CheckpointError, match=r"tensor model\.norm\.weight is missing"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_what_is_not_supported_says_so(model: MapleForCausalLM) -> None:
    tokens = random_tokens(BASE, 4)[None]
    with pytest.raises(TypeError, match="cache must be a MapleCache"):
        model(tokens, cache=DynamicCache())
    with pytest.raises(ValueError, match="a cache keeps no gradients"):
        model(tokens, use_cache=True)
    with torch.no_grad(), pytest.raises(ValueError, match=r"attention_mask has shape \[1, 1, 4, 4\]"):
        model(tokens, attention_mask=torch.ones(1, 1, 4, 4))
