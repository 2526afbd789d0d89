"""SVF: a weight changed through its singular values alone (Transformer-Squared, ICLR 2025).

W = U diag(s) V^T (original weight),  s' = (1 + delta) * s,  W' = U diag(s') V^T * (sum s / sum s')

Nine matrices, in this order: input embedding; q, k, v, o, gate, up, down of the second-to-last
layer; LM head. A flat vector is their offsets, min(rows, columns) each, then the head, row-major.
Changes the weights of a loaded model.

Departures: U diag((1 + delta) s) V^T = W V diag(1 + delta) V^T needs only the basis of the shorter
side, so only that is kept (22 MB for nine matrices, not 1.5 GB). It comes from the Gram matrix in
fp64, nearer to the exact SVD than an fp32 one. The embedding's map is applied to looked-up rows,
not to the whole table. The LM head is never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators.backbone_files import ModelShape
from fugu_cli.system import atomic_files

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Linear, Module
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

Vector = NDArray[np.float32]
Tied = Literal["untied", "authors"]
"""The block that moves the input embedding if it is one tensor with the LM head.

The first, or the ninth as in the authors' code, where the later write wins.
"""

LAYER_BLOCKS = ("q", "k", "v", "o", "gate", "up", "down")
BLOCKS = ("embedding", *LAYER_BLOCKS, "lm_head")

ROWS_AT_ONCE = 8192


def layer_matrices(layer: Module) -> dict[str, Linear]:
    """Return the seven matrices of a layer, by block."""
    parts = {
        name: layer.mlp if name in ("gate", "up", "down") else layer.self_attn
        for name in LAYER_BLOCKS
    }
    return {name: getattr(part, f"{name}_proj") for name, part in parts.items()}


@dataclass(frozen=True)
class Spectrum:
    """Singular values, largest first (r,), and the shorter side's singular vectors as columns (r,
    r), both fp32.
    """

    values: Tensor
    basis: Tensor


def ranks(shape: ModelShape) -> tuple[int, ...]:
    """Return min(rows, columns) of the nine matrices."""
    width, queries, keys = (
        shape.width,
        shape.heads * shape.head_dim,
        shape.kv_heads * shape.head_dim,
    )
    table = min(shape.vocab, width)
    inner = min(shape.inner, width)
    return (
        table,
        min(queries, width),
        min(keys, width),
        min(keys, width),
        min(queries, width),
        *[inner] * 3,
        table,
    )


def split(vector: Vector, sizes: Sequence[int], width: int) -> tuple[tuple[Vector, ...], Vector]:
    """Split a flat vector into the offsets of nine blocks and the head (rows, width). Raises
    ValueError if the sizes do not fit.
    """
    offsets = sum(sizes)
    if vector.ndim != 1 or len(vector) <= offsets or (len(vector) - offsets) % width:
        raise ValueError(f"{vector.shape} is not {offsets} offsets and a head of rows of {width}")
    ends = np.cumsum(sizes)
    blocks = tuple(vector[end - size : end] for size, end in zip(sizes, ends, strict=True))
    return blocks, vector[offsets:].reshape(-1, width)


def join(offsets: Sequence[Vector], head: Vector) -> Vector:
    """Return the flat vector of nine blocks and a head."""
    return np.concatenate([*offsets, head.reshape(-1)]).astype(np.float32)


def spectrum(weight: Tensor) -> Spectrum:
    """Return the SVD's values and short side of `weight`, from its Gram matrix, in fp64 inside."""
    import torch

    tall = weight if weight.shape[0] >= weight.shape[1] else weight.T
    gram = torch.zeros(tall.shape[1], tall.shape[1], dtype=torch.float64)
    for rows in tall.split(ROWS_AT_ONCE):
        piece = rows.to("cpu", torch.float64)
        gram.addmm_(piece.T, piece)
    squares, vectors = torch.linalg.eigh(gram)
    return Spectrum(squares.clamp_min(0).sqrt().flip(0).float(), vectors.flip(1).float())


