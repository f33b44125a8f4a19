"""Kept blocks: found where a prompt begins alike, bounded, never wrong, and exactly what computing anew would give."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maple_spec import checkpoints
from maple_spec.engine import Engine, load_maple, prefix_cache
from maple_spec.engine.maple_adapter import NativeLanguageModel
from maple_spec.engine.prefix_cache import Block, PrefixCache, default_tokens
from maple_spec.errors import SettingsError
from maple_spec.kernels.native import BLOCK, NativeModel, variants
from maple_spec.types import SamplingParams

needs_kernels = pytest.mark.skipif(not variants(), reason="the native kernels were not built")


class Played:
    """A PrefixCache whose blocks hold all the tokens up to their end, as keys and values depend on them."""

    def __init__(self, tokens: int) -> None:
        self.cache = PrefixCache(tokens, block_tokens=2, block_bytes=64)
        self.filled = 0

    def run(self, token_ids: list[int]) -> int:
        """Serve a sequence; how many of its tokens were known."""
        blocks = self.cache.begin(token_ids)
        for index, block in enumerate(blocks):
            assert block.tobytes().rstrip(b"\0") == bytes(token_ids[: 2 * index + 2]), "another sequence's block"
        for end in range(2 * len(blocks) + 2, len(token_ids) + 1, 2):

            def fill(block: Block, end: int = end) -> None:
                self.filled += 1
                block[:] = 0
                block[:end] = token_ids[:end]

            self.cache.extend(token_ids[end - 2 : end], fill)
        return 2 * len(blocks)


@given(st.lists(st.lists(st.integers(1, 2), max_size=14), max_size=40), st.integers(0, 24))
def test_a_block_is_found_only_behind_the_tokens_it_was_computed_behind(prompts: list[list[int]], tokens: int) -> None:
    played = Played(tokens)
    for prompt in prompts:
        played.run(prompt)


@given(st.lists(st.integers(1, 3), max_size=14), st.integers(0, 14))
def test_a_sequence_finds_all_that_it_shares_with_the_one_before(prompt: list[int], shared: int) -> None:
    played = Played(100)
    played.run(prompt)
    other = [*prompt[:shared], 9, 9, 9]
    assert played.run(other) == min(shared, len(prompt)) // 2 * 2
    assert played.run(prompt) == len(prompt) // 2 * 2, "the other one has not taken its place"
    assert played.run(other) == len(other) // 2 * 2


def test_what_has_not_been_used_for_the_longest_time_gives_way_end_before_beginning() -> None:
    played = Played(8)
    played.run([1, 1, 2, 2])
    played.run([3, 3, 4, 4])
    assert played.run([1, 1, 2, 2]) == 4
    played.run([5, 5])
    assert played.run([1, 1, 2, 2]) == 4
    assert played.run([3, 3, 4, 4]) == 2
    assert played.filled == 6


def test_a_sequence_that_is_longer_than_the_room_keeps_its_beginning() -> None:
    played = Played(6)
    played.run([1, 1, 1, 1])
    long = [7] * 20
    assert played.run(long) == 0
    assert played.run(long) == 6
    assert played.filled == 5


def test_no_room_keeps_nothing() -> None:
    played = Played(0)
    for _ in range(2):
        assert played.run([1, 2, 3, 4]) == 0
    assert played.filled == 0


def test_more_than_the_memory_is_one_line() -> None:
    with pytest.raises(SettingsError, match=r"^MAPLE_PREFIX_CACHE_TOKENS=1000000000 asks for 1000000\.0 GB of memory"):
        PrefixCache(10**9, block_tokens=1, block_bytes=10**6)


def test_the_default_is_a_share_of_the_memory_and_two_contexts_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "machine_memory", lambda: 16 * 10**9)
    assert default_tokens(100_000, 131_072) == 10_000
    assert default_tokens(1_000, 8192) == 16_384


def model(tokens: int) -> NativeLanguageModel:
    packed = checkpoints.load_packed()
    native = NativeModel(packed.weights)
    return NativeLanguageModel(native, 2048, packed.eos_token_ids, prefix_cache_tokens=tokens)


def said(of: NativeLanguageModel, prompt: list[int], count: int) -> tuple[int, list[int], torch.Tensor]:
    """Greedy tokens behind a prompt: how many of it were known, the tokens, the last logits."""
    cache = of.new_cache(prompt)
    known = of.cached_tokens(cache)
    for begin in range(known, len(prompt), 512):
        logits = of.forward(prompt[begin : begin + 512], cache)
    tokens = [int(logits.argmax())]
    while len(tokens) < count:
        logits = of.forward(tokens[-1:], cache)
        tokens.append(int(logits.argmax()))
    return known, tokens, logits


@needs_kernels
@pytest.mark.parametrize("shared", [0, 15, 16, 17, 250, 400, 799, 800])
def test_what_is_said_is_bit_for_bit_what_is_said_without(shared: int) -> None:
    """Beyond the window, whose keys later tokens have overwritten, and with what was generated as a part of the prompt."""
    kept, plain = model(4000), model(0)
    first = np.random.default_rng(1).integers(0, 2000, 500).tolist()
    _, tokens, _ = said(kept, first, 700)  # the rings go round
    second = [*first, *tokens][:shared] + np.random.default_rng(2).integers(0, 2000, 60).tolist()
    known, found, logits = said(kept, second, 20)
    none, expected, exact = said(plain, second, 20)
    assert (known, none) == (shared // BLOCK * BLOCK, 0)
    assert found == expected
    assert torch.equal(logits, exact)


@needs_kernels
def test_a_prompt_that_is_wholly_known_still_has_its_last_token_computed() -> None:
    kept = model(4000)
    prompt = list(range(64))
    assert [said(kept, prompt, 3)[0] for _ in range(2)] == [0, 48]


@needs_kernels
def test_nothing_of_an_interrupted_call_is_kept() -> None:
    kept = model(4000)
    prompt = list(range(300))
    cache = kept.new_cache(prompt)
    kept.forward(prompt[:100], cache)
    kept.interrupt(cache)
    kept.forward(prompt[100:], cache)
    known, tokens, logits = said(kept, prompt, 5)
    assert known == 96
    _, expected, exact = said(model(0), prompt, 5)
    assert tokens == expected
    assert torch.equal(logits, exact)


@needs_kernels
def test_the_stream_says_how_many_tokens_were_known() -> None:
    engine = Engine(lambda: load_maple(prefix_cache_tokens=1000))
    engine.start()
    assert engine.wait_loaded(60), engine.error

    async def main() -> list[int]:
        known = []
        for _ in range(2):
            stream = engine.submit("r", tuple(range(40)), SamplingParams(temperature=0, max_new_tokens=2))
            async for _event in stream:
                pass
            known.append(stream.cached_tokens)
        return known

    try:
        assert asyncio.run(main()) == [0, 32]
    finally:
        engine.stop()
