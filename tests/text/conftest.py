"""Tokenizers for the text tests: maple-preview's own where it is at hand, and a small one trained on the spot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

CONTROL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)


@pytest.fixture(scope="session")
def small_tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE of 400 entries with the same parts as maple-preview's: NFC, a splitting pattern, control tokens."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    pattern = tokenizers.Regex(r"\n| ?[A-Za-z]+|[0-9]|[^\sA-Za-z0-9]+|\s")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pattern, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(["the maple tree has leaves; a tree thinks of tools", "naïve café 北京 é"] * 20, trainer)
    tokenizer.add_tokens([AddedToken(text, special=text.startswith("<|"), normalized=False) for text in CONTROL_TOKENS])
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def qwen3_tokenizer_json() -> Path:
    """maple-preview's tokenizer.json, byte-identical to Qwen3's; it is not part of this repository."""
    beside = Path(__file__).parents[3] / "shared" / "data" / "qwen3" / "tokenizer.json"
    path = Path(os.environ.get("MAPLE_TEST_QWEN3") or beside)
    if not path.is_file():
        pytest.skip("MAPLE_TEST_QWEN3 does not name Qwen3's tokenizer.json")
    return path


@pytest.fixture(scope="session", params=["small", "qwen3"])
def tokenizer_json(request: pytest.FixtureRequest) -> Path:
    """Each of the tokenizers."""
    path: Path = request.getfixturevalue(f"{request.param}_tokenizer_json")
    return path
