"""A backbone that has read the transcripts of `sessions.toml` already: their hidden states, from a file.

`python -m tests.unit.coordinators.recorded_states CACHE` writes the file anew, with the embedded backbone of a cache
folder (`fugu models pull`): after a change of the sessions, of the transcript or of the shipped checkpoint's offsets.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from safetensors.numpy import load_file, save_file

from fugu_cli.coordinators import checkpoint
from fugu_cli.coordinators.backbone import Backbone, HiddenState
from fugu_cli.coordinators.backbone_files import ModelShape
from fugu_cli.coordinators.trinity import SHIPPED, Trinity, TrinityFiles, backbone_folder, load_parts
from fugu_cli.session.events import Assigned
from tests.unit.coordinators.sessions import Session, sessions

STATES = Path(__file__).parent / "data" / "sessions.safetensors"
SHAPE = ModelShape(896, 24, 14, 2, 64, 4864, 151936, True)


class _Recorded:
    """What Trinity asks of a Backbone. The only token of a text stands for the whole of it."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.shape = SHAPE
        self.template = ""
        self._states = _states()
        self._texts: list[str] = []

    def count(self, text: str) -> int:
        return len(text) // 4

    def tokens(self, text: str) -> list[int]:
        self._texts.append(text)
        return [len(self._texts) - 1]

    def read(self, tokens: Sequence[int], *, fresh: bool = False) -> HiddenState:
        text = self._texts[tokens[0]]
        state = self._states.get(_key(text))
        assert state is not None, f"nobody has read this transcript; see {__name__}:\n{text}"
        return HiddenState(state.astype(np.float32), len(text), 0)


@cache
def _states() -> dict[str, np.ndarray]:
    return load_file(STATES)


@cache
def _shipped() -> checkpoint.Checkpoint:
    return checkpoint.load(SHIPPED)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded_trinity(session: Session) -> Trinity:
    """The shipped checkpoint over a session's pool."""
    shipped = _shipped()
    return Trinity(shipped, cast(Backbone, _Recorded(shipped.meta.backbone)), session.pool, session.settings)


def main(cache: Path) -> None:
    """Read every transcript once and keep the states, at half precision: that moves no logit by more than 0.01."""
    files = TrinityFiles(None, None, cache)
    parts = load_parts(SHIPPED, backbone_folder(files), cache)
    found: dict[str, np.ndarray] = {}
    for session in sessions():
        trinity = Trinity(*parts, session.pool, session.settings)
        decision = asyncio.run(trinity.decide(session.events))
        if isinstance(decision, Assigned):
            read = asyncio.run(trinity.read(session.events))
            found[_key(read.text)] = read.reading.hidden.astype(np.float16)
    save_file(found, STATES)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
