"""A trained network as a checkpoint folder in the published 2-bit layout, and back."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from maple_spec.checkpoints import mlx_2bit
from maple_spec.checkpoints.tensor_files import TensorFiles
from maple_spec.checkpoints.weights import TERNARY
from maple_spec.tiny.network import Layer, Network, ternary
from maple_spec.tiny.tokenizer import CONTROL

TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def export(network: Network, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, weights, tokenizer and chat template; the ternary rows go out exactly as training saw them."""
    control = {token: known for token in CONTROL if (known := tokenizer.token_to_id(token)) is not None}
    mlx_2bit.write(folder, network.shape.config(control), published_tensors(network))
    tokenizer.save(str(folder / "tokenizer.json"))
    template = TEMPLATE.read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": network.shape.context,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def published_tensors(network: Network) -> dict[str, Tensor]:
    """The weights by the names of the BF16 layout: ternary rows rounded, the rest as it is."""
    return {
        name: ternary(latent).float() if name.split(".")[-2] in TERNARY else latent
        for name, latent in latent_tensors(network).items()
    }


def latent_tensors(network: Network) -> dict[str, Tensor]:
    """The network's own weights, as views without gradients, by the names of the BF16 layout."""
    out = {
        "model.word_embeddings.weight": network.word_embeddings.detach(),
        "model.norm.weight": network.norm.detach(),
        "lm_head.weight": network.lm_head.detach(),
    }
    for index, layer in enumerate(network.layers):
        assert isinstance(layer, Layer)
        prefix = f"model.layers.{index}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{prefix}.{name}.weight"] = getattr(layer, name).detach()
        for name in ("q_norm", "k_norm"):
            out[f"{prefix}.self_attn.{name}.weight"] = getattr(layer, name).detach()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            out[f"{prefix}.self_attn.{name}.weight"] = getattr(layer, name).detach()
        out[f"{prefix}.mlp.gate.weight"] = layer.gate.detach()
        for name in ("gate_proj", "up_proj", "down_proj"):
            for expert, weight in enumerate(getattr(layer, name).detach()):
                out[f"{prefix}.mlp.experts.{expert}.{name}.weight"] = weight
    return out


@torch.no_grad()
def restore(network: Network, folder: Path) -> None:
    """Give the network the weights of an exported folder, rounded as they are. Raises ValueError where they do not fit."""
    reader = mlx_2bit.Reader(TensorFiles(folder))
    for name, held in latent_tensors(network).items():
        held.copy_(reader.read(name, tuple(held.shape)))
