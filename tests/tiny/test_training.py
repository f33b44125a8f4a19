"""The recipe runs: a run that was killed goes on as if nothing had happened, and what it writes is what it trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from maple_spec import checkpoints, kernels
from maple_spec.tiny import network
from maple_spec.tiny.network import four_bit, ternary
from maple_spec.tiny.tokenizer import learn


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of three steps each: one at a stretch, one stopped after two steps."""
    whole, stopped = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("stopped")
    tokenizer = learn(2048, documents=1500)
    for folder in (whole, stopped):
        tokenizer.save(str(folder / "tokenizer.json"))
    train(whole, steps=3, stop_after=3)
    train(stopped, steps=3, stop_after=2)
    train(stopped, steps=3, stop_after=3)
    return whole, stopped


def train(folder: Path, steps: int, stop_after: int, *more: str) -> None:
    options = [
        *more,
        "--out",
        str(folder),
        "--steps",
        str(steps),
        "--processes",
        "1",
        "--tokens",
        "640",
        "--stop-after",
        str(stop_after),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "maple_spec.tiny.train", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(runs: tuple[Path, Path]) -> None:
    whole, stopped = ((folder / "checkpoint" / "model.safetensors").read_bytes() for folder in runs)
    assert whole == stopped


def test_a_run_can_begin_with_a_checkpoint_and_its_tokenizer(runs: tuple[Path, Path], tmp_path: Path) -> None:
    checkpoint = runs[0] / "checkpoint"
    train(tmp_path, 3, 1, "--start", str(checkpoint), "--lr", "0", "--lr-rest", "0")
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "checkpoint" / name).read_bytes() == (checkpoint / name).read_bytes()


def test_the_served_model_gives_the_logits_that_training_saw(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = runs[0]
    twin = network.Network(network.Shape())
    state = torch.load(folder / "state.pt", weights_only=True)["network"]
    twin.load_state_dict(state)
    made = {name: weight.detach().float() for name, weight in twin.rounded().items()}
    model = checkpoints.load(folder / "checkpoint").model
    # What the checkpoint holds more coarsely or more finely than training, and float32 throughout: then both agree but for
    # the order of sums. In bfloat16 a token whose second and third expert are all but equal may take the other one.
    made |= {"word_embeddings": model.model.word_embeddings.weight, "lm_head": model.lm_head.weight}
    twin.load_state_dict({name: weight.bfloat16().float() for name, weight in state.items()})
    monkeypatch.setattr(network, "HALF", torch.float32)
    token_ids = torch.randint(0, 2048, (300,), generator=torch.Generator().manual_seed(1))  # beyond the window of 256
    with torch.no_grad():
        trained = twin(token_ids[None], made)[0]
        served = model(token_ids, None)
    assert (trained - served).abs().max() < 1e-3


@given(st.integers(0, 2**31))
def test_the_roundings_of_training_are_those_of_the_checkpoint(seed: int) -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(seed))
    signs, alpha = kernels.quantise_rows(weight)
    assert torch.equal(ternary(weight).float(), signs.float() * alpha.float()[:, None])
    words, scales, biases = kernels.quantise_affine(weight, 64)
    assert torch.equal(four_bit(weight).float(), kernels.dequantise_affine(words, scales, biases).to(torch.bfloat16).float())


@given(st.text())
def test_every_text_round_trips_through_the_shipped_tokenizer(text: str) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoints.embedded_folder() / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
