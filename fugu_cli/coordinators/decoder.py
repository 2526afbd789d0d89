"""A decoder-only transformer that is read and never generates: final hidden states, attention, and a key-value cache
that can be cropped. Plain torch for the family of Qwen2, Qwen3, Llama and Mistral, because importing transformers
takes longer than a decision. Must not know texts of tokens, heads or checkpoints. Checked against transformers'
own models in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fugu_cli.coordinators import torch_runtime
from fugu_cli.coordinators.torch_runtime import linear

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class AttentionSpan:
    """Where in the text a pass reads: positions start..end, their rotations (end - start, head_dim), and what each may
    look back at.

    `mask` (rows, end) is added to the scores; rows are the tokens of every head that shares keys, one head below the
    other. None where the text begins here or a single token is read.
    """

    start: int
    end: int
    cos: Tensor
    sin: Tensor
    mask: Tensor | None = None


def attention_span(
    span: tuple[int, int], rotations: tuple[int, float], heads: tuple[int, int], like: Tensor
) -> AttentionSpan:
    """The place of the tokens of a span (start, end), in the type and on the device of `like`.

    `rotations`: a head's width and theta; `heads`: how many have queries, how many keys.
    """
    import torch

    (start, end), (width, theta) = span, rotations
    steps = torch.arange(0, width, 2, dtype=torch.float32, device=like.device) / width
    angles = torch.arange(start, end, dtype=torch.float32, device=like.device)[:, None] * (1.0 / theta**steps)
    both = torch.cat((angles, angles), dim=-1)
    cos, sin = both.cos().to(like.dtype), both.sin().to(like.dtype)
    count, sharing = end - start, heads[0] // heads[1]
    if start == 0 or count == 1:
        return AttentionSpan(start, end, cos, sin)
    mask = torch.full((count, end), -torch.inf, dtype=like.dtype, device=like.device).triu(start + 1)
    return AttentionSpan(start, end, cos, sin, mask=mask.repeat(sharing, 1))


def attend(q: Tensor, keys: Tensor, values: Tensor, place: AttentionSpan) -> Tensor:
    """Attention of `q` (heads, tokens, head_dim) to the first `place.end` of keys and values (kv_heads, end or more,
    head_dim); of q's shape."""
    import torch.nn.functional as F

    keys, values, mask, narrow = keys[:, : place.end], values[:, : place.end], place.mask, q.dtype
    if torch_runtime.computes_in_fp32(q, q.shape[1]):
        q, keys, values, mask = q.float(), keys.float(), values.float(), None if mask is None else mask.float()
    if place.start == 0 and q.shape[1] > 1:
        shared = q.shape[0] != keys.shape[0]
        mixed = F.scaled_dot_product_attention(q[None], keys[None], values[None], is_causal=True, enable_gqa=shared)[0]
    else:
        rows = q.reshape(keys.shape[0], -1, q.shape[-1])
        mixed = F.scaled_dot_product_attention(rows[None], keys[None], values[None], mask)[0].view(q.shape)
    return mixed.to(narrow)


_CACHE_PARTS = ("keys", "values", "hidden")


