"""The search space: optimisers that propose flat vectors (sep-CMA-ES, random search), the candidates these become,
and the hidden states that candidates share.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError, UsageError, installing
from fugu_cli.system import atomic_files

if TYPE_CHECKING:
    from cma import CMAEvolutionStrategy
    from torch import Tensor

Numbers = NDArray[np.float64]

SIGMA = 0.03
"""sigma0 of TRINITY's published run."""


def population_size(count: int) -> int:
    """4 + floor(3 ln N): 33 for N = 19,456 (the paper pins 32)."""
    return 4 + math.floor(3 * math.log(count))


class SepCMA:
    """sep-CMA-ES (Ros & Hansen, PPSN X 2008) through `cma` with CMA_diagonal: memory grows with N, not with N x N.

    mu is half the population, the weights are log-rank. The result is the distribution's mean, not the best sample.
    """

    def __init__(
        self,
        start: Numbers,
        population: int,
        *,
        sigma: float = SIGMA,
        seed: int = 0,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`start` (N,); `more` are other options of `cma`. Raises UsageError where `cma` is not installed or the
        population is too small."""
        if population < 4:
            raise UsageError(f"a population of {population} cannot be ranked", hint="give --population 4 or more")
        self._random = np.random.RandomState(seed)
        options = {
            "CMA_diagonal": True,
            "popsize": population,
            "randn": self._random.randn,
            "seed": np.nan,  # the generator above is seeded, the global one stays untouched
            "verbose": -9,
            "verb_log": 0,
            **(more or {}),
        }
        self._search: CMAEvolutionStrategy = cma_strategy()(start, sigma, options)

    @property
    def mean(self) -> Numbers:
        """(N,)."""
        return np.array(self._search.mean, dtype=np.float64)

    @property
    def sigma(self) -> float:
        """The step size now."""
        return float(self._search.sigma)

    @property
    def evaluations(self) -> int:
        """Candidates judged so far."""
        return int(self._search.countevals)

    def ask(self) -> Numbers:
        """(population, N)."""
        return np.array(self._search.ask(), dtype=np.float64)

    def tell(self, candidates: Numbers, fitness: Numbers) -> None:
        """Raises ValueError for a fitness that is no number: `cma` would go on with it for ever."""
        if not np.isfinite(fitness).all():
            raise ValueError("a candidate's fitness is not a number")
        self._search.tell(list(candidates), list(-fitness))

    def pack(self) -> bytes:
        """The whole search with its generator. Only ever read back by `unpack` from the run's own folder."""
        return pickle.dumps((self._random, self._search))

    @classmethod
    def unpack(cls, data: bytes) -> SepCMA:
        """The search exactly as it was."""
        cma_strategy()
        made = cls.__new__(cls)
        made._random, made._search = pickle.loads(data)
        return made


def cma_strategy() -> type[CMAEvolutionStrategy]:
    """`cma`, imported when it is needed; its wish for a plotting library is not passed on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cma
    except ImportError as error:
        raise UsageError(
            "cma is not installed, so nothing can be evolved",
            hint=f"it is part of the extra `train`: {installing('cma>=4')}",
        ) from error
    found: type[CMAEvolutionStrategy] = cma.CMAEvolutionStrategy
    return found


Logits = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vector]
"""Hidden states (n, width) of texts; computed once and kept."""


class Candidates(Protocol):
    """Candidates that can be asked."""

    @property
    def size(self) -> int:
        """How many they are."""

    def logits(self, texts: Sequence[str]) -> Logits:
        """(size, texts, head rows)."""


@dataclass(frozen=True)
class HeadCandidates:
    """Candidates that differ in their heads: `heads` (size, rows, width). Where they differ in their `offsets` (size,
    sum of seven blocks) too, `see` gives each its own states (size, n, width); else everybody's (n, width)."""

    heads: Vector
    see: Encode
    offsets: Vector | None = None

    @property
    def size(self) -> int:
        return len(self.heads)

    def logits(self, texts: Sequence[str]) -> Logits:
        """One product for all candidates."""
        states = self.see(texts)
        form = "prw,tw->ptr" if states.ndim == 2 else "prw,ptw->ptr"
        return np.asarray(np.einsum(form, self.heads, states, optimize=True), np.float32)


SAVE_EVERY = 100

TellCount = Callable[[int, int], None]
"""How many of how many are done."""


def hidden_states_of(
    backbone: Backbone, texts: Sequence[str], store: Path, tell: TellCount, *, offsets: str = ""
) -> Vector:
    """(texts, width), the state at each text's penultimate token. Read in sorted order, for shared beginnings.

    `offsets` names what was put on the backbone (`named`): other offsets, other states.
    """
    file = store / f"states-{backbone.identity[:16]}{offsets}.npz"
    known = _load(file)
    wanted = [hashlib.sha256(text.encode(errors="replace")).hexdigest()[:24] for text in texts]
    missing = sorted({(text, key) for text, key in zip(texts, wanted, strict=True) if key not in known})
    for number, (text, key) in enumerate(missing, start=1):
        known[key] = backbone.read(backbone.tokens(text)).hidden
        if number % SAVE_EVERY == 0 or number == len(missing):
            _save(file, known)
        tell(number, len(missing))
    return np.stack([known[key] for key in wanted]).astype(np.float32)


def states_name(offsets: Sequence[Vector], tied: svf.Tied = "untied") -> str:
    """What states are called that were read with these nine blocks; "" for those of the plain backbone."""
    if not any(block.any() for block in offsets):
        return ""
    return "-" + hashlib.sha256(tied.encode() + np.concatenate(offsets).tobytes()).hexdigest()[:12]


def apply_offsets(backbone: Backbone, offsets: Sequence[Vector], tied: svf.Tied, spectra: Path) -> str:
    """Lets a plain backbone read with nine blocks of offsets from now on; gives what its states are called then."""
    try:
        svf.SvfAdapter(backbone.model, spectra).apply(offsets, tied)
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint's offsets cannot be applied: {error}", hint="begin with another checkpoint"
        ) from error
    backbone.forget()
    return states_name(offsets, tied)


