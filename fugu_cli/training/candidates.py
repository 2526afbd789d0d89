"""Candidates: a population, each of which would decide differently on the same transcript.

Between evolve.py, which makes candidates, and the trials they are judged in. A trial hands over texts and gets every
candidate's logits at once: the candidates share what is computed of a text. Must not know what an answer is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators.svf import Vector

Logits = NDArray[np.float32]
See = Callable[[Sequence[str]], Vector]
"""Hidden states (n, width) of texts; computed once and kept."""


class Candidates(Protocol):
    """Candidates that can be asked."""

    @property
    def size(self) -> int:
        """How many they are."""

    def logits(self, texts: Sequence[str]) -> Logits:
        """(size, texts, head rows)."""


@dataclass(frozen=True)
class Heads:
    """Candidates that differ in their heads alone: `heads` (size, rows, width). The hidden states are everybody's."""

    heads: Vector
    see: See

    @property
    def size(self) -> int:
        return len(self.heads)

    def logits(self, texts: Sequence[str]) -> Logits:
        """One product for all candidates."""
        return np.asarray(np.einsum("prw,tw->ptr", self.heads, self.see(texts), optimize=True), np.float32)


@dataclass(frozen=True)
class Shaped:
    """Candidates with `offsets` (size, sum of seven blocks) of their own: `see` gives each its own states (size, n,
    width)."""

    heads: Vector
    offsets: Vector
    see: Callable[[Sequence[str]], Vector]

    @property
    def size(self) -> int:
        return len(self.heads)

    def logits(self, texts: Sequence[str]) -> Logits:
        """Each candidate's head on its own states."""
        return np.asarray(np.einsum("prw,ptw->ptr", self.heads, self.see(texts), optimize=True), np.float32)
