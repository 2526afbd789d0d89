"""Search vectors: numbers of a search become candidates that read - the layout of what is evolved, and states on the
disk.

Between the optimiser's flat vector and the texts a trial shows. Two layouts: the head alone, where all candidates read
the same states; or the head with the SVF offsets of the second-to-last layer, where candidates share everything below
it (population.py).

    z = [ seven blocks of offsets (or none) | (L + 3) x width head in units of 1 / rms(h) ]
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.svf import Vector
from fugu_cli.training.candidates import Candidates, Heads, Shaped
from fugu_cli.training.optimise import Numbers
from fugu_cli.training.states import states

if TYPE_CHECKING:
    from torch import Tensor

Tell = Callable[[str], None]


class HiddenStates:
    """Hidden states of texts: from memory, the disk, or read now. `offsets` names what lies on the backbone
    (states.named)."""

    def __init__(self, backbone: Backbone, store: Path, tell: Tell, offsets: str = "") -> None:
        self.offsets = offsets
        self._backbone = backbone
        self._store = store
        self._tell = tell
        self._known: dict[str, Vector] = {}

    def __call__(self, texts: Sequence[str]) -> Vector:
        """(n, width)."""
        missing = sorted({text for text in texts if text not in self._known})
        if missing:
            read = states(self._backbone, missing, self._store, self._progress, offsets=self.offsets)
            self._known.update(zip(missing, read, strict=True))
        return np.stack([self._known[text] for text in texts])

    def _progress(self, done: int, total: int) -> None:
        if total >= 100 and (done % 100 == 0 or done == total):
            self._tell(f"  {done} of {total} transcripts read")


class HeadLayout:
    """The head alone is searched; the offsets stay those that the search began with."""

    def __init__(self, hidden_states: HiddenStates, rows: int, sample: Vector) -> None:
        """`rows` of the head, roles included. `sample` (n, width): states that give the units."""
        self._states = hidden_states
        self._rows = rows
        self.scale: Vector = units(sample)

    @property
    def count(self) -> int:
        """N."""
        return self._rows * len(self.scale)

    def start(self, head: Vector, offsets: Sequence[Vector] = ()) -> Numbers:
        """A head (rows, width) as a point of the search; its nine blocks of offsets are no part of it."""
        return np.asarray(head.astype(np.float64) * self.scale).reshape(-1)

    def head(self, vector: Numbers) -> Vector:
        """The head (rows, width) of a point."""
        return np.asarray(vector.reshape(self._rows, -1) / self.scale, np.float32)

    def offsets(self, vector: Numbers) -> Vector:
        """None of its own: (0,)."""
        return np.zeros(0, np.float32)

    def breed(self, vectors: Numbers) -> Candidates:
        """Points (size, N) to candidates."""
        return Heads(np.stack([self.head(vector) for vector in vectors]), self._states)


class LayerLayout:
    """Head and the offsets of the second-to-last layer, which must not lie on the backbone; others may."""

    def __init__(self, backbone: Backbone, adapter: svf.Adapter, rows: int, sample: Vector) -> None:
        from fugu_cli.training.offsets import Tail
        from fugu_cli.training.population import Population

        self._backbone = backbone
        self._tail = Tail(backbone.decoder, adapter)
        self._population = Population(backbone.decoder, adapter)
        self._rows = rows
        self._below: dict[str, Tensor] = {}
        self._shift = sum(self._population.sizes)
        self.scale: Vector = units(sample)

    @property
    def count(self) -> int:
        """N."""
        return self._shift + self._rows * len(self.scale)

    def start(self, head: Vector, offsets: Sequence[Vector]) -> Numbers:
        """A head (rows, width) and nine blocks of offsets as a point of the search."""
        return np.concatenate([*offsets[1:8], (head.astype(np.float64) * self.scale).reshape(-1)])

    def head(self, vector: Numbers) -> Vector:
        """The head (rows, width) of a point."""
        return np.asarray(vector[self._shift :].reshape(self._rows, -1) / self.scale, np.float32)

    def offsets(self, vector: Numbers) -> Vector:
        """The seven blocks' offsets of a point, one after another."""
        return np.asarray(vector[: self._shift], np.float32)

    def breed(self, vectors: Numbers) -> Candidates:
        """Points (size, N) to candidates."""
        offsets = np.stack([self.offsets(vector) for vector in vectors])
        heads = np.stack([self.head(vector) for vector in vectors])
        return Shaped(heads, offsets, lambda texts: self._states(texts, offsets))

    def _states(self, texts: Sequence[str], offsets: Vector) -> Vector:
        import torch

        found = []
        for text in texts:
            key = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            if key not in self._below:
                tokens = self._backbone.tokens(text)
                self._below[key] = self._tail.below(torch.tensor(tokens[:-1] or tokens))
            found.append(self._population.states(self._below[key], offsets))
        return np.stack(found, 1)


Layout = HeadLayout | LayerLayout


def units(sample: Vector) -> Vector:
    """The root mean square (width,) of each number of hidden states."""
    return np.asarray(np.maximum(np.sqrt(np.square(sample.astype(np.float64)).mean(0)), 1e-6), np.float32)


def vector_of(base: Sequence[Vector], own: Vector, head: Vector) -> Vector:
    """A checkpoint's flat vector (svf.join): the nine blocks of `base`, with the layer's `own` ones where a layout has
    some (Layout.offsets), and the head."""
    blocks = list(base)
    if len(own):
        blocks[1:8] = np.split(own, np.cumsum([len(block) for block in base[1:8]])[:-1])
    return svf.join(blocks, head)
