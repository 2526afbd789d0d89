"""A backbone that has read the transcripts of `sessions.toml` already: their hidden states, from a
file.

`python -m tests.unit.coordinators.recorded_states CACHE` writes the file anew, with the embedded
backbone of a cache folder (`fugu models pull`): after a change of the sessions, of the transcript
or of the shipped checkpoint's offsets.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np
from safetensors.numpy import load_file, save_file

from fugu_cli.coordinators import checkpoint
from fugu_cli.coordinators.trinity import (
    SHIPPED,
    HeadReader,
    ReadTranscript,
    Trinity,
    TrinityFiles,
    backbone_folder,
    load_parts,
    reader_with,
    transcript_of,
)
from fugu_cli.session.events import Assigned, DecisionTimings, Event, Member
from tests.unit.coordinators.sessions import Session, sessions

STATES = Path(__file__).parent / "data" / "sessions.safetensors"


class _Recorded(HeadReader):
    """Knows the states behind some texts."""

    def __init__(self) -> None:
        super().__init__(_shipped().meta, _nothing)

    def known(self, events: Sequence[Event], members: Sequence[Member]) -> ReadTranscript:
        text = transcript_of(self.meta, events, members)
        state = _states().get(_key(text))
        assert state is not None, f"nobody has read this transcript; see {__name__}:\n{text}"
        scores = _shipped().head @ state.astype(np.float32)
        return ReadTranscript(text, tuple(scores.tolist()), 1, 0, DecisionTimings())

    def warm(self) -> None:  # type: ignore[override]
        """Nothing is to be loaded."""


def _nothing() -> NoReturn:
    raise AssertionError


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
    return Trinity(_Recorded(), session.pool, session.settings)


def main(cache: Path) -> None:
    """Read every transcript once and keep the states, at half precision: that moves no logit by
    more than 0.01.
    """
    files = TrinityFiles(None, None, cache)
    shipped, backbone = load_parts(SHIPPED, backbone_folder(files), cache)
    found: dict[str, np.ndarray] = {}
    for session in sessions():
        decision = asyncio.run(
            Trinity(reader_with(shipped, backbone), session.pool, session.settings).decide(
                session.events
            )
        )
        if isinstance(decision, Assigned):
            text = transcript_of(shipped.meta, session.events, session.pool)
            found[_key(text)] = backbone.read(backbone.tokens(text), fresh=True).hidden.astype(
                np.float16
            )
    save_file(found, STATES)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
