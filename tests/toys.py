"""A whole language model small enough to read: bytes are tokens, a table is the network. Its contract is LanguageModel's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import torch

from maple_spec.engine import LoadedModel
from maple_spec.text import ChatTemplate, Tokenizer

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")

TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif -%}
{{ message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\\n<think>\\n' }}"""


def byte_alphabet() -> list[str]:
    """The 256 characters of the byte-level alphabet, by byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def toy_tokenizer(items: Sequence[str] = ()) -> Tokenizer:
    """One token a byte, then the control tokens, then any further items: control tokens too, one token each."""
    return Tokenizer(tokenizer_json(items))


def tokenizer_json(items: Sequence[str] = ()) -> dict[str, object]:
    """The tokenizer.json of that tokenizer."""
    vocabulary = {character: byte for byte, character in enumerate(byte_alphabet())}
    added = [
        {"id": 256 + index, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        | {"special": text.startswith("<|")}
        for index, text in enumerate((*CONTROL, *items))
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


class ToyModel:
    """Says what `speak` returns for the prompt's tokens, token by token, then the end token.

    seconds_per_token: how long each prompt or output token takes. gate: where given, no output token comes before it is set.
    """

    context_length = 1000
    prefill_chunk = 16
    eos_token_ids = (258,)

    def __init__(
        self,
        speak: Callable[[Sequence[int]], Sequence[int]],
        *,
        vocab_size: int = 263,
        seconds_per_token: float = 0.0,
        gate: threading.Event | None = None,
    ) -> None:
        self._speak = speak
        self.vocab_size = vocab_size
        self.seconds_per_token = seconds_per_token
        self._gate = gate
        self.calls: list[int] = []  # how many tokens each forward call took
        self.thread_ids: set[int] = set()

    def new_cache(self, prompt_ids: Sequence[int]) -> list[int]:
        self._prompt_length = len(prompt_ids)
        return []

    def cached_tokens(self, cache: list[int]) -> int:
        return 0

    def pause(self, cache: list[int]) -> float:
        return 0.0

    def interrupt(self, cache: object) -> None:
        """Nothing: it is a toy."""

    def forward(self, token_ids: Sequence[int], cache: list[int]) -> torch.Tensor:
        self.calls.append(len(token_ids))
        self.thread_ids.add(threading.get_ident())
        if self.seconds_per_token:
            time.sleep(self.seconds_per_token * len(token_ids))
        cache.extend(token_ids)
        logits = torch.zeros(self.vocab_size)
        written = len(cache) - self._prompt_length
        if written >= 0:
            if self._gate is not None:
                self._gate.wait(10)
            output = [*self._speak(cache[: self._prompt_length]), self.eos_token_ids[0]]
            logits[output[min(written, len(output) - 1)]] = 30.0
        return logits


def loaded(model: ToyModel, tokenizer: Tokenizer | None = None) -> LoadedModel:
    """What a load of the toy brings."""
    tokenizer = tokenizer or toy_tokenizer()
    return LoadedModel(model, tokenizer, ChatTemplate(TEMPLATE, tokenizer.control_tokens), name="toy")


def says(text: str, **options: object) -> ToyModel:
    """A toy that answers every prompt with that text; control tokens spelled in it are real."""
    ids = toy_tokenizer().encode(text, control_tokens=True)
    return ToyModel(lambda prompt_ids: ids, **options)  # type: ignore[arg-type]
