"""Maple as the engine's LanguageModel."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from maple_spec import checkpoints
from maple_spec.checkpoints import CheckpointTexts
from maple_spec.engine.language_model import LanguageModel, LoadedModel
from maple_spec.engine.prefix_cache import PrefixCache, default_tokens
from maple_spec.errors import CheckpointError
from maple_spec.kernels.dispatch import choose_variant, default_threads
from maple_spec.kernels.native import BLOCK, PLANES, NativeModel
from maple_spec.model import KVCache, Maple, ModelConfig
from maple_spec.text.chat_template import ChatTemplate
from maple_spec.text.tokenizer import Tokenizer

# What a slow core does in a tenth of a second at the least: multiplications of weights, in plain float32.
_WEIGHTS_PER_CHUNK = 500_000_000

_MODEL_FILES = (".safetensors", ".json", ".jinja")


class MapleLanguageModel:
    """Serves a Maple, in plain PyTorch."""

    def __init__(self, model: Maple, eos_token_ids: Sequence[int]) -> None:
        """model: with its weights loaded."""
        self._model = model
        self.vocab_size = model.config.vocab_size
        self.context_length = model.config.max_position_embeddings
        self.eos_token_ids = tuple(eos_token_ids)
        self.prefill_chunk = prefill_chunk(model.config)

    def new_cache(self, prompt_ids: Sequence[int]) -> KVCache:
        """An empty cache; it grows as tokens come."""
        return self._model.new_cache()

    def cached_tokens(self, cache: KVCache) -> int:
        """None: another cut of a prompt rounds differently here, and a seed would not repeat its text."""
        return 0

    def pause(self, cache: KVCache) -> float:
        """None: it computes as fast as it can."""
        return 0.0

    def interrupt(self, cache: KVCache) -> None:
        """Nothing: a call lasts well under 0.2 s, since prefill_chunk is chosen so."""

    def forward(self, token_ids: Sequence[int], cache: KVCache) -> torch.Tensor:
        """The logits behind the last token, float32 [vocab_size]."""
        logits: torch.Tensor = self._model(torch.tensor(token_ids), cache, last_only=True)
        return logits[-1].float()


def prefill_chunk(config: ModelConfig) -> int:
    """How many prompt tokens go into one forward call: a power of two from 16 to 512, by the weights that a token meets."""
    whole_log2 = (_WEIGHTS_PER_CHUNK // config.ternary_weights(config.num_experts_per_tok)).bit_length() - 1
    return 1 << min(9, max(4, whole_log2))


class NativeLanguageModel:
    """Serves a Maple in the native kernels."""

    prefill_chunk = 512  # an abort is heeded inside a call, between layers

    def __init__(
        self,
        model: NativeModel,
        context_length: int,
        eos_token_ids: Sequence[int],
        prefix_cache_tokens: int | None = None,
    ) -> None:
        """prefix_cache_tokens: tokens whose keys and values are kept between sequences; None is as many as the memory suggests.

        SettingsError where there is no memory for so many.
        """
        self._model = model
        self.vocab_size = model.vocab_size
        self.context_length = context_length
        self.eos_token_ids = tuple(eos_token_ids)
        self._memory = model.new_cache(context_length)  # for the one sequence that runs
        self._lock = threading.Lock()  # guards _holder
        self._holder: object | None = None
        block_bytes = self._memory.block_bytes
        if prefix_cache_tokens is None:
            prefix_cache_tokens = default_tokens(block_bytes / BLOCK, context_length)
        self._prefixes = PrefixCache(prefix_cache_tokens, block_tokens=BLOCK, block_bytes=block_bytes)
        self._tokens: list[int] = []  # that the memory has seen
        self._whole = 0  # of these, how many stand in blocks that were handed to _prefixes

    def new_cache(self, prompt_ids: Sequence[int]) -> object:
        """The right to the memory for keys and values, which the sequence before loses, with what is known of the prompt."""
        holder = object()
        with self._lock:
            self._holder = holder
            self._memory.reset()
        blocks = self._prefixes.begin(prompt_ids[:-1])  # the last token is computed: its logits are needed
        self._memory.copy_in(blocks)
        self._whole = self._memory.length
        self._tokens = list(prompt_ids[: self._whole])
        return holder

    def cached_tokens(self, cache: object) -> int:
        """How many tokens of the prompt were known; the kernels' numbers do not depend on where a prompt is cut."""
        return self._memory.length

    def pause(self, cache: object) -> float:
        """None: it computes as fast as it can."""
        return 0.0

    def interrupt(self, cache: object) -> None:
        """Make a call that runs return within a layer's time; nothing where the sequence is over."""
        with self._lock:
            if self._holder is cache:
                self._memory.interrupt()

    def forward(self, token_ids: Sequence[int], cache: object) -> torch.Tensor:
        """The logits behind the last token, float32 [vocab_size]."""
        assert self._holder is cache, "another sequence has the memory"
        logits = self._model.forward(token_ids, self._memory)
        self._tokens += token_ids
        self._keep()
        return torch.from_numpy(logits)

    def _keep(self) -> None:
        """Hand on what the memory has seen, block by block, unless a call was interrupted and left it half written."""
        while self._whole + BLOCK <= len(self._tokens) and not self._memory.interrupted:
            begin, self._whole = self._whole, self._whole + BLOCK
            self._prefixes.extend(self._tokens[begin : self._whole], partial(self._memory.copy_out, begin))


