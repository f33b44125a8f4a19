"""A very small checkpoint with random ternary weights, in the 2-bit layout.

It says nothing sensible, but always the same, and greedily it never ends by itself: the head knows no control token.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

import maple_spec
from maple_spec.checkpoints import mlx_2bit
from maple_spec.model import Maple, ModelConfig
from tests.toys import tokenizer_json

CONFIG = {
    "architectures": ["MapleForCausalLM"],
    "vocab_size": 264,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "moe_intermediate_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 512,
    "max_position_embeddings": 1_000_000,
    "eos_token_id": 258,
}


def write_random_checkpoint(folder: Path) -> Path:
    """Write it and return the folder."""
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name, parameter in Maple(ModelConfig.from_dict(CONFIG)).named_parameters():
        if parameter.dim() < 2:
            tensors[name] = torch.ones_like(parameter)
        elif "proj" in name:
            tensors[name] = torch.randint(-1, 2, parameter.shape, generator=generator) * 0.125
        else:
            tensors[name] = torch.randn(parameter.shape, generator=generator)
    tensors["lm_head.weight"][256:] = 0
    mlx_2bit.write(folder, CONFIG, tensors)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()), encoding="utf-8")
    template = Path(maple_spec.__file__).parent / "tiny" / "chat_template.jinja"
    (folder / "chat_template.jinja").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
    return folder
