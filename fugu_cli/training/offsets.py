"""SVF offsets of the second-to-last layer by gradient, together with the head: stage 1.

Everything below that layer never changes, so its output is computed once per transcript; only two layers are gone
through again and again, in fp32. The embedding's offsets stay zero: its gradient would need the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.compute import start_torch
from fugu_cli.coordinators.decoder import Decoder, Layer, place_of, rms_norm, through
from fugu_cli.coordinators.svf import Vector
from fugu_cli.training.fit import Examples, Loss

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Descent:
    """How far and how fast: passes over the examples, examples per step, AdamW's rate and its pull to zero."""

    epochs: int = 3
    batch: int = 16
    rate: float = 3e-3
    decay: float = 0.1
    seed: int = 0


def fit_offsets(
    tail: Tail, texts: Sequence[Sequence[int]], examples: Examples, head: Vector, descent: Descent
) -> tuple[Vector, ...]:
    """Nine blocks of offsets that lower the loss of `head` on `examples`, whose transcripts' tokens are `texts`.

    The head moves along and is then thrown away: on the changed states it is fitted anew, exactly.
    """
    start_torch()
    import torch

    inputs = [tail.below(torch.tensor(tokens[:-1] or tokens)) for tokens in texts]
    offsets = {name: torch.zeros(len(found.values), requires_grad=True) for name, found in tail.spectra.items()}
    weight = torch.tensor(head, requires_grad=True)
    groups = [
        {"params": list(offsets.values()), "weight_decay": descent.decay},
        {"params": [weight], "weight_decay": 0.0, "lr": descent.rate * float(np.abs(head).mean())},
    ]
    optimiser = torch.optim.AdamW(groups, lr=descent.rate)
    order = np.random.default_rng(descent.seed)
    for _ in range(descent.epochs):
        for chosen in np.array_split(order.permutation(len(texts)), -(-len(texts) // descent.batch)):
            optimiser.zero_grad()
            layers = tail.layers(offsets)
            hidden = torch.stack([tail.state(inputs[index], layers) for index in chosen])
            Loss(hidden, examples.at(chosen)).of(weight).backward()
            optimiser.step()
    sizes = zip(svf.BLOCKS, tail.ranks, strict=True)
    moved = {name: offset.detach().numpy().astype(np.float32) for name, offset in offsets.items()}
    return tuple(moved.get(name, np.zeros(size, np.float32)) for name, size in sizes)


class Tail:
    """The last two layers of a decoder in fp32, and the way to them."""

    def __init__(self, decoder: Decoder, adapter: svf.Adapter) -> None:
        self._decoder = decoder
        self.ranks = svf.ranks(decoder.shape)
        self.spectra = {name: adapter.spectrum(name) for name in svf.LAYER_BLOCKS}
        self._two = tuple(_wide(layer) for layer in decoder.layers[-2:])
        self._norm = decoder.final_norm.float()

    def below(self, tokens: Tensor) -> Tensor:
        """(tokens, width) bf16: what the second-to-last layer is given."""
        import torch

        decoder, cache = self._decoder, self._decoder.new_cache()
        cache.reserve(len(tokens))
        with torch.inference_mode():
            x = decoder.embed(tokens)
            place = place_of(decoder.shape, (0, len(tokens)), x)
            for index in range(len(decoder.layers) - 2):
                x = decoder.through(index, x, cache, place)
        return x.clone()

    def layers(self, offsets: dict[str, Tensor]) -> tuple[Layer, Layer]:
        """The two layers, the first with W' for these offsets."""
        first, last = self._two
        changed = {name: _changed(getattr(first, name), self.spectra[name], delta) for name, delta in offsets.items()}
        return replace(first, **changed), last

    def state(self, x: Tensor, layers: tuple[Layer, Layer]) -> Tensor:
        """(width,) fp32: the final hidden state at the last of the given positions."""
        wide, shape = x.clone().float(), self._decoder.shape
        place = place_of(shape, (0, len(x)), wide)
        for layer in layers:
            wide = through(layer, shape, wide, place, _as_they_are)
        return rms_norm(wide[-1], self._norm, shape.eps)


def _changed(weight: Tensor, found: svf.Spectrum, delta: Tensor) -> Tensor:
    by = svf.scaled(found, 1 + delta)
    return weight @ by if weight.shape[0] >= weight.shape[1] else by @ weight


def _wide(layer: Layer) -> Layer:
    return replace(layer, **{name: value.float() for name, value in vars(layer).items() if value is not None})


def _as_they_are(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return keys, values
