"""The stop-watches run on small sizes: what they report is there and makes sense; how fast it is, no test says."""

from __future__ import annotations

from pathlib import Path

import pytest

from maple_spec.bench.measure import Plan, load, measure
from maple_spec.bench.synthetic import Sizes, synthetic_weights
from maple_spec.checkpoints import packed_file
from maple_spec.kernels.native import ModelWeights, variants

SMALL = Sizes(
    vocabulary=512,
    hidden=256,
    layers=4,
    heads=4,
    kv_heads=2,
    head_dim=64,
    width=256,
    experts=8,
    experts_per_token=2,
    window=64,
)
PLAN = Plan(variants()[0], contexts=(16, 128), prompts=(32,), rounds=2, tokens=4)


@pytest.fixture(scope="module")
def weights() -> ModelWeights:
    *_, made = synthetic_weights(SMALL)
    assert isinstance(made, ModelWeights)
    return made


def test_a_report_holds_rates_and_the_bandwidth_beside_them(weights: ModelWeights, tmp_path: Path) -> None:
    packed_file.write(tmp_path / "small.maple", weights)
    read, seconds = load(tmp_path / "small.maple", 2)
    report = measure(read, PLAN, seconds, lambda _: None)
    assert [row["context"] for row in report.decode] == [16, 128]
    assert [row["tokens"] for row in report.prefill] == [32]
    assert report.weights_bytes == weights.bytes_a_token
    for row in report.decode:
        assert row["share_of_bandwidth"] > 0
        assert row["bytes_per_token"] > report.weights_bytes
    assert report.resident_bytes > weights.bytes_a_token


@pytest.mark.toolchain
def test_llama_cpp_takes_the_gguf_file_and_is_compared(weights: ModelWeights, tmp_path: Path) -> None:
    from maple_spec.bench.against import compare
    from maple_spec.bench.llama_cpp import write_gguf

    assert "blk.3.ffn_down_exps.weight" in list(write_gguf(tmp_path / "small.gguf", SMALL))
    figures = compare(weights, tmp_path / "small.gguf", PLAN, lambda _: None)
    assert [len(row["ratios"]) for row in figures["comparisons"]] == [2, 2]