def _load(file: Path) -> dict[str, Vector]:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
            return {key: found[key] for key in found.files}
    except (OSError, ValueError, EOFError, BadZipFile):
        return {}


def _save(file: Path, known: dict[str, Vector]) -> None:
    with atomic_files.replacement_file(file) as draft:
        np.savez(draft, allow_pickle=False, **known)


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
            read = hidden_states_of(self._backbone, missing, self._store, self._progress, offsets=self.offsets)
            self._known.update(zip(missing, read, strict=True))
        return np.stack([self._known[text] for text in texts])

    def _progress(self, done: int, total: int) -> None:
        if total >= 100 and (done % 100 == 0 or done == total):
            self._tell(f"  {done} of {total} transcripts read")


class LayerStates:
    """Hidden states of texts for many offsets of the second-to-last layer, which must not lie on the backbone; others
    may. What the layer is given is kept."""

    def __init__(self, backbone: Backbone, adapter: svf.SvfAdapter) -> None:
        from fugu_cli.training.fitting import LastLayers

        self._backbone = backbone
        self._tail = LastLayers(backbone, adapter, wide=False)
        self._below: dict[str, Tensor] = {}
        self.count = sum(self._tail.sizes)

    def of(self, texts: Sequence[str], offsets: Vector) -> Vector:
        """(size, n, width) for offsets (size, count)."""
        found = []
        for text in texts:
            key = hashlib.sha256(text.encode(errors="replace")).hexdigest()
            if key not in self._below:
                tokens = self._backbone.tokens(text)
                self._below[key] = self._tail.below(tokens[:-1] or tokens)
            found.append(self._tail.states(self._below[key], offsets))
        return np.stack(found, 1)


class HeadLayout:
    """Points of the search: the head alone, or with `layer` its offsets before the head; the others stay those that the
    search began with."""

    def __init__(self, states: HiddenStates, rows: int, sample: Vector, layer: LayerStates | None = None) -> None:
        """`rows` of the head, roles included. `sample` (n, width): states that give the units."""
        self._states = states
        self._rows = rows
        self._layer = layer
        self._shift = layer.count if layer else 0
        self.scale: Vector = state_scale(sample)

    def start(self, head: Vector, offsets: Sequence[Vector] = ()) -> Numbers:
        """A head (rows, width) and nine blocks of offsets as a point (N,) of the search."""
        own = offsets[1:8] if self._layer else ()
        return np.concatenate([*own, (head.astype(np.float64) * self.scale).reshape(-1)])

    def head(self, vector: Numbers) -> Vector:
        """The head (rows, width) of a point."""
        return np.asarray(vector[self._shift :].reshape(self._rows, -1) / self.scale, np.float32)

    def offsets(self, vector: Numbers) -> Vector:
        """The seven blocks' offsets of a point, one after another; (0,) where the head alone is searched."""
        return np.asarray(vector[: self._shift], np.float32)

    def breed(self, vectors: Numbers) -> Candidates:
        """Points (size, N) to candidates."""
        heads, layer = np.stack([self.head(vector) for vector in vectors]), self._layer
        if layer is None:
            return HeadCandidates(heads, self._states)
        offsets = np.stack([self.offsets(vector) for vector in vectors])
        return HeadCandidates(heads, lambda texts: layer.of(texts, offsets), offsets)


def state_scale(sample: Vector) -> Vector:
    """The root mean square (width,) of each number of hidden states."""
    return np.asarray(np.maximum(np.sqrt(np.square(sample.astype(np.float64)).mean(0)), 1e-6), np.float32)


def checkpoint_vector(base: Sequence[Vector], own: Vector, head: Vector) -> Vector:
    """A checkpoint's flat vector (svf.join): the nine blocks of `base`, with the layer's `own` ones where a layout has
    some (HeadLayout.offsets), and the head."""
    blocks = list(base)
    if len(own):
        blocks[1:8] = np.split(own, np.cumsum([len(block) for block in base[1:8]])[:-1])
    return svf.join(blocks, head)
