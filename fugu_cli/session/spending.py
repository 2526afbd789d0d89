"""Budgets before a call, and the ledger: what all sessions spent, read from their logs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fugu_cli.errors import StorageError
from fugu_cli.messages import THINKING_TOKENS, Prompt, Usage
from fugu_cli.session import log, store, views
from fugu_cli.session.costs import CACHE_WRITE_FACTOR
from fugu_cli.session.events import Event, Member, Opened, Recorded
from fugu_cli.session.log import Log

UNPRICED = "no price is known, so that no budget can hold"
PRICE_HINT = (
    "give its entry a price = { input = ..., output = ... }, USD per million tokens; zeros where "
    "it is free"
)


@dataclass(frozen=True)
class Budgets:
    """USD at most; None: no limit. `day` is a calendar day of this machine, `project` everything in
    this folder.
    """

    request: float | None = None
    session: float | None = None
    day: float | None = None
    project: float | None = None
    elsewhere: OtherSpending | None = None


Limit = Budgets | float | None
"""A number alone is the request's."""


def budgets_of(limit: Limit) -> Budgets:
    """The budgets a limit means."""
    return limit if isinstance(limit, Budgets) else Budgets(request=limit)


class OtherSpending(Protocol):
    """What was spent outside the session at hand, in USD; less what its own facts count that is of
    another day, or of another project."""

    def day(self) -> float: ...

    def project(self) -> float: ...

    def held(self) -> float:
        """What calls under way there may still cost, as far as that is known."""


class SharedAccount(OtherSpending, Protocol):
    """One session's account, where a process has several at once: elsewhere is all others."""

    def hold(self, dollars: float) -> None:
        """So much more is set aside for a call under way, for the others to see; less than nothing
        gives it back.
        """

    def close(self) -> None:
        """The session is over; what it spent stays known."""


def worst_case_cost(member: Member, prompt: Prompt) -> float:
    """USD that a call costs at most: no token read from a cache, and all written to one where that
    costs more; 0 where no price is known."""
    if member.price is None:
        return 0.0
    dearest = member.price.input * CACHE_WRITE_FACTOR
    thinking = THINKING_TOKENS.get(prompt.effort, 0) if member.reasoning == "beside" else 0
    longest = prompt.longest(member.max_tokens) + (thinking if prompt.effort else member.thinking)
    calls = (
        2 if member.protocol == "schema" and prompt.tools else 1
    )  # the tool is chosen first, then written for
    return calls * (prompt.estimated_tokens * dearest + longest * member.price.output) / 1e6


def remaining_budget(events: Sequence[Event], budgets: Budgets) -> tuple[float, str, float] | None:
    """The tightest budget: what is left of it, whose it is, and how large it is; None where there
    is none. What calls under way elsewhere may cost is not left."""
    pool, elsewhere = views.pool(events), budgets.elsewhere
    session = views.cost(events, pool)
    held = elsewhere.held() if elsewhere else 0.0
    left: list[tuple[float, str, float]] = []
    if budgets.request is not None:
        left.append(
            (budgets.request - views.cost(views.request(events), pool), "request", budgets.request)
        )
    if budgets.session is not None:
        left.append((budgets.session - session, "session", budgets.session))
    if budgets.day is not None:
        others = elsewhere.day() + held if elsewhere else 0.0
        left.append((budgets.day - session - others, "day", budgets.day))
    if budgets.project is not None:
        others = elsewhere.project() + held if elsewhere else 0.0
        left.append((budgets.project - session - others, "project", budgets.project))
    return min(left, default=None)


def over_budget(
    events: Sequence[Event], member: Member, prompt: Prompt, budgets: Budgets, held: float = 0.0
) -> str:
    """Says so where this call could exceed what is left of a budget, or nobody knows what it costs;
    "" where it may be made, as one that costs nothing always may. `held`: set aside."""
    tightest, most = remaining_budget(events, budgets), worst_case_cost(member, prompt)
    if tightest is not None and member.price is None:
        return f"{UNPRICED}: {PRICE_HINT}"
    if tightest is None or not most or most <= tightest[0] - held:
        return ""
    left, name, limit = tightest
    whole = f"the {name}'s budget of ${limit:.4f}"
    return f"its next call may cost ${most:.4f}; ${max(left - held, 0):.4f} of {whole} are left"


REFRESH_SECONDS = 2.0
"""Seconds for which a look at the files holds: what other processes spent meanwhile is not known
yet.
"""


@dataclass(frozen=True)
class Payment:
    """One call that was paid for. `at` is seconds since the epoch; `dollars` at the prices the
    session knew, 0 where it knew none."""

    at: float
    seq: int
    session: str
    repo: str
    agent: str
    usage: Usage
    dollars: float
    priced: bool = True
    estimated_dollars: float = 0.0
    """The part of `dollars` that no server counted."""

    @property
    def day(self) -> date:
        """The day of this machine's clock."""
        return date.fromtimestamp(self.at)


