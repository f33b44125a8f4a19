"""What was computed for earlier prompts and answers, kept in blocks of tokens: a prompt that begins alike needs only the rest.

A block stands for its tokens behind all those before them: its key is the block before it and its own tokens, compared as they
are. Blocks that have not been used for the longest time give way, the end of a sequence before its beginning. After the scheme
of vLLM's automatic prefix caching, with exact keys in place of hashes.
"""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maple_spec.errors import SettingsError
from maple_spec.kernels.dispatch import machine_memory

Block = NDArray[np.uint8]
_SHARE_OF_MEMORY = 16  # the default takes one part in so many
_CONTEXTS = 2  # and no more than so many whole sequences


@dataclass(frozen=True, slots=True)
class _Kept:
    identity: int  # never given twice, so that what followed a block that has gone is never found behind another one
    place: int


class PrefixCache:
    """A bounded store of blocks, for one sequence at a time; its memory is reserved once and used as it fills."""

    def __init__(self, tokens: int, *, block_tokens: int, block_bytes: int) -> None:
        """tokens: most tokens that are kept in all, rounded down to whole blocks; 0 keeps none.

        SettingsError where there is no memory for so many.
        """
        self._block_tokens, self._block_bytes = block_tokens, block_bytes
        self._free = tokens // block_tokens
        size = self._free * block_bytes
        try:
            reserved = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError):
            raise SettingsError(
                f"MAPLE_PREFIX_CACHE_TOKENS={tokens} asks for {size / 1e9:.1f} GB of memory, more than there is"
            ) from None
        self._memory = np.frombuffer(reserved, np.uint8)
        self._kept: OrderedDict[tuple[int, tuple[int, ...]], _Kept] = OrderedDict()  # the longest unused first
        self._chain: list[tuple[int, tuple[int, ...]]] = []  # the running sequence's keys, from its beginning
        self._last = 0  # identity of the running sequence's last block; 0 before the first
        self._identities = 0
        self._full = False

    def begin(self, token_ids: Sequence[int]) -> list[Block]:
        """Begin another sequence: the blocks that hold its leading tokens."""
        self._use()
        self._chain, self._last, self._full = [], 0, False
        blocks: list[Block] = []
        for start in range(0, len(token_ids) - self._block_tokens + 1, self._block_tokens):
            key = (self._last, tuple(token_ids[start : start + self._block_tokens]))
            kept = self._kept.get(key)
            if kept is None:
                break
            self._chain.append(key)
            self._last = kept.identity
            blocks.append(self._block(kept.place))
        self._use()
        return blocks

    def extend(self, token_ids: Sequence[int], fill: Callable[[Block], None]) -> None:
        """The sequence goes on by a whole block of tokens: where it is not kept, and there is room, fill writes it."""
        if self._full:
            return
        key = (self._last, tuple(token_ids))
        kept = self._kept.get(key)
        if kept is None:
            place = self._room()
            if place is None:
                return
            fill(self._block(place))
            self._identities += 1
            kept = self._kept[key] = _Kept(self._identities, place)
        self._chain.append(key)
        self._last = kept.identity

    def _use(self) -> None:
        """Make the sequence's blocks the last that give way, its beginning the very last."""
        for key in reversed(self._chain):
            if key in self._kept:
                self._kept.move_to_end(key)

    def _room(self) -> int | None:
        """A place for a block; None where all of them are the running sequence's own."""
        if self._free:
            self._free -= 1
            return self._free
        oldest = next(iter(self._kept), None)
        if oldest is None or oldest in self._chain:
            self._full = True  # nor can a later block be kept: it could not be found without this one
            return None
        return self._kept.pop(oldest).place

    def _block(self, place: int) -> Block:
        return self._memory[place * self._block_bytes : (place + 1) * self._block_bytes]


def default_tokens(bytes_a_token: float, context_length: int) -> int:
    """How many tokens to keep where nobody says: a sixteenth of the memory, two whole contexts at the most."""
    return min(int(machine_memory() / _SHARE_OF_MEMORY / bytes_a_token), _CONTEXTS * context_length)
