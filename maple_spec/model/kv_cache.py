"""The keys and values that decoding steps look back at: a ring of the window on sliding layers, a growing store on full ones.

Every store answers one question: given the new keys and values of some positions, which keys and values may their queries
look at? It answers with the `reach` last earlier positions in order, followed by the new ones; the caller masks what each
single query must not see. Asked through append_one it answers with exactly what the one query sees, in any order.
"""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor

from maple_spec.model.config import ModelConfig

FIRST_CAPACITY = 256  # positions; a store that runs full doubles, so growing costs less than one copy a position


class LayerCache(Protocol):
    """The store of one layer."""

    length: int  # positions seen so far

    @property
    def reach(self) -> int:
        """How many earlier positions the next answer of append will hold."""
        ...

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values [heads, T, head_dim]; returns what their queries may see, [heads, reach + T, head_dim] each."""
        ...

    def append_one(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Store one position, keys above values, [2 * heads, head_dim]; returns what its query sees, [heads, n, head_dim]."""
        ...

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on."""
        ...


class GrowingCache:
    """Keeps every position; capacity doubles. With a window, append_one answers with the last `window` positions only."""

    def __init__(self, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device, window: int | None = None) -> None:
        self.length = 0
        self._window = window
        self._store = _allocate(heads, FIRST_CAPACITY, head_dim, dtype, device)

    @property
    def reach(self) -> int:
        return self.length

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        start, end = self.length, self.length + keys.shape[1]
        self._reserve(end)
        self._store[0, :, start:end] = keys
        self._store[1, :, start:end] = values
        self.length = end
        return self._store[0, :, :end], self._store[1, :, :end]

    def append_one(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        self._reserve(self.length + 1)
        self._store.select(2, self.length).copy_(pair.view(2, -1, pair.shape[-1]))
        self.length += 1
        start = 0 if self._window is None else max(0, self.length - self._window)
        seen = self._store[:, :, start : self.length]
        return seen[0], seen[1]

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, f"cannot truncate {self.length} positions to {length}"
        self.length = length

    def _reserve(self, length: int) -> None:
        old = self._store
        if length > old.shape[2]:
            self._store = _allocate(old.shape[1], max(length, 2 * old.shape[2]), old.shape[3], old.dtype, old.device)
            self._store[:, :, : self.length] = old[:, :, : self.length]


class RingCache:
    """Keeps the last `window` positions; position p lies in slot p % window."""

    def __init__(self, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device, window: int) -> None:
        self.length = 0
        self._window = window
        self._store = _allocate(heads, window, head_dim, dtype, device)

    @property
    def reach(self) -> int:
        return min(self.length, self._window - 1)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        earlier = self._store[:, :, self._slots(self.length - self.reach, self.length)]
        end = self.length + keys.shape[1]
        kept = min(keys.shape[1], self._window)
        slots = self._slots(end - kept, end)
        self._store[0, :, slots] = keys[:, -kept:].to(self._store.dtype)
        self._store[1, :, slots] = values[:, -kept:].to(self._store.dtype)
        self.length = end
        return torch.cat((earlier[0], keys), dim=1), torch.cat((earlier[1], values), dim=1)

    def append_one(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        self._store.select(2, self.length % self._window).copy_(pair.view(2, -1, pair.shape[-1]))
        self.length += 1
        seen = self._store if self.length >= self._window else self._store[:, :, : self.length]
        return seen[0], seen[1]

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on; only possible while nothing was overwritten, or back to 0."""
        assert 0 <= length <= self.length, f"cannot truncate {self.length} positions to {length}"
        assert length in (0, self.length) or self.length <= self._window, "the ring has overwritten what would be needed"
        self.length = length

    def _slots(self, start: int, end: int) -> Tensor:
        return torch.arange(start, end, device=self._store.device) % self._window


class KVCache:
    """One sequence's cache over all layers. `length` is the number of positions seen.

    ring: whether sliding layers keep their window only; without it they keep everything and the mask alone makes the window
    (the slow twin that the ring is tested against).
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype = torch.float32,
        *,
        device: torch.device | str = "cpu",
        ring: bool = True,
    ) -> None:
        self.layers: list[LayerCache] = []
        place = torch.device(device)
        heads, head_dim = config.num_key_value_heads, config.head_dim
        for layer in range(config.num_hidden_layers):
            window = config.window(layer)
            if ring and window is not None:
                self.layers.append(RingCache(heads, head_dim, dtype, place, window))
            else:
                self.layers.append(GrowingCache(heads, head_dim, dtype, place, window))

    @property
    def length(self) -> int:
        """Positions seen so far; the next token gets this position."""
        return self.layers[0].length

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on (a ring that has wrapped can only go back to 0)."""
        for layer in self.layers:
            layer.truncate(length)

    def clone(self) -> KVCache:
        """A copy that goes its own way."""
        return copy.deepcopy(self)

    def reset(self) -> None:
        """Forget everything; the memory stays allocated for the next sequence."""
        self.truncate(0)


def _allocate(heads: int, capacity: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Outside inference mode, since a tensor made inside it could never be written to outside.
    with torch.inference_mode(False):
        return torch.zeros(2, heads, capacity, head_dim, dtype=dtype, device=device)
