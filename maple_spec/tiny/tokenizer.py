"""The byte-level BPE of maple-tiny, learnt from the corpus.

Spaces, line ends and digits stand alone, so that a word or a value has the same tokens in a question, in the reasoning and in
a JSON string: copying it is copying tokens, the first thing that so small a model learns. Every Unicode text round-trips:
what is not in a merge falls back to its bytes.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from maple_spec.tiny.corpus import document
from maple_spec.tiny.words import Draw

SPLIT = r"\n| |[A-Z]?[a-z]+|[A-Z]+|[0-9]|[!-/:-@\[-`{-~]+ ?|[^\x00-\x7f]+|\s|."
CONTROL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
]  # fmt: skip


def learn(size: int, documents: int = 20000, seed: int = 7) -> Tokenizer:
    """A tokenizer of `size` entries, the nine control tokens last, as in the published model."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=10,
        show_progress=False,
    )
    draw = Draw(seed)
    texts = ("".join(piece for piece, _ in document(draw, whole=True)) for _ in range(documents))
    tokenizer.train_from_iterator((_without_control(text) for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(t, special=t.startswith("<|"), normalized=False) for t in CONTROL])
    if tokenizer.get_vocab_size() != size:
        raise ValueError(
            f"the corpus yields {tokenizer.get_vocab_size()} entries, not {size}: ask for fewer or give more documents"
        )
    return tokenizer


def _without_control(text: str) -> str:
    for token in CONTROL:
        text = text.replace(token, "\n")
    return text


def load_or_learn(path: Path, size: int) -> Tokenizer:
    """The tokenizer at path, learnt and saved there where it is missing."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        learn(size).save(str(path))
    return Tokenizer.from_file(str(path))
