"""The keys and values that decoding steps look back at: a ring of the window on sliding layers, a growing store on full ones.

Every store answers one question: given the new keys and values of some positions, which keys and values may their queries
look at? It answers with the `reach` last earlier positions in order, followed by the new ones; the caller masks what each
single query must not see. A ring asked about one position may answer in any order, because that query sees all of it.
"""

from __future__ import annotations

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

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on."""
        ...


class GrowingCache:
    """Keeps every position; capacity doubles."""

    def __init__(self, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.length = 0
        self._store = _allocate(heads, FIRST_CAPACITY, head_dim, dtype, device)

    @property
    def reach(self) -> int:
        return self.length

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        start, end = self.length, self.length + keys.shape[1]
        capacity = self._store.shape[2]
        if end > capacity:
            self._grow(max(end, 2 * capacity))
        store = self._store
        store[0, :, start:end] = keys
        store[1, :, start:end] = values
        self.length = end
        return store[0, :, :end], store[1, :, :end]

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, f"cannot truncate {self.length} positions to {length}"
        self.length = length

    def _grow(self, capacity: int) -> None:
        old = self._store
        self._store = _allocate(old.shape[1], capacity, old.shape[3], old.dtype, old.device)
        self._store[:, :, : self.length] = old[:, :, : self.length]


class RingCache:
    """Keeps the last `window` positions; position p lies in slot p % window."""

    def __init__(self, heads: int, window: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.length = 0
        self.window = window
        self._store = _allocate(heads, window, head_dim, dtype, device)

    @property
    def reach(self) -> int:
        return min(self.length, self.window - 1)

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        count = keys.shape[1]
        store, slot = self._store, self.length % self.window
        if count == 1:
            store[0, :, slot] = keys[:, 0]
            store[1, :, slot] = values[:, 0]
            self.length += 1
            if self.length >= self.window:
                return store[0], store[1]
            return store[0, :, : self.length], store[1, :, : self.length]
        order = torch.arange(self.length - self.reach, self.length, device=store.device) % self.window
        earlier = store[:, :, order]
        kept = min(count, self.window)
        slots = torch.arange(self.length + count - kept, self.length + count, device=store.device) % self.window
        store[0, :, slots] = keys[:, count - kept :].to(store.dtype)
        store[1, :, slots] = values[:, count - kept :].to(store.dtype)
        self.length += count
        return torch.cat((earlier[0], keys), dim=1), torch.cat((earlier[1], values), dim=1)

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on; only possible while nothing was overwritten, or back to 0."""
        assert 0 <= length <= self.length, f"cannot truncate {self.length} positions to {length}"
        assert length in (0, self.length) or self.length <= self.window, "the ring has overwritten what would be needed"
        self.length = length


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
        for layer in range(config.num_hidden_layers):
            if ring and config.is_sliding(layer):
                self.layers.append(RingCache(config.num_key_value_heads, config.window_keys, config.head_dim, dtype, place))
            else:
                self.layers.append(GrowingCache(config.num_key_value_heads, config.head_dim, dtype, place))

    @property
    def length(self) -> int:
        """Positions seen so far; the next token gets this position."""
        return self.layers[0].length

    def truncate(self, length: int) -> None:
        """Forget every position from `length` on (a ring that has wrapped can only go back to 0)."""
        for layer in self.layers:
            layer.truncate(length)

    def reset(self) -> None:
        """Forget everything; the memory stays allocated for the next sequence."""
        self.truncate(0)


def _allocate(heads: int, capacity: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    # Outside inference mode, since a tensor made inside it could never be written to outside.
    with torch.inference_mode(False):
        return torch.zeros(2, heads, capacity, head_dim, dtype=dtype, device=device)