def update_map(decomposition: Spectrum, offsets: Vector) -> Tensor:
    """Return the map (r, r), fp32, that W is multiplied with on its shorter side to give W'.

    Raises ValueError where the changed singular values sum to zero: there is no scale that keeps
    the energy.
    """
    import torch

    scale = 1 + torch.from_numpy(np.array(offsets, dtype=np.float32))
    changed = (scale * decomposition.values).sum()
    if not torch.isfinite(changed) or abs(float(changed)) < 1e-12:
        raise ValueError("these offsets cancel the singular values")
    return scaled_map(decomposition, scale)


def scaled_map(decomposition: Spectrum, scale: Tensor) -> Tensor:
    """Return the same map for 1 + delta given as a tensor; gradients flow through it."""
    energy = decomposition.values.sum() / (scale * decomposition.values).sum()
    return (decomposition.basis * (scale * energy)) @ decomposition.basis.T


def updated_weight(weight: Tensor, decomposition: Spectrum, offsets: Vector) -> Tensor:
    """Return W' in the type of `weight`; `weight` itself if all offsets are zero."""
    if not np.any(offsets):
        return weight
    by = update_map(decomposition, offsets).to(weight.device)
    wide = weight.float()
    updated = wide @ by if weight.shape[0] >= weight.shape[1] else by @ wide
    return updated.to(weight.dtype)


class SvfAdapter:
    """Applies offsets to a model, always to its original weights, and removes them again. Spectra
    are computed when a block first has a nonzero offset, and kept in `store`, a folder for this
    backbone.
    """

    def __init__(self, model: PreTrainedModel, store: Path | None = None) -> None:
        self._model = model
        self._store = store
        self._matrices = layer_matrices(model.layers[-2])
        self._original = {name: matrix.weight.data for name, matrix in self._matrices.items()}
        self._hook: RemovableHandle | None = None
        self._spectra: dict[str, Spectrum] = {}

    def apply(self, offsets: Sequence[Vector], tied: Tied = "untied") -> None:
        """Put offsets on all nine blocks. Zeros restore the original weights exactly. Hidden states
        that were read before are stale afterwards.
        """
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        table = (
            offsets[8]
            if tied == "authors" and self._model.config.tie_word_embeddings
            else offsets[0]
        )
        if np.any(table):
            by = update_map(self.spectrum("embedding"), table).to(self._model.device)
            self._hook = self._model.embed_tokens.register_forward_hook(
                lambda _module, _tokens, rows: (rows.float() @ by).to(rows.dtype)
            )
        for name, block in zip(LAYER_BLOCKS, offsets[1:8], strict=True):
            weight = self._original[name]
            changed = (
                updated_weight(weight, self.spectrum(name), block) if np.any(block) else weight
            )
            self._matrices[name].weight.data = changed

    def spectrum(self, block: str) -> Spectrum:
        """Return the block's spectrum, from the cache, the disk, or computed now."""
        if block not in self._spectra:
            self._spectra[block] = self._load(block) or self._compute(block)
        return self._spectra[block]

    def _load(self, block: str) -> Spectrum | None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if self._store is None:
            return None
        try:
            tensors = load_file(self._store / f"{block}.safetensors")
            return Spectrum(tensors["values"], tensors["basis"])
        except (OSError, SafetensorError, KeyError):
            return None  # absent or cut short: it is computed again and written over

    def _compute(self, block: str) -> Spectrum:
        from safetensors.torch import save

        if block == "embedding":
            weight = self._model.embed_tokens.weight.data
        else:
            weight = self._original[block]
        decomposition = spectrum(weight)
        if self._store is not None:
            data = save({"values": decomposition.values, "basis": decomposition.basis.contiguous()})
            with atomic_files.replacement_file(self._store / f"{block}.safetensors") as draft:
                draft.write_bytes(data)
        return decomposition
