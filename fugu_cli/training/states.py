"""Hidden states of many transcripts: computed once per backbone and text, kept on the disk.

The slow part of a warm start; everything after it takes seconds. Knows nothing of targets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from fugu_cli import atomic
from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.svf import Vector
from fugu_cli.errors import ConfigError

SAVE_EVERY = 100

Tell = Callable[[int, int], None]
"""How many of how many are done."""


def states(backbone: Backbone, texts: Sequence[str], store: Path, tell: Tell, *, offsets: str = "") -> Vector:
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


def named(offsets: Sequence[Vector], tied: svf.Tied = "untied") -> str:
    """What states are called that were read with these nine blocks; "" for those of the plain backbone."""
    if not any(block.any() for block in offsets):
        return ""
    return "-" + hashlib.sha256(tied.encode() + np.concatenate(offsets).tobytes()).hexdigest()[:12]


def put_on(backbone: Backbone, offsets: Sequence[Vector], tied: svf.Tied, spectra: Path) -> str:
    """Lets a plain backbone read with nine blocks of offsets from now on; gives what its states are called then."""
    try:
        svf.Adapter(backbone.decoder, spectra).apply(offsets, tied)
    except ValueError as error:
        raise ConfigError(
            f"the checkpoint's offsets cannot be applied: {error}", hint="begin with another checkpoint"
        ) from error
    backbone.forget()
    return named(offsets, tied)


def _load(file: Path) -> dict[str, Vector]:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
            return {key: found[key] for key in found.files}
    except (OSError, ValueError, EOFError, BadZipFile):
        return {}


def _save(file: Path, known: dict[str, Vector]) -> None:
    with atomic.beside(file) as draft:
        np.savez(draft, allow_pickle=False, **known)
