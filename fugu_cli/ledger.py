"""What was spent, read from the sessions themselves: every call that was paid for, with its time and its price.

The log is the only account there is: nothing is added up anywhere else, so nothing can disagree with it. A file is read
again only when it has grown; what a forked session has from its original counts once. Knows no limits (budgets.py) and
no screen (commands/cost.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from fugu_cli import log, sessions, views
from fugu_cli.errors import StorageError
from fugu_cli.events import Recorded
from fugu_cli.messages import Usage

FRESH = 2.0
"""Seconds for which a look at the files holds: a call takes longer."""


@dataclass(frozen=True)
class Payment:
    """One call that was paid for. `at` is seconds since the epoch; `dollars` at the prices the session knew."""

    at: float
    seq: int
    session: str
    repo: str
    agent: str
    usage: Usage
    dollars: float

    @property
    def day(self) -> date:
        """The day of this machine's clock."""
        return date.fromtimestamp(self.at)


def of_session(records: Sequence[Recorded], session: str) -> list[Payment]:
    """Its payments, oldest first."""
    events = [record.event for record in records]
    pool, opened = views.pool(events), views.opened(events)
    repo = opened.repo if opened else ""
    found = []
    for record in records:
        for agent, usage in views.usage([record.event]).items():
            dollars = views.cost([record.event], pool)
            found.append(Payment(record.at, record.seq, session, repo, agent, usage, dollars))
    return found


def everything(data: Path) -> list[Payment]:
    """Of all sessions. Files that are no sessions are left out."""
    return once(payment for path in sorted(sessions.paths(data)) for payment in _read(path))


def once(payments: Iterable[Payment]) -> list[Payment]:
    """Without what a forked session repeats of its original: the same line at the same time."""
    return list({(one.at, one.seq, one.agent): one for one in payments}.values())


def _read(path: Path) -> list[Payment]:
    try:
        return of_session(log.read(path), path.stem)
    except StorageError:
        return []


class Ledger:
    """What all sessions but one spent: today, and in one project. Fits budgets.Elsewhere."""

    def __init__(self, data: Path, root: Path, own: Path | None = None) -> None:
        self._data = data
        self._root = str(root)
        self._own = own
        self._known: dict[Path, tuple[int, list[Payment]]] = {}
        self._looked = float("-inf")

    def day(self) -> float:
        """USD spent today by other sessions."""
        today = date.today()
        return sum(one.dollars for one in self._others() if one.day == today)

    def project(self) -> float:
        """USD spent in this folder by other sessions, ever."""
        return sum(one.dollars for one in self._others() if one.repo == self._root)

    def _others(self) -> list[Payment]:
        if time.monotonic() - self._looked > FRESH:
            self._look()
        return once(one for _, spent in self._known.values() for one in spent)

    def _look(self) -> None:
        self._looked = time.monotonic()
        for path in sessions.paths(self._data):
            if path == self._own:
                continue
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if self._known.get(path, (-1, []))[0] != size:
                self._known[path] = (size, _read(path))
