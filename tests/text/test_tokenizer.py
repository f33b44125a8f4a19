"""Token ids are the library's, control tokens are under our hand, and no byte is lost on the way back."""

from __future__ import annotations

import json
import threading
import time
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from maple_spec.errors import CheckpointError
from maple_spec.text import Detokenizer, Segment, Tokenizer
from tests.text.conftest import CONTROL_TOKENS
from tests.toys import toy_tokenizer

plain_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
texts = st.lists(plain_texts | st.sampled_from((*CONTROL_TOKENS, "<", "|>", "<|im_", "think>", " ", "\n")), max_size=8).map(
    "".join
)


@pytest.fixture(scope="session")
def library(tokenizer_json: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(tokenizer_json))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_json: Path) -> Tokenizer:
    return Tokenizer.from_file(tokenizer_json)


@given(text=texts)
def test_with_control_tokens_the_ids_are_the_librarys(tokenizer: Tokenizer, library: tokenizers.Tokenizer, text: str) -> None:
    assert tokenizer.encode(text, control_tokens=True) == library.encode(text, add_special_tokens=False).ids


@given(text=texts)
def test_without_control_tokens_none_appears_and_the_text_is_the_same(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, control_tokens=False)
    assert not set(ids) & {tokenizer.id_of(token) for token in tokenizer.control_tokens}
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


@given(text=texts)
def test_every_text_comes_back_token_by_token(tokenizer: Tokenizer, text: str) -> None:
    detokenizer = Detokenizer()
    pieces = [detokenizer.feed(tokenizer.token_bytes(token_id)) for token_id in tokenizer.encode(text, control_tokens=True)]
    assert detokenizer.finish() == ""
    # Control tokens keep their text; what stands between them is normalised piece by piece.
    assert "".join(pieces) == "".join(unicodedata.normalize("NFC", piece) for piece in tokenizer_pieces(tokenizer, text))


def tokenizer_pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    pieces = [text]
    for token in tokenizer.control_tokens:
        pieces = [part for piece in pieces for part in interleave(piece.split(token), token)]
    return pieces


def interleave(parts: list[str], separator: str) -> list[str]:
    return [piece for part in parts for piece in (part, separator)][:-1]


@given(text=plain_texts, token=st.sampled_from(CONTROL_TOKENS))
def test_segments_decide_what_is_a_control_token(tokenizer: Tokenizer, text: str, token: str) -> None:
    ids = tokenizer.encode_segments([Segment(text + token), Segment(token, control=True), Segment(token)])
    as_text = tokenizer.encode(text + token, control_tokens=False)
    assert ids == [*as_text, tokenizer.id_of(token), *tokenizer.encode(token, control_tokens=False)]


def test_ids_without_a_token_are_empty_text_and_known_as_unused(tokenizer: Tokenizer) -> None:
    size = tokenizer.vocab_size
    assert tokenizer.unused_ids(size + 3) == [size, size + 1, size + 2]
    assert tokenizer.token_bytes(size) == tokenizer.token_bytes(-1) == tokenizer.token_bytes(10**12) == b""
    assert all(tokenizer.token_bytes(token_id) for token_id in range(size))


@pytest.mark.parametrize("tokenizer_json", ["qwen3"], indirect=True)
def test_the_published_ids_of_maple_preview(tokenizer: Tokenizer) -> None:
    text = "<|im_start|>user\nWrite one short sentence about maple trees.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert tokenizer.encode(text, control_tokens=True) == [
        *(151644, 872, 198, 7985, 825, 2805, 11652, 911, 54380, 12408, 13, 151645, 198),
        *(151644, 77091, 198, 151667, 198),
    ]
    assert tokenizer.encode("<think>\n\n</think>\n\n", control_tokens=True) == [151667, 271, 151668, 271]
    assert tokenizer.vocab_size == 151669
    assert tokenizer.unused_ids(151936) == list(range(151669, 151936))


def test_encoding_a_long_text_leaves_other_threads_running(small_tokenizer_json: Path) -> None:
    """Tokenising holds the interpreter's lock only briefly, so that an event loop beside it goes on."""
    tokenizer = Tokenizer.from_file(small_tokenizer_json)
    words = " ".join(f"{number:x}" for number in range(150_000))
    encoder = threading.Thread(target=lambda: tokenizer.encode(words, control_tokens=False))
    began = time.perf_counter()
    encoder.start()
    turns = 0
    while encoder.is_alive():
        time.sleep(0.001)
        turns += 1
    taken = time.perf_counter() - began
    assert turns > 5, f"{turns} turns in {taken:.2f} s"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"decoder": {"type": "WordPiece"}}, "decoder is not ByteLevel"),
        ({"model": {"type": "BPE"}}, "cannot read it"),
        ({"added_tokens": [{"id": 300, "content": "<x>", "lstrip": True}]}, "'<x>' uses single_word"),
    ],
)
def test_a_tokenizer_that_would_be_read_wrongly_is_refused(
    small_tokenizer_json: Path, change: dict[str, object], complaint: str
) -> None:
    description = json.loads(small_tokenizer_json.read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError, match=complaint):
        Tokenizer(description | change)


@pytest.mark.parametrize("content", ["", "[]", "{", "\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.from_file(path)
    with pytest.raises(CheckpointError, match=r"absent\.json"):
        Tokenizer.from_file(tmp_path / "absent.json")


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        toy_tokenizer().encode("emoji \ud83d", control_tokens=True)
