"""A decoder-only transformer, read but never written with: final hidden states, a key-value cache that can be cropped.

Stands under backbone.py. Plain torch for the family of Qwen2, Qwen3, Llama and Mistral (RMSNorm, rotary positions,
grouped queries, SwiGLU): importing transformers takes twice as long as a decision, and its cache cannot be read along
with. Checked against transformers' own models in the tests. Must not know tokens' texts, heads or checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fugu_cli.coordinators import attention, packing
from fugu_cli.coordinators.attention import Buffers, Place
from fugu_cli.coordinators.kv_cache import Cache
from fugu_cli.coordinators.packing import linear

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Remember = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Change:
    """Other tokens for a pass under way: the first `kept` of those it began with, then `more`. 0: it is given up."""

    kept: int
    more: Tensor | None = None


Steer = Callable[[int], Change | None]
"""Asked of a pass that has come to this layer. None: it goes on as it is."""

FAMILY = ("qwen2", "qwen3", "llama", "mistral")
"""`model_type`s whose arithmetic this is."""


@dataclass(frozen=True)
class Shape:
    """The numbers of a config.json that matter here."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    eps: float
    theta: float
    tied: bool


@dataclass(frozen=True)
class Layer:
    """One layer's weights; biases and the norms of queries and keys where the model has them."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    norm: Tensor
    inner_norm: Tensor
    q_bias: Tensor | None = None
    k_bias: Tensor | None = None
    v_bias: Tensor | None = None
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None


_NAMES = {
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "norm": "input_layernorm.weight",
    "inner_norm": "post_attention_layernorm.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
}
_MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
_OPTIONAL = ("q_bias", "k_bias", "v_bias", "q_norm", "k_norm")


class Decoder:
    """The weights and how to go through them. `embedding_map` (width x width) is applied to looked-up rows only."""

    def __init__(self, shape: Shape, weights: Mapping[str, Tensor]) -> None:
        """`weights` by their stored names without the `model.` prefix. Raises KeyError when one is missing."""
        self.shape = shape
        self.embedding = weights["embed_tokens.weight"]
        self.final_norm = weights["norm.weight"]
        self.layers = [_layer(weights, index) for index in range(shape.layers)]
        self.embedding_map: Tensor | None = None
        self._packed: dict[int, Layer] = {}

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are stored in."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    def new_cache(self) -> Cache:
        """An empty cache that fits these weights."""
        return Cache(self.shape, self.dtype, self.device)

    def replace(self, index: int, **weights: Tensor) -> None:
        """Other weights in one layer; the tensors that were there are left as they are."""
        self.layers[index] = replace(self.layers[index], **weights)
        self._packed.pop(index, None)

    def pack(self) -> bool:
        """Lay out one more layer's weights for faster passes; False where all are or it would not help.

        `layers` stay as they are and can be read, from the disk where they are mapped.
        """
        index = next((index for index in range(len(self.layers)) if index not in self._packed), None)
        if index is None or not packing.helps(self.embedding):
            return False
        plain = {name: getattr(self.layers[index], name) for name in _MATRICES}
        packed = {name: packing.packed(weight) for name, weight in plain.items()}
        self._packed[index] = replace(self.layers[index], **packed)
        packing.release(plain.values())
        return True

    def extend(self, tokens: Tensor, cache: Cache, steer: Steer | None = None) -> bool:
        """Read `tokens` (1-d, int64) after those in the cache; their keys, values and hidden states go into it.

        `steer` is asked before each layer. Where it gives the pass up, nothing counts as read and the answer is False.
        """
        start = cache.length
        x, place = self._up_to(0, tokens, start, cache)
        for index in range(len(self.layers)):
            change = steer(index) if steer is not None else None
            if change is not None:
                if not change.kept or change.more is None:
                    return False
                x, place = self._joined(index, x[: change.kept], change.more, start, cache)
            x = self.through(index, x, cache, place)
        cache.hidden[start : place.end] = rms_norm(x, self.final_norm, self.shape.eps)
        cache.length = place.end
        return True

    def _up_to(self, layer: int, tokens: Tensor, start: int, cache: Cache) -> tuple[Tensor, Place]:
        """`tokens` from position `start` on, taken through all layers below this one."""
        cache.reserve(start + len(tokens))
        x = self.embed(tokens)
        place = place_of(self.shape, (start, start + len(tokens)), x, cache.buffers)
        for index in range(layer):
            x = self.through(index, x, cache, place)
        return x, place

    def _joined(self, layer: int, x: Tensor, more: Tensor, start: int, cache: Cache) -> tuple[Tensor, Place]:
        """A pass from `start` on that has come to `layer`, with `more` tokens after it: they catch up first."""
        import torch

        later, place = self._up_to(layer, more, start + len(x), cache)
        return torch.cat((x, later)), place_of(self.shape, (start, place.end), x, cache.buffers)

    def embed(self, tokens: Tensor) -> Tensor:
        """Input vectors (len(tokens), width)."""
        import torch.nn.functional as F

        rows = F.embedding(tokens, self.embedding)
        if self.embedding_map is None:
            return rows
        return (rows.float() @ self.embedding_map).to(rows.dtype)

    def through(self, index: int, x: Tensor, cache: Cache, place: Place) -> Tensor:
        """One layer over `x` (tokens, width) at `place`; its keys and values go into the cache."""

        def remember(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            cache.keys[index, :, place.start : place.end] = keys
            cache.values[index, :, place.start : place.end] = values
            return cache.keys[index], cache.values[index]

        return through(self._packed.get(index, self.layers[index]), self.shape, x, place, remember)


def through(layer: Layer, shape: Shape, x: Tensor, place: Place, remember: Remember) -> Tensor:
    """One layer over `x` (tokens, width). `remember` takes the keys and values of these tokens (kv_heads, tokens,
    head_dim) and gives those of all tokens so far."""
    import torch.nn.functional as F

    y = rms_norm(x, layer.norm, shape.eps)
    q = _heads(linear(y, layer.q, layer.q_bias), shape.heads, layer.q_norm, shape)
    k = _heads(linear(y, layer.k, layer.k_bias), shape.kv_heads, layer.k_norm, shape)
    v = _heads(linear(y, layer.v, layer.v_bias), shape.kv_heads, None, shape)
    keys, values = remember(_rotate(k, place), v)
    mixed = attention.attend(_rotate(q, place), keys, values, place)
    x = x + linear(mixed.transpose(0, 1).reshape(len(x), -1), layer.o)
    y = rms_norm(x, layer.inner_norm, shape.eps)
    return x + linear(F.silu(linear(y, layer.gate)) * linear(y, layer.up), layer.down)


def place_of(shape: Shape, span: tuple[int, int], like: Tensor, buffers: Buffers | None = None) -> Place:
    """The place of a span of tokens (start, end) for such a model, in the type and on the device of `like`."""
    rotations, heads = (shape.head_dim, shape.theta), (shape.heads, shape.kv_heads)
    return attention.place_of(span, rotations, heads, like, buffers or Buffers())


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, in fp32 inside."""
    wide = x.float()
    return weight * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def _layer(weights: Mapping[str, Tensor], index: int) -> Layer:
    named = {field: weights.get(f"layers.{index}.{name}") for field, name in _NAMES.items()}
    missing = [_NAMES[field] for field, weight in named.items() if weight is None and field not in _OPTIONAL]
    if missing:
        raise KeyError(f"layers.{index}.{missing[0]}")
    return Layer(**{field: weight for field, weight in named.items() if weight is not None})


def _heads(x: Tensor, heads: int, norm: Tensor | None, shape: Shape) -> Tensor:
    """(tokens, heads * head_dim) to (heads, tokens, head_dim), normed per head where the model does."""
    split = x.view(len(x), heads, shape.head_dim)
    return (split if norm is None else rms_norm(split, norm, shape.eps)).transpose(0, 1)


def _rotate(x: Tensor, place: Place) -> Tensor:
    import torch

    half = x.shape[-1] // 2
    return x * place.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * place.sin