class KeyValueCache:
    """Keys, values and final hidden states of the tokens read so far. Grows by doubling, crops for free."""

    def __init__(self, shape: ModelShape, dtype: torch.dtype, device: torch.device, capacity: int = 512) -> None:
        self.length = 0
        self._shape = shape
        self._dtype = dtype
        self._device = device
        self._capacity = 0
        self.keys: Tensor
        self.values: Tensor
        self.hidden: Tensor
        self.reserve(capacity)

    def reserve(self, length: int) -> None:
        """Room for `length` tokens."""
        import torch

        if length <= self._capacity:
            return
        capacity = max(length, 2 * self._capacity)
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
        return {name: getattr(self, name)[..., :length, :].clone() for name in _CACHE_PARTS}

    def put(self, state: Mapping[str, Tensor], length: int) -> bool:
        """Know `length` tokens from a `state` and nothing else. False where it is none of such a cache."""
        self.reserve(length)
        places = {name: getattr(self, name)[..., :length, :] for name in _CACHE_PARTS}
        if any(name not in state or state[name].shape != place.shape for name, place in places.items()):
            return False
        for name, place in places.items():
            place.copy_(state[name])
        self.length = length
        return True

    def crop(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        self.length = min(self.length, length)


if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Remember = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


FAMILY = ("qwen2", "qwen3", "llama", "mistral")
"""`model_type`s whose arithmetic this is."""


@dataclass(frozen=True)
class ModelShape:
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
class DecoderLayer:
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
_OPTIONAL = ("q_bias", "k_bias", "v_bias", "q_norm", "k_norm")


class Decoder:
    """The weights and how to go through them. `embedding_map` (width x width) is applied to looked-up rows only."""

    def __init__(self, shape: ModelShape, weights: Mapping[str, Tensor]) -> None:
        """`weights` by their stored names without the `model.` prefix. Raises KeyError when one is missing."""
        self.shape = shape
        self.embedding = weights["embed_tokens.weight"]
        self.final_norm = weights["norm.weight"]
        self.layers = [_layer(weights, index) for index in range(shape.layers)]
        self.embedding_map: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are stored in."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    def new_cache(self) -> KeyValueCache:
        """An empty cache that fits these weights."""
        return KeyValueCache(self.shape, self.dtype, self.device)

    def replace(self, index: int, **weights: Tensor) -> None:
        """Other weights in one layer; the tensors that were there are left as they are."""
        self.layers[index] = replace(self.layers[index], **weights)

    def extend(self, tokens: Tensor, cache: KeyValueCache) -> None:
        """Read `tokens` (1-d, int64) after those in the cache; their keys, values and hidden states go into it."""
        start, end = cache.length, cache.length + len(tokens)
        cache.reserve(end)
        x = self.embed(tokens)
        place = span_of(self.shape, (start, end), x)
        for index in range(len(self.layers)):
            x = self.through(index, x, cache, place)
        cache.hidden[start:end] = rms_norm(x, self.final_norm, self.shape.eps)
        cache.length = end

    def embed(self, tokens: Tensor) -> Tensor:
        """Input vectors (len(tokens), width)."""
        import torch.nn.functional as F

        rows = F.embedding(tokens, self.embedding)
        if self.embedding_map is None:
            return rows
        return (rows.float() @ self.embedding_map).to(rows.dtype)

    def through(self, index: int, x: Tensor, cache: KeyValueCache, place: AttentionSpan) -> Tensor:
        """One layer over `x` (tokens, width) at `place`; its keys and values go into the cache."""

        def remember(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            cache.keys[index, :, place.start : place.end] = keys
            cache.values[index, :, place.start : place.end] = values
            return cache.keys[index], cache.values[index]

        return apply_layer(self.layers[index], self.shape, x, place, remember)


def apply_layer(layer: DecoderLayer, shape: ModelShape, x: Tensor, place: AttentionSpan, remember: Remember) -> Tensor:
    """One layer over `x` (tokens, width). `remember` takes the keys and values of these tokens (kv_heads, tokens,
    head_dim) and gives those of all tokens so far."""
    import torch.nn.functional as F

    y = rms_norm(x, layer.norm, shape.eps)
    q = _heads(linear(y, layer.q, layer.q_bias), shape.heads, layer.q_norm, shape)
    k = _heads(linear(y, layer.k, layer.k_bias), shape.kv_heads, layer.k_norm, shape)
    v = _heads(linear(y, layer.v, layer.v_bias), shape.kv_heads, None, shape)
    keys, values = remember(_rotate(k, place), v)
    mixed = attend(_rotate(q, place), keys, values, place)
    x = x + linear(mixed.transpose(0, 1).reshape(len(x), -1), layer.o)
    y = rms_norm(x, layer.inner_norm, shape.eps)
    return x + linear(F.silu(linear(y, layer.gate)) * linear(y, layer.up), layer.down)


def span_of(shape: ModelShape, span: tuple[int, int], like: Tensor) -> AttentionSpan:
    """The place of a span of tokens (start, end) for such a model, in the type and on the device of `like`."""
    return attention_span(span, (shape.head_dim, shape.theta), (shape.heads, shape.kv_heads), like)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last axis, in fp32 inside."""
    wide = x.float()
    return weight * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def _layer(weights: Mapping[str, Tensor], index: int) -> DecoderLayer:
    named = {field: weights.get(f"layers.{index}.{name}") for field, name in _NAMES.items()}
    missing = [_NAMES[field] for field, weight in named.items() if weight is None and field not in _OPTIONAL]
    if missing:
        raise KeyError(f"layers.{index}.{missing[0]}")
    return DecoderLayer(**{field: weight for field, weight in named.items() if weight is not None})


def _heads(x: Tensor, heads: int, norm: Tensor | None, shape: ModelShape) -> Tensor:
    """(tokens, heads * head_dim) to (heads, tokens, head_dim), normed per head where the model does."""
    split = x.view(len(x), heads, shape.head_dim)
    return (split if norm is None else rms_norm(split, norm, shape.eps)).transpose(0, 1)


def _rotate(x: Tensor, place: AttentionSpan) -> Tensor:
    import torch

    half = x.shape[-1] // 2
    return x * place.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * place.sin
