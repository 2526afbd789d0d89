"""The search space of an evolution: points as candidates, their decisions on texts, and shared
hidden states.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError
from fugu_cli.system import atomic_files

if TYPE_CHECKING:
    from torch import Tensor

Numbers = NDArray[np.float64]

Logits = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vector]
"""Hidden states (n, width) of texts; computed once and kept."""


class Candidates(Protocol):
    """Candidates that can be asked."""

    @property
    def size(self) -> int:
        """Return the number of candidates."""

    def logits(self, texts: Sequence[str]) -> Logits:
        """Return the logits (size, texts, head rows)."""


@dataclass(frozen=True)
class HeadCandidates:
    """Candidates that differ in their heads: `heads` (size, rows, width). Where they differ in
    their `offsets` (size, sum of seven blocks) too, `see` gives each its own states (size, n,
    width); else everybody's (n, width)."""

    heads: Vector
    see: Encode
    offsets: Vector | None = None

    @property
    def size(self) -> int:
        return len(self.heads)

    def logits(self, texts: Sequence[str]) -> Logits:
        """Compute the logits of all candidates in one product."""
        states = self.see(texts)
        form = "prw,tw->ptr" if states.ndim == 2 else "prw,ptw->ptr"
        return np.asarray(np.einsum(form, self.heads, states, optimize=True), np.float32)


def states_name(offsets: Sequence[Vector], tied: svf.Tied = "untied") -> str:
    """Return the name of states that were read with these nine blocks, "" for the plain backbone."""
    if not any(block.any() for block in offsets):
        return ""
    return "-" + hashlib.sha256(tied.encode() + np.concatenate(offsets).tobytes()).hexdigest()[:12]


def apply_offsets(
    backbone: Backbone, offsets: Sequence[Vector], tied: svf.Tied, spectra: Path
) -> str:
    """Make a plain backbone read with nine blocks of offsets. Return the name of its states."""
    try:
        svf.SvfAdapter(backbone.model, spectra).apply(offsets, tied)
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint's offsets cannot be applied: {error}",
            hint="begin with another checkpoint",
        ) from error
    backbone.forget()
    return states_name(offsets, tied)


Tell = Callable[[str], None]
SAVE_EVERY = 200
"""States that are read before the file of them is written again."""
TELL_EVERY_SECONDS = 5.0


class HiddenStates:
    """Hidden states of texts, each at its penultimate token: from memory, the disk, or read now.
    Whoever asks for single texts calls `save` in the end.
    """

    def __init__(self, backbone: Backbone, store: Path, tell: Tell, offsets: str = "") -> None:
        """Create the states. `offsets` names the offsets on the backbone (`states_name`): other
        offsets, other states.
        """
        self.offsets = offsets
        self._backbone = backbone
        self._file = store / f"states-{backbone.identity[:16]}{offsets}.npz"
        self._tell = tell
        self._states: dict[str, Vector] | None = None
        self._unsaved = 0
        self._told_at = time.monotonic()

    def __call__(self, texts: Sequence[str]) -> Vector:
        """Return the states (n, width). New texts are read in sorted order, for shared
        beginnings.
        """
        if self._states is None:
            self._states = _load(self._file)
        keys = [hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24] for text in texts]
        missing = sorted(
            {(text, key) for text, key in zip(texts, keys, strict=True) if key not in self._states}
        )
        for number, (text, key) in enumerate(missing, start=1):
            self._states[key] = self._backbone.read(self._backbone.tokens(text)).hidden
            self._unsaved += 1
            if self._unsaved >= SAVE_EVERY:
                self.save()
            if time.monotonic() - self._told_at >= TELL_EVERY_SECONDS:
                self._told_at = time.monotonic()
                to_go = f", {len(missing) - number} to go" if number < len(missing) else ""
                self._tell(f"  {len(self._states)} transcripts read{to_go}")
        if len(missing) > 1:
            self.save()
        return np.stack([self._states[key] for key in keys]).astype(np.float32)

    def save(self) -> None:
        """Write new states into the file, if there are any."""
        if self._unsaved and self._states is not None:
            with atomic_files.replacement_file(self._file) as draft:
                np.savez(draft, allow_pickle=False, **self._states)
            self._unsaved = 0


def _load(file: Path) -> dict[str, Vector]:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except (OSError, ValueError, EOFError, BadZipFile):
        return {}


class LayerStates:
    """Hidden states of texts for many offsets of the second-to-last layer, which must not lie on
    the backbone; others may. What the layer is given is kept."""

    def __init__(self, backbone: Backbone, adapter: svf.SvfAdapter) -> None:
        from fugu_cli.training.fitting import LastLayers

        self._backbone = backbone
        self._tail = LastLayers(backbone, adapter, wide=False)
        self._below: dict[str, Tensor] = {}
        self.count = sum(self._tail.sizes)

    def of(self, texts: Sequence[str], offsets: Vector) -> Vector:
        """Return the states (size, n, width) for offsets (size, count)."""
        states = []
        for text in texts:
            key = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            if key not in self._below:
                tokens = self._backbone.tokens(text)
                self._below[key] = self._tail.below(tokens[:-1] or tokens)
            states.append(self._tail.states(self._below[key], offsets))
        return np.stack(states, 1)


class HeadLayout:
    """Points of the search: the head alone, or with `layer` its offsets before the head; the others
    stay those that the search began with."""

    def __init__(
        self, states: HiddenStates, rows: int, sample: Vector, layer: LayerStates | None = None
    ) -> None:
        """Create a layout. `rows` of the head include roles. `sample` (n, width) are states that
        give the units.
        """
        self._states = states
        self._rows = rows
        self._layer = layer
        self._shift = layer.count if layer else 0
        self.scale: Vector = state_scale(sample)

    def start(self, head: Vector, offsets: Sequence[Vector] = ()) -> Numbers:
        """Return a head (rows, width) and nine blocks of offsets as a point (N,) of the search."""
        own = offsets[1:8] if self._layer else ()
        return np.concatenate([*own, (head.astype(np.float64) * self.scale).reshape(-1)])

    def head(self, vector: Numbers) -> Vector:
        """Return the head (rows, width) of a point."""
        return np.asarray(vector[self._shift :].reshape(self._rows, -1) / self.scale, np.float32)

    def offsets(self, vector: Numbers) -> Vector:
        """Return the seven blocks' offsets of a point, one after another; (0,) if only the head is
        searched.
        """
        return np.asarray(vector[: self._shift], np.float32)

    def breed(self, vectors: Numbers) -> Candidates:
        """Turn points (size, N) into candidates."""
        heads, layer = np.stack([self.head(vector) for vector in vectors]), self._layer
        if layer is None:
            return HeadCandidates(heads, self._states)
        offsets = np.stack([self.offsets(vector) for vector in vectors])
        return HeadCandidates(heads, lambda texts: layer.of(texts, offsets), offsets)


def state_scale(sample: Vector) -> Vector:
    """Return the root mean square (width,) of each number of hidden states."""
    return np.asarray(
        np.maximum(np.sqrt(np.square(sample.astype(np.float64)).mean(0)), 1e-6), np.float32
    )


def checkpoint_vector(base: Sequence[Vector], own: Vector, head: Vector) -> Vector:
    """Return a checkpoint's flat vector (svf.join): the nine blocks of `base`, with the layer's
    `own` ones if a layout has some (HeadLayout.offsets), and the head.
    """
    blocks = list(base)
    if len(own):
        blocks[1:8] = np.split(own, np.cumsum([len(block) for block in base[1:8]])[:-1])
    return svf.join(blocks, head)
