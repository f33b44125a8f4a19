"""A model whose ternary matrices stay packed says in plain torch what the float32 model says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maple_spec import checkpoints
from maple_spec.checkpoints import Weights, mlx_2bit, safetensors_bf16
from maple_spec.engine import load_maple
from maple_spec.kernels import dispatch
from maple_spec.model import ModelConfig
from maple_spec.model.packed_projection import PackedProjection
from tests.model.random_model import BASE, random_tensors


@pytest.mark.parametrize("layout", [mlx_2bit, safetensors_bf16])
def test_its_logits_are_those_of_the_float32_model(tmp_path: Path, layout: object) -> None:
    layout.write(tmp_path, BASE, random_tensors(BASE, 3))  # type: ignore[attr-defined]
    config = ModelConfig.from_dict(BASE)
    plain, packed = Weights(tmp_path).model(config), Weights(tmp_path).model(config, packed=True)
    tokens = torch.arange(20)
    with torch.inference_mode():
        assert torch.allclose(packed(tokens), plain(tokens), atol=1e-4)
    large = [name for name, parameter in packed.named_parameters() if name.split(".")[-2].endswith("_proj")]
    assert not large, "these matrices take sixteen times the memory that they need"


def test_where_float32_would_fill_the_memory_the_matrices_stay_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not checkpoints.load().packed
    monkeypatch.setattr(checkpoints, "machine_memory", lambda: 10**8)
    loaded = checkpoints.load()
    assert loaded.packed
    assert any(isinstance(module, PackedProjection) for module in loaded.model.modules())
    served = load_maple(kernels="reference")
    logits = served.language_model.forward((5, 6, 7), served.language_model.new_cache((5,)))
    monkeypatch.undo()
    plain = load_maple(kernels="reference")
    assert torch.allclose(logits, plain.language_model.forward((5, 6, 7), plain.language_model.new_cache((5,))), atol=1e-3)


def test_the_number_of_ternary_weights_is_that_of_the_matrices() -> None:
    loaded = checkpoints.load()
    counted = sum(p.numel() for name, p in loaded.model.named_parameters() if name.split(".")[-2].endswith("_proj"))
    assert loaded.config.ternary_weights(loaded.config.num_experts) == counted


def test_the_memory_is_the_containers_where_it_has_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = dispatch.machine_memory()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(dispatch, "_CGROUP_LIMIT", limit)
    for text, expected in (("max", None), ("1000000", 1_000_000)):
        limit.write_text(text)
        assert dispatch.machine_memory() == (expected or dispatch.machine_memory())
    assert whole > 0