def load_maple(
    path_or_id: str | Path | None = None,
    *,
    window_keys: int | None = None,
    kernels: str = "auto",
    activations: str = "int16",
    threads: int | None = None,
    prefix_cache_tokens: int | None = None,
) -> LoadedModel:
    """Load a checkpoint for serving; None or "" is the embedded maple-tiny. CheckpointError says what is wrong with it.

    kernels: an instruction set, reference (plain torch), or auto: the best that this machine has. activations: int16 or int8,
    for the native kernels. threads: for these too; by default as many as the model has work for. prefix_cache_tokens: for
    these too, tokens kept between requests. SettingsError where the machine lacks the kernels, or the memory for the tokens.
    """
    variant = choose_variant(kernels)
    if variant is None:
        checkpoint = checkpoints.load(path_or_id, window_keys=window_keys)
        model: LanguageModel = MapleLanguageModel(checkpoint.model, checkpoint.eos_token_ids)
        return _loaded(checkpoint, model, checkpoint.dtype_label, checkpoint.attention_label)
    packed = checkpoints.load_packed(path_or_id, window_keys=window_keys)
    try:
        threads = threads or default_threads(packed.weights.bytes_a_token)
        native = NativeModel(packed.weights, variant=variant, planes=PLANES[activations], threads=threads)
    except ValueError as error:
        raise CheckpointError(f"{packed.name}: {error}; MAPLE_KERNELS=reference serves it") from None
    config = packed.config
    return _loaded(
        packed,
        NativeLanguageModel(native, config.max_position_embeddings, packed.eos_token_ids, prefix_cache_tokens),
        f"{activations} activations + 2-bit ternary ({packed.ternary_matrices} packed)",
        f"{variant} kernels (ring buffer on sliding layers of {config.window_keys} keys)",
    )


def _loaded(texts: CheckpointTexts, model: LanguageModel, dtype_label: str, attention_label: str) -> LoadedModel:
    tokenizer = Tokenizer.from_file(texts.tokenizer_json)
    return LoadedModel(
        language_model=model,
        tokenizer=tokenizer,
        chat_template=ChatTemplate(texts.chat_template, tokenizer.control_tokens),
        name=texts.name,
        device="cpu",
        dtype_label=dtype_label,
        attention_label=attention_label,
        files=tuple(sorted(file for file in texts.tokenizer_json.parent.iterdir() if file.suffix in _MODEL_FILES)),
    )
