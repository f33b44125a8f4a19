"""What the engine needs of a model, and what a load must bring: the protocols LanguageModel and TokenCodec, and LoadedModel.

The engine knows no architecture: anything that turns token ids into the next token's logits can be served. Caches are opaque to
it: it asks for one, hands it back with every call, and drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from maple_spec.text.chat_template import ChatTemplate
from maple_spec.text.segments import Segment

if TYPE_CHECKING:
    import torch


class LanguageModel(Protocol):
    """A causal language model that serves one sequence at a time.

    vocab_size: length of the logits, padding rows included. context_length: most tokens that prompt and output may have
    together. eos_token_ids: tokens that end a generation. prefill_chunk: how many prompt tokens one forward call may take so
    that it lasts well under 0.2 s, since an abort is heeded between calls; a fixed number, because other cuts of the same
    prompt round differently and would change what a seed gives.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_length(self) -> int: ...

    @property
    def eos_token_ids(self) -> Sequence[int]: ...

    @property
    def prefill_chunk(self) -> int: ...

    def new_cache(self, prompt_ids: Sequence[int]) -> Any:
        """A fresh cache for a sequence that begins with these tokens; an ApiError raised here refuses the request."""

    def cached_tokens(self, cache: Any) -> int:
        """How many of the first tokens the fresh cache holds already, fewer than the prompt has; forward gets the others."""

    def pause(self, cache: Any) -> float:
        """Seconds to wait before the next forward call; the wait ends at once where the sequence is aborted."""

    def interrupt(self, cache: Any) -> None:
        """The sequence of this cache is aborted: let a forward call that runs return soon, with whatever; from any thread."""

    def forward(self, token_ids: Sequence[int], cache: Any) -> torch.Tensor:
        """Append the tokens to the sequence and return the logits behind the last of them: float32 [vocab_size], on the CPU.

        The caller may change the returned tensor. Raises ContextFull when the model can go no further.
        """


class TokenCodec(Protocol):
    """The texts' way to token ids and back; text.Tokenizer and text.ByteTokenizer say what each method does."""

    def encode(self, text: str, *, control_tokens: bool) -> list[int]: ...

    def encode_segments(self, segments: Iterable[Segment]) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def unused_ids(self, vocab_size: int) -> list[int]: ...


class ContextFull(Exception):
    """Raised by a LanguageModel that holds no more tokens: the generation ends as if its cap were reached."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything a load brings: the model, the texts' way in and out, and the words that /health shows.

    files: what it was read from, all that decides what the model says.
    """

    language_model: LanguageModel
    tokenizer: TokenCodec
    chat_template: ChatTemplate
    name: str
    device: str = "cpu"
    dtype_label: str = "float32"
    attention_label: str = "none"
    files: tuple[Path, ...] = ()
