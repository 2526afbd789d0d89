"""Fits by gradient: the head (L-BFGS), and the SVF offsets of the second-to-last layer; and that layer's forward pass
for a whole population of offsets at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.decoder import (
    AttentionSpan,
    Decoder,
    DecoderLayer,
    ModelShape,
    apply_layer,
    rms_norm,
    span_of,
)
from fugu_cli.coordinators.svf import LAYER_BLOCKS, Vector
from fugu_cli.coordinators.torch_runtime import start_torch

if TYPE_CHECKING:
    from torch import Tensor

RoleLabels = NDArray[np.int64]


@dataclass(frozen=True)
class HeadExamples:
    """`hidden` (n, width), `rows` (n, L) soft targets, `roles` (n,) or -1 where none is wanted, `weights` (n,), and the
    `groups` (n,) that a split never divides."""

    hidden: Vector
    rows: Vector
    roles: RoleLabels
    weights: Vector
    groups: tuple[str, ...]

    def take(self, chosen: NDArray[np.bool_]) -> HeadExamples:
        """Those examples only."""
        return self.at(np.flatnonzero(chosen))

    def at(self, places: NDArray[np.int64]) -> HeadExamples:
        """The examples at these places."""
        groups = tuple(self.groups[place] for place in places)
        return HeadExamples(self.hidden[places], self.rows[places], self.roles[places], self.weights[places], groups)


@dataclass(frozen=True)
class HeadScore:
    """How a head does on examples: mean KL over the rows, how often it picks the best row, and the wanted role."""

    kl: float
    row_accuracy: float
    role_accuracy: float

    def text(self) -> str:
        """For people."""
        return (
            f"held-out examples: distance to the targets (KL) {self.kl:.3f}, best row picked {self.row_accuracy:.0%}, "
            f"wanted role picked {self.role_accuracy:.0%}"
        )


def fit_head(examples: HeadExamples, roles: int, *, l2: float, steps: int = 300) -> Vector:
    """The head (L + roles, width), fp32. `roles` is 3, or 0 for a head without them."""
    start_torch()
    import torch

    hidden = torch.from_numpy(examples.hidden).double()
    scale = hidden.square().mean(0).sqrt().clamp_min(1e-6)
    data = HeadLoss(hidden / scale, examples)
    weight = torch.zeros(examples.rows.shape[1] + roles, hidden.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=steps, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = data.of(weight) + l2 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return np.asarray((weight.detach() / scale).float().numpy())


class HeadLoss:
    """The loss of a head on examples; `hidden` (n, width) stands in for theirs, scaled or still being changed."""

    def __init__(self, hidden: Tensor, examples: HeadExamples) -> None:
        import torch

        self._hidden = hidden
        self._rows = torch.from_numpy(examples.rows).to(hidden.dtype)
        self._roles = torch.from_numpy(examples.roles)
        weights = torch.from_numpy(examples.weights).to(hidden.dtype)
        self._weights = weights / weights.sum()

    def of(self, weight: Tensor) -> Tensor:
        """For a head (L + roles, width)."""
        import torch.nn.functional as F

        logits = self._hidden @ weight.T
        count = self._rows.shape[1]
        kl = F.kl_div(logits[:, :count].log_softmax(1), self._rows, reduction="none").sum(1)
        total = (self._weights * kl).sum()
        if weight.shape[0] > count:
            role = F.cross_entropy(logits[:, count:], self._roles, ignore_index=-1, reduction="none")
            total = total + (self._weights * role).sum()
        return total


def score_head(head: Vector, examples: HeadExamples) -> HeadScore:
    """`head` on `examples`, weighted."""
    logits = examples.hidden.astype(np.float64) @ head.T.astype(np.float64)
    count = examples.rows.shape[1]
    predicted = _log_softmax(logits[:, :count])
    target = np.clip(examples.rows.astype(np.float64), 1e-12, None)
    weights = examples.weights / examples.weights.sum()
    kl = (target * (np.log(target) - predicted)).sum(1)
    picked = logits[:, :count].argmax(1) == examples.rows.argmax(1)
    wanted = examples.roles >= 0
    right = logits[wanted, count:].argmax(1) == examples.roles[wanted] if logits.shape[1] > count else wanted[wanted]
    shares = weights[wanted] / max(weights[wanted].sum(), 1e-12)
    return HeadScore(float((weights * kl).sum()), float((weights * picked).sum()), float((shares * right).sum()))


def group_folds(groups: Sequence[str], count: int, seed: int) -> list[NDArray[np.bool_]]:
    """`count` masks of held-out examples; every group is held out in exactly one."""
    names = sorted(set(groups))
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[index]: place % count for place, index in enumerate(order)}
    places = np.array([fold_of[group] for group in groups])
    return [places == fold for fold in range(min(count, len(names)))]


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = logits - logits.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


@dataclass(frozen=True)
class DescentSettings:
    """How far and how fast: passes over the examples, examples per step, AdamW's rate and its pull to zero."""

    epochs: int = 3
    batch: int = 16
    rate: float = 3e-3
    decay: float = 0.1
    seed: int = 0