def session_payments(records: Sequence[Recorded], session: str) -> list[Payment]:
    """Its payments, oldest first."""
    events = [record.event for record in records]
    pool, repo = views.pool(events), ""
    found = []
    for record in records:
        if isinstance(record.event, Opened):
            repo = record.event.repo  # a session may have gone on in another folder
        for agent, usage in views.usage([record.event]).items():
            dollars = views.cost([record.event], pool)
            priced = not views.unpriced([record.event], pool)
            estimated = views.estimated_cost([record.event], pool)
            found.append(
                Payment(
                    record.at, record.seq, session, repo, agent, usage, dollars, priced, estimated
                )
            )
    return found


def all_payments(data: Path) -> list[Payment]:
    """Of all sessions. Lines that cannot be read are left out, as are files that cannot."""
    return without_repeats(
        payment for path in sorted(store.session_paths(data)) for payment in _read(path)
    )


def without_repeats(payments: Iterable[Payment]) -> list[Payment]:
    """Without what a forked session repeats of its original: the same line at the same time."""
    return list({_key(one): one for one in payments}.values())


def _key(one: Payment) -> tuple[float, int, str]:
    return (one.at, one.seq, one.agent)


def _read(path: Path) -> list[Payment]:
    try:
        return session_payments(log.read_lenient(path), path.stem)
    except StorageError:
        return []


class Ledger:
    """What all sessions but one spent: today, and in one project. Fits budgets.Elsewhere.

    That one, `own`, may be older than today, have begun in another folder, or as a copy of one that
    is among the others: what its facts count too much for a day or a project is taken off. Sessions
    of this process that run at once have a tab each: what they spend is known at once, and what
    their calls under way may cost as well. Of other processes what they have written is known, and
    that `FRESH` seconds late.
    """

    def __init__(self, data: Path, root: Path, own: Path | None = None) -> None:
        self._data = data
        self._root = store.recorded_root(root)
        self._own = own
        self._mine: tuple[date, list[Payment]] = (date.min, [])
        self._known: dict[Path, tuple[int, list[Payment]]] = {}
        self._looked = float("-inf")
        self._open: dict[Path, SessionAccount] = {}

    def tab(self, log: Log, path: Path) -> SessionAccount:
        """A session that begins now in this process, whose log will lie at `path`."""
        tab = self._open[path] = SessionAccount(self, log, path)
        return tab

    def closed(self, tab: SessionAccount) -> None:
        """The session is over: its file is read again when it has grown, which it has not."""
        del self._open[tab.path]
        self._known[tab.path] = (_size(tab.path), tab.spent())

    def day(self, but: SessionAccount | None = None) -> float:
        """USD spent today by other sessions, less what `own` spent on other days."""
        today = date.today()
        before = sum(one.dollars for one in self._owned() if one.day != today)
        return sum(one.dollars for one in self._others(but) if one.day == today) - before

    def project(self, but: SessionAccount | None = None) -> float:
        """USD spent in this folder by other sessions, ever, less what `own` spent in other
        folders.
        """
        away = sum(one.dollars for one in self._owned() if one.repo != self._root)
        return sum(one.dollars for one in self._others(but) if one.repo == self._root) - away

    def held(self, but: SessionAccount | None = None) -> float:
        """USD that calls under way in other sessions of this process may cost."""
        return sum(tab.holding for tab in self._open.values() if tab is not but)

    def _others(self, but: SessionAccount | None) -> list[Payment]:
        if time.monotonic() - self._looked > REFRESH_SECONDS:
            self._look()
        over = (
            one
            for path, (_, spent) in self._known.items()
            if path not in self._open
            for one in spent
        )
        now = (one for tab in self._open.values() if tab is not but for one in tab.spent())
        mine = {_key(one) for one in self._owned()}
        return [one for one in without_repeats((*over, *now)) if _key(one) not in mine]

    def _owned(self) -> list[Payment]:
        """Of `own`, as it stood at the first look of this day: what it spends later is of today,
        and here.
        """
        today = date.today()
        if self._own is not None and self._mine[0] != today:
            self._mine = (today, _read(self._own))
        return self._mine[1]

    def _look(self) -> None:
        self._looked = time.monotonic()
        for path in store.session_paths(self._data):
            if path == self._own or path in self._open:
                continue
            size = _size(path)
            if size >= 0 and self._known.get(path, (-1, []))[0] != size:
                self._known[path] = (size, _read(path))


def _size(path: Path) -> int:
    """Bytes; -1 where it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


class SessionAccount:
    """One of the sessions that run at once in this process. Fits budgets.Tab."""

    def __init__(self, ledger: Ledger, log: Log, path: Path) -> None:
        self._ledger = ledger
        self._log = log
        self.path = path
        self.holding = 0.0
        """USD that its calls under way may cost."""

    def spent(self) -> list[Payment]:
        """Its payments so far."""
        return session_payments(self._log.records, self.path.stem)

    def day(self) -> float:
        return self._ledger.day(self)

    def project(self) -> float:
        return self._ledger.project(self)

    def held(self) -> float:
        return self._ledger.held(self)

    def hold(self, dollars: float) -> None:
        self.holding += dollars

    def close(self) -> None:
        self._ledger.closed(self)


if TYPE_CHECKING:

    def _tab(tab: SessionAccount) -> SharedAccount:
        return tab
