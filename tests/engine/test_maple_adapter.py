"""Maple behind the engine says what the plain model says, and takes a prompt in pieces that are heeded in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from maple_spec import checkpoints
from maple_spec.engine import Engine, load_maple
from maple_spec.engine.maple_adapter import prefill_chunk
from maple_spec.generation import Generator
from maple_spec.types import ContentDelta, FinishReason, GenerationRequest, RawPrompt, SamplingParams, TextEvent


@pytest.fixture(scope="module")
def plain(random_checkpoint: Path) -> checkpoints.Checkpoint:
    return checkpoints.load(random_checkpoint)


def test_greedy_tokens_are_the_largest_logits_of_the_full_forward_pass(
    random_checkpoint: Path, plain: checkpoints.Checkpoint
) -> None:
    """The engine prefills in chunks and decodes with a cache; the plain pass sees the whole text anew each time."""
    engine = Engine(lambda: load_maple(random_checkpoint))
    engine.start()
    assert engine.wait_loaded(60), engine.error
    loaded = engine.loaded
    assert loaded is not None, engine.error
    prompt = loaded.tokenizer.encode("The maple tree. " * 40, control_tokens=True)
    assert len(prompt) > 16

    async def main() -> list[int | None]:
        return [event.token_id async for event in engine.submit("r", prompt, SamplingParams(temperature=0, max_new_tokens=12))]

    try:
        tokens = asyncio.run(main())
    finally:
        engine.stop()
    unused = loaded.tokenizer.unused_ids(plain.config.vocab_size)
    seen = list(prompt)
    with torch.inference_mode():
        for token_id in tokens:
            logits = plain.model(torch.tensor(seen))[-1]
            logits[unused] = -torch.inf
            assert token_id is not None
            assert logits[token_id] >= logits.max() - 1e-3, "the chunks' rounding may decide between equals"
            seen.append(token_id)


def test_what_a_load_brings_is_what_the_checkpoint_says(random_checkpoint: Path, plain: checkpoints.Checkpoint) -> None:
    for kernels, dtype_label in (("reference", plain.dtype_label), ("plain", "int16 activations + 2-bit ternary (32 packed)")):
        loaded = load_maple(random_checkpoint, kernels=kernels)
        model = loaded.language_model
        assert model.vocab_size == plain.config.vocab_size
        assert model.context_length == plain.config.max_position_embeddings
        assert model.eos_token_ids == plain.eos_token_ids
        assert (loaded.name, loaded.dtype_label, loaded.device) == (plain.name, dtype_label, "cpu")
        assert kernels == "reference" or loaded.attention_label.startswith("plain kernels")


def test_an_abort_that_comes_late_does_not_reach_the_next_sequence(random_checkpoint: Path) -> None:
    """Sequences share the memory for keys and values, one after the other."""
    model = load_maple(random_checkpoint).language_model
    ended = model.new_cache((1,))
    model.forward((1, 2, 3), ended)
    expected = model.forward((1, 2, 3), model.new_cache((1,)))
    running = model.new_cache((1,))
    model.interrupt(ended)
    assert torch.equal(model.forward((1, 2, 3), running), expected)


def test_a_raw_prompt_is_continued_as_text(random_checkpoint: Path) -> None:
    engine = Engine(lambda: load_maple(random_checkpoint))
    engine.start()
    assert engine.wait_loaded(60)
    request = GenerationRequest("r", RawPrompt("maple"), SamplingParams(seed=1, max_new_tokens=20))

    async def main() -> list[TextEvent]:
        return [event async for event in Generator(engine).generate(request)]

    try:
        first, again = asyncio.run(main()), asyncio.run(main())
    finally:
        engine.stop()
    assert first == again, "a seed repeats the text"
    assert any(isinstance(event, ContentDelta) for event in first)
    assert first[-1].finish_reason in (FinishReason.STOP, FinishReason.LENGTH)  # type: ignore[union-attr]


def test_chunks_are_powers_of_two_that_shrink_with_the_model(plain: checkpoints.Checkpoint) -> None:
    sizes = [
        prefill_chunk(replace(plain.config, num_hidden_layers=layers, layer_types=("full_attention",) * layers))
        for layers in (1, 50, 1000, 1_000_000)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 512
    assert sizes[-1] == 16
    assert all(size & (size - 1) == 0 for size in sizes)