def fit_offsets(
    tail: LastLayers, texts: Sequence[Sequence[int]], examples: HeadExamples, head: Vector, descent: DescentSettings
) -> tuple[Vector, ...]:
    """Nine blocks of offsets that lower the loss of `head` on `examples`, whose transcripts' tokens are `texts`.

    The head moves along and is then thrown away: on the changed states it is fitted again, exactly.
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
            HeadLoss(hidden, examples.at(chosen)).of(weight).backward()
            optimiser.step()
    sizes = zip(svf.BLOCKS, tail.ranks, strict=True)
    moved = {name: offset.detach().numpy().astype(np.float32) for name, offset in offsets.items()}
    return tuple(moved.get(name, np.zeros(size, np.float32)) for name, size in sizes)


class LastLayers:
    """The last two layers of a decoder in fp32, and the way to them."""

    def __init__(self, decoder: Decoder, adapter: svf.SvfAdapter) -> None:
        self._decoder = decoder
        self.ranks = svf.ranks(decoder.shape)
        self.spectra = {name: adapter.spectrum(name) for name in svf.LAYER_BLOCKS}
        self._two = tuple(_in_fp32(layer) for layer in decoder.layers[-2:])
        self._norm = decoder.final_norm.float()

    def below(self, tokens: Tensor) -> Tensor:
        """(tokens, width) bf16: what the second-to-last layer is given."""
        import torch

        decoder, cache = self._decoder, self._decoder.new_cache()
        cache.reserve(len(tokens))
        with torch.inference_mode():
            x = decoder.embed(tokens)
            place = span_of(decoder.shape, (0, len(tokens)), x)
            for index in range(len(decoder.layers) - 2):
                x = decoder.through(index, x, cache, place)
        return x.clone()

    def layers(self, offsets: dict[str, Tensor]) -> tuple[DecoderLayer, DecoderLayer]:
        """The two layers, the first with W' for these offsets."""
        first, last = self._two
        changed = {
            name: _with_offsets(getattr(first, name), self.spectra[name], delta) for name, delta in offsets.items()
        }
        return replace(first, **changed), last

    def state(self, x: Tensor, layers: tuple[DecoderLayer, DecoderLayer]) -> Tensor:
        """(width,) fp32: the final hidden state at the last of the given positions."""
        wide, shape = x.clone().float(), self._decoder.shape
        place = span_of(shape, (0, len(x)), wide)
        for layer in layers:
            wide = apply_layer(layer, shape, wide, place, _identity_cache)
        return rms_norm(wide[-1], self._norm, shape.eps)


def _with_offsets(weight: Tensor, found: svf.Spectrum, delta: Tensor) -> Tensor:
    by = svf.scaled_map(found, 1 + delta)
    return weight @ by if weight.shape[0] >= weight.shape[1] else by @ weight


def _in_fp32(layer: DecoderLayer) -> DecoderLayer:
    return replace(layer, **{name: value.float() for name, value in vars(layer).items() if value is not None})


