"""The key-value cache: what the tokens read so far left behind. Grows by doubling, crops for free.

Stands below decoder.py, which fills it. Must not know weights or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fugu_cli.coordinators import attention
from fugu_cli.coordinators.attention import Buffers

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fugu_cli.coordinators.decoder import Shape

_PARTS = ("keys", "values", "hidden")


class Cache:
    """Keys, values and final hidden states of the tokens read so far. Grows by doubling, crops for free."""

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device, capacity: int = 512) -> None:
        self.length = 0
        self._shape = shape
        self._dtype = dtype
        self._device = device
        self._capacity = 0
        self._numbers = 0
        self.buffers = Buffers()
        self.keys: Tensor
        self.values: Tensor
        self.hidden: Tensor
        self.reserve(capacity)

    def reserve(self, length: int) -> None:
        """Room for `length` tokens, with zeros where keys and values are looked at before there are any."""
        self._grow(length)
        if (end := attention.rounded(length)) > self._numbers:
            for part in (self.keys, self.values):
                part[:, :, self._numbers : end] = 0
            self._numbers = end

    def _grow(self, length: int) -> None:
        import torch

        if length <= self._capacity:
            return
        capacity = attention.rounded(max(length, 2 * self._capacity))
        shape = self._shape
        new = {
            "keys": (shape.layers, shape.kv_heads, capacity, shape.head_dim),
            "values": (shape.layers, shape.kv_heads, capacity, shape.head_dim),
            "hidden": (capacity, shape.width),
        }
        for name, size in new.items():
            grown = torch.empty(size, dtype=self._dtype, device=self._device)
            if self._capacity:
                grown[..., : self._capacity, :] = getattr(self, name)
            setattr(self, name, grown)
        self._capacity = capacity

    def state(self, length: int) -> dict[str, Tensor]:
        """A copy of what is known of the first `length` tokens."""
        return {name: getattr(self, name)[..., :length, :].clone() for name in _PARTS}

    def put(self, state: Mapping[str, Tensor], length: int) -> bool:
        """Know `length` tokens from a `state` and nothing else. False where it is none of such a cache."""
        self.reserve(length)
        places = {name: getattr(self, name)[..., :length, :] for name in _PARTS}
        if any(name not in state or state[name].shape != place.shape for name, place in places.items()):
            return False
        for name, place in places.items():
            place.copy_(state[name])
        self.length = length
        return True

    def crop(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        self.length = min(self.length, length)
