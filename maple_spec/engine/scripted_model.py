"""A script as the engine's LanguageModel: it plays what the first fitting entry says, one item a token.

All else is as with any model: the prompt is rendered by maple-tiny's template, so a chat's output starts inside the reasoning;
the sampler chooses each token, but of one that is possible; the engine, the parser and the wire know of no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from maple_spec.checkpoints.embedded import embedded_folder
from maple_spec.checkpoints.script import End, Entry, read_script
from maple_spec.checkpoints.text_files import read_chat_template
from maple_spec.engine.language_model import ContextFull, LoadedModel
from maple_spec.errors import CheckpointError, InvalidRequest
from maple_spec.settings import SCRIPT_PREFIX
from maple_spec.text.byte_tokenizer import BYTES, ByteTokenizer
from maple_spec.text.chat_template import ChatTemplate

BEGIN_TURN, END_TURN, TOOL_RESULT = "<|im_start|>", "<|im_end|>", "<tool_response>"
CONTROL = (BEGIN_TURN, END_TURN, "<think>", "</think>", "<tool_call>", "</tool_call>", TOOL_RESULT, "</tool_response>")
USER = tuple(b"user\n")


class ScriptedFailure(Exception):
    """What an entry that ends with an error does in the place of a model's crash."""


@dataclass(slots=True)
class Play:
    """An entry that is being played; played: how many of its items were emitted."""

    entry: Entry
    played: int = 0


class ScriptedModel:
    """Answers every prompt with the output of the first entry that fits it."""

    # Nothing is computed from a sequence: the settings alone limit its length, and any prompt is one call.
    context_length = 2**40
    prefill_chunk = context_length

    def __init__(self, entries: Sequence[Entry]) -> None:
        """entries: in the order in which they are tried."""
        self._entries = tuple(entries)
        self.tokenizer = ByteTokenizer(CONTROL, (piece for entry in entries for piece in entry.output))
        control_ids = self.tokenizer.control_ids
        self._begin_turn, self._end_turn = control_ids[BEGIN_TURN], control_ids[END_TURN]
        self._tool_result = control_ids[TOOL_RESULT]
        self.eos_token_ids = (self._end_turn,)

    @property
    def vocab_size(self) -> int:
        """The tokenizer's."""
        return self.tokenizer.vocab_size

    def new_cache(self, prompt_ids: Sequence[int]) -> Play:
        """The beginning of the entry that fits; InvalidRequest where none does."""
        is_chat = prompt_ids[0] == self._begin_turn
        asked, tool_results = self._read_chat(tuple(prompt_ids)) if is_chat else (self._text(prompt_ids), None)
        for entry in self._entries:
            fits_tools = entry.after_tool is None or (tool_results is not None and entry.after_tool in tool_results)
            if fits_tools and entry.when in asked:
                return Play(entry)
        where, param = ("last user message", "messages") if is_chat else ("prompt", "prompt")
        raise InvalidRequest(f"no entry of the script fits the {where}", param=param)

    def cached_tokens(self, cache: Play) -> int:
        """None: what is played is not computed."""
        return 0

    def pause(self, cache: Play) -> float:
        """The entry's delay."""
        return cache.entry.delay

    def interrupt(self, cache: Play) -> None:
        """Nothing to interrupt: only pauses take time, and they end by themselves."""

    def forward(self, token_ids: Sequence[int], cache: Play) -> torch.Tensor:
        """Logits that leave one token possible: the entry's next item, or the end token behind the last."""
        entry, played = cache.entry, cache.played
        cache.played += 1
        token_id = self._end_turn
        if played < len(entry.output):
            token_id = self.tokenizer.piece_ids[entry.output[played]]
        elif entry.end is End.LENGTH:
            raise ContextFull
        elif entry.end is End.ERROR:
            raise ScriptedFailure("the script says so")
        logits = torch.full((self.vocab_size,), -torch.inf)
        logits[token_id] = 0.0
        return logits

    def _read_chat(self, prompt_ids: tuple[int, ...]) -> tuple[bytes, bytes | None]:
        """The last user message, and the tool results with which the conversation ends, None where it ends otherwise."""
        begins = [place for place, token_id in enumerate(prompt_ids) if token_id == self._begin_turn]
        turns = [prompt_ids[begin + 1 : end] for begin, end in pairwise([*begins, len(prompt_ids)])]
        last = turns[-2] if len(turns) > 1 else ()  # behind it stands only the beginning of the turn that is to be written
        users = (turn for turn in reversed(turns) if turn[: len(USER)] == USER and not self._holds_tool_results(turn))
        return _content(next(users, ())), _content(last) if self._holds_tool_results(last) else None

    def _holds_tool_results(self, turn: tuple[int, ...]) -> bool:
        """Tool results come as a user's turn; in a message that a user wrote the mark would be plain text."""
        return turn[: len(USER) + 1] == (*USER, self._tool_result)

    def _text(self, token_ids: Sequence[int]) -> bytes:
        return b"".join(map(self.tokenizer.token_bytes, token_ids))


def _content(turn: tuple[int, ...]) -> bytes:
    """What a user's turn holds beside role and marks."""
    return bytes(token_id for token_id in turn[len(USER) :] if token_id < BYTES).removesuffix(b"\n")


def load_script(model_path: str) -> LoadedModel:
    """What `script:FILE` names, for serving. CheckpointError says what is wrong with it."""
    file = model_path.removeprefix(SCRIPT_PREFIX).strip()
    if not file:
        raise CheckpointError(f"{model_path} names no file; write {SCRIPT_PREFIX}FILE")
    path = Path(file).expanduser()
    entries = read_script(path)
    model = ScriptedModel(entries)
    return LoadedModel(
        language_model=model,
        tokenizer=model.tokenizer,
        chat_template=ChatTemplate(read_chat_template(embedded_folder()), CONTROL),
        name=model_path,
        dtype_label=f"none (script of {len(entries)} {'entry' if len(entries) == 1 else 'entries'})",
        files=(path,),
    )
