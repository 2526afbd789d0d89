"""Secrets in stored contents that only a session's log still knows: by the marks that stand there in their place.

Diffs are made of contents as they were, in a shell that may not have the variable whose value was masked when the
session ran. Nothing is kept for this: a word is masked when its mark is in the log and the word itself is nowhere in
it. What a word is has no rule, so a secret with a space in it is not found. Stands over masking.py, for people's views.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from fugu_cli.masking import MARK, mark
from fugu_cli.secret_values import SHORTEST, is_word

_RUN = re.compile(rf"\S{{{SHORTEST},}}")
_EDGE = re.compile(r"[\"'`=:,;()<>{}\[\]@/&?|\\]|^[+-]")
FURTHEST, MOST = 24, 200
"""Edges that a secret may hold; none, where a run has so many that looking would take seconds."""


class Remembered:
    """A mask that also knows what the logs at `paths` masked. They are read when there is something to mask."""

    def __init__(self, paths: Sequence[Path], mask: Callable[[str], str]) -> None:
        self._paths = paths
        self._mask = mask
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """`text` without secrets."""
        text = self._mask(text)
        return _RUN.sub(lambda run: self._run(run.group()), text) if self._marks else text

    @cached_property
    def _told(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in self._paths if path.is_file())

    @cached_property
    def _marks(self) -> frozenset[str]:
        return frozenset(MARK.findall(self._told))

    def _run(self, run: str) -> str:
        if run not in self._known:
            found = next(
                (piece for piece in _pieces(run) if mark(piece) in self._marks and piece not in self._told), ""
            )
            self._known[run] = mark(found).join(map(self._run, run.split(found))) if found else run
        return self._known[run]


def _pieces(run: str) -> Iterator[str]:
    """What may be a word in it, from one edge to another, the longest first."""
    cuts = sorted({0, len(run), *(at for edge in _EDGE.finditer(run) for at in edge.span())})
    reach = FURTHEST if len(cuts) <= MOST else 2
    pairs = ((start, end) for at, start in enumerate(cuts) for end in cuts[at + 1 : at + reach])
    yield from sorted((run[a:b] for a, b in pairs if not is_word(run[a:b])), key=len, reverse=True)