def _identity_cache(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    return keys, values


BATCH_TOKENS = 4096
"""Tokens times candidates of one batch: bounds the memory."""


@dataclass(frozen=True)
class SvdFactors:
    """One weight as U diag(s') V^T: the shorter side's singular vectors and the weight in them."""

    values: Tensor
    basis: Tensor
    weight: Tensor
    tall: bool
    """More outputs than inputs: the basis is the input's."""
    bias: Tensor | None


class PopulationLayers:
    """The last two layers of a decoder for many candidates."""

    def __init__(self, decoder: Decoder, adapter: svf.SvfAdapter, at_once: int = BATCH_TOKENS) -> None:
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
        place = span_of(shape, (0, len(below)), below)
        size = len(scales["q"])
        y = rms_norm(below, first.norm, shape.eps)[None]
        q, k, v = (_scaled_product(self._factors[name], y, scales[name]) for name in ("q", "k", "v"))
        queries = _rotated(_heads(q, shape.heads, first.q_norm, shape), place)
        keys = _rotated(_heads(k, shape.kv_heads, first.k_norm, shape), place)
        mixed = _attended(queries, keys, _heads(v, shape.kv_heads, None, shape), causal=True)
        x = below.expand(size, -1, -1) + _scaled_product(self._factors["o"], mixed, scales["o"])
        y = rms_norm(x, first.inner_norm, shape.eps)
        x = x + _scaled_product(self._factors["down"], self._gated(y, scales), scales["down"])
        return rms_norm(_last_layer(self._last, shape, x, place), self._norm, shape.eps)

    def _gated(self, y: Tensor, scales: dict[str, Tensor]) -> Tensor:
        import torch.nn.functional as F

        gate, up = (_scaled_product(self._factors[name], y, scales[name]) for name in ("gate", "up"))
        return F.silu(gate) * up


def _factors(layer: DecoderLayer, name: str, found: svf.Spectrum) -> SvdFactors:
    weight: Tensor = getattr(layer, name)
    bias: Tensor | None = getattr(layer, f"{name}_bias", None)
    tall = weight.shape[0] >= weight.shape[1]
    turned = weight.float() @ found.basis if tall else found.basis.T @ weight.float()
    kind = weight.dtype
    return SvdFactors(found.values, found.basis.to(kind).contiguous(), turned.to(kind).contiguous(), tall, bias)


def _scaled_product(factors: SvdFactors, x: Tensor, scale: Tensor) -> Tensor:
    """W' x for every candidate: `x` (size or 1, tokens, inputs), `scale` (size, rank)."""
    import torch.nn.functional as F

    inner = x @ factors.basis if factors.tall else F.linear(x, factors.weight)
    inner = inner * scale[:, None]
    outer = F.linear(inner, factors.weight if factors.tall else factors.basis)
    return outer if factors.bias is None else outer + factors.bias


def _last_layer(layer: DecoderLayer, shape: ModelShape, x: Tensor, place: AttentionSpan) -> Tensor:
    """(size, width): a whole layer for the last position of `x` (size, tokens, width); keys and values of all."""
    import torch.nn.functional as F

    y = rms_norm(x, layer.norm, shape.eps)
    keys = _rotated(_heads(F.linear(y, layer.k, layer.k_bias), shape.kv_heads, layer.k_norm, shape), place)
    values = _heads(F.linear(y, layer.v, layer.v_bias), shape.kv_heads, None, shape)
    newest = AttentionSpan(place.end - 1, place.end, place.cos[-1:], place.sin[-1:])
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


def _heads(x: Tensor, heads: int, norm: Tensor | None, shape: ModelShape) -> Tensor:
    """(size, tokens, heads * head_dim) to (size, heads, tokens, head_dim)."""
    split = x.unflatten(-1, (heads, shape.head_dim))
    return (split if norm is None else rms_norm(split, norm, shape.eps)).transpose(1, 2)


def _rotated(x: Tensor, place: AttentionSpan) -> Tensor:
    import torch

    half = x.shape[-1] // 2
    return x * place.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * place.sin
