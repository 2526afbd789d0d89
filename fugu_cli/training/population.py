"""A population's offsets in one forward pass: x -> U((1 + delta) s (V^T x)) for every candidate at once.

Everything below the second-to-last layer is the same for all candidates and is read once per text (offsets.Tail.below);
so are that layer's norms, its V^T x, and the texts' positions. Only what differs is computed per candidate, in batches
over candidates; of the last layer only keys, values and the state that is asked for.

Departures: the embedding's offsets are not evolved. They change every layer of every text for every candidate, which
shares nothing; they stay as the checkpoint has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.attention import Place
from fugu_cli.coordinators.decoder import Decoder, Layer, Shape, place_of, rms_norm
from fugu_cli.coordinators.svf import LAYER_BLOCKS, Vector

if TYPE_CHECKING:
    from torch import Tensor

AT_ONCE = 4096
"""Tokens times candidates of one batch: bounds the memory."""


@dataclass(frozen=True)
class Factors:
    """One weight as U diag(s') V^T: the shorter side's singular vectors and the weight in them."""

    values: Tensor
    basis: Tensor
    weight: Tensor
    tall: bool
    """More outputs than inputs: the basis is the input's."""
    bias: Tensor | None


class Population:
    """The last two layers of a decoder for many candidates."""

    def __init__(self, decoder: Decoder, adapter: svf.Adapter, at_once: int = AT_ONCE) -> None:
        """The spectra of the layer's seven matrices come from `adapter`: computed once and kept."""
        self._at_once = at_once
        self._shape = decoder.shape
        self._first, self._last = decoder.layers[-2:]
        self._norm = decoder.final_norm
        self._factors = {name: _factors(self._first, name, adapter.spectrum(name)) for name in LAYER_BLOCKS}
        self.sizes = tuple(len(self._factors[name].values) for name in LAYER_BLOCKS)

    def states(self, below: Tensor, offsets: Vector) -> Vector:
        """(size, width) fp32: each candidate's state at the last position of `below` (tokens, width), for `offsets`
        (size, sum of the seven blocks' sizes)."""
        import torch

        scales = self._scales(torch.from_numpy(np.ascontiguousarray(offsets, np.float32)))
        size = max(self._at_once // len(below), 1)
        with torch.inference_mode():
            parts = [
                self._through(below, {name: scale[start : start + size] for name, scale in scales.items()})
                for start in range(0, len(offsets), size)
            ]
            return np.asarray(torch.cat(parts).float().numpy())

    def _scales(self, offsets: Tensor) -> dict[str, Tensor]:
        """By block (size, rank): (1 + delta), times what keeps the energy."""
        found = {}
        for name, delta in zip(LAYER_BLOCKS, offsets.split(self.sizes, 1), strict=True):
            values = self._factors[name].values
            scale = 1 + delta
            energy = values.sum() / (scale * values).sum(1, keepdim=True)
            found[name] = (scale * energy).to(self._norm.dtype)
        return found

    def _through(self, below: Tensor, scales: dict[str, Tensor]) -> Tensor:
        shape, first = self._shape, self._first
        place = place_of(shape, (0, len(below)), below)
        size = len(scales["q"])
        y = rms_norm(below, first.norm, shape.eps)[None]
        q, k, v = (_changed(self._factors[name], y, scales[name]) for name in ("q", "k", "v"))
        queries = _rotated(_heads(q, shape.heads, first.q_norm, shape), place)
        keys = _rotated(_heads(k, shape.kv_heads, first.k_norm, shape), place)
        mixed = _attended(queries, keys, _heads(v, shape.kv_heads, None, shape), causal=True)
        x = below.expand(size, -1, -1) + _changed(self._factors["o"], mixed, scales["o"])
        y = rms_norm(x, first.inner_norm, shape.eps)
        x = x + _changed(self._factors["down"], self._gated(y, scales), scales["down"])
        return rms_norm(_ending(self._last, shape, x, place), self._norm, shape.eps)

    def _gated(self, y: Tensor, scales: dict[str, Tensor]) -> Tensor:
        import torch.nn.functional as F

        gate, up = (_changed(self._factors[name], y, scales[name]) for name in ("gate", "up"))
        return F.silu(gate) * up


def _factors(layer: Layer, name: str, found: svf.Spectrum) -> Factors:
    weight: Tensor = getattr(layer, name)
    bias: Tensor | None = getattr(layer, f"{name}_bias", None)
    tall = weight.shape[0] >= weight.shape[1]
    turned = weight.float() @ found.basis if tall else found.basis.T @ weight.float()
    kind = weight.dtype
    return Factors(found.values, found.basis.to(kind).contiguous(), turned.to(kind).contiguous(), tall, bias)


def _changed(factors: Factors, x: Tensor, scale: Tensor) -> Tensor:
    """W' x for every candidate: `x` (size or 1, tokens, inputs), `scale` (size, rank)."""
    import torch.nn.functional as F

    inner = x @ factors.basis if factors.tall else F.linear(x, factors.weight)
    inner = inner * scale[:, None]
    outer = F.linear(inner, factors.weight if factors.tall else factors.basis)
    return outer if factors.bias is None else outer + factors.bias


def _ending(layer: Layer, shape: Shape, x: Tensor, place: Place) -> Tensor:
    """(size, width): a whole layer for the last position of `x` (size, tokens, width); keys and values of all."""
    import torch.nn.functional as F

    y = rms_norm(x, layer.norm, shape.eps)
    keys = _rotated(_heads(F.linear(y, layer.k, layer.k_bias), shape.kv_heads, layer.k_norm, shape), place)
    values = _heads(F.linear(y, layer.v, layer.v_bias), shape.kv_heads, None, shape)
    newest = Place(place.end - 1, place.end, place.cos[-1:], place.sin[-1:])
    query = _rotated(_heads(F.linear(y[:, -1:], layer.q, layer.q_bias), shape.heads, layer.q_norm, shape), newest)
    x = x[:, -1:] + F.linear(_attended(query, keys, values, causal=False), layer.o)
    y = rms_norm(x, layer.inner_norm, shape.eps)
    return (x + F.linear(F.silu(F.linear(y, layer.gate)) * F.linear(y, layer.up), layer.down))[:, 0]


def _attended(queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
    """(size, tokens, heads * head_dim)."""
    import torch.nn.functional as F

    grouped = queries.shape[1] != keys.shape[1]
    mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=causal, enable_gqa=grouped)
    return mixed.transpose(1, 2).flatten(2)


def _heads(x: Tensor, heads: int, norm: Tensor | None, shape: Shape) -> Tensor:
    """(size, tokens, heads * head_dim) to (size, heads, tokens, head_dim)."""
    split = x.unflatten(-1, (heads, shape.head_dim))
    return (split if norm is None else rms_norm(split, norm, shape.eps)).transpose(1, 2)


def _rotated(x: Tensor, place: Place) -> Tensor:
    import torch

    half = x.shape[-1] // 2
    return x * place.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * place.sin
