"""Budgets before a call, and the ledger: what all sessions spent, read from their logs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

from fugu_cli.errors import AgentError, StorageError
from fugu_cli.messages import Prompt, Usage
from fugu_cli.session import costs, log, store
from fugu_cli.session.costs import CACHE_WRITE_FACTOR, PaidEvent, price, usd
from fugu_cli.session.events import Event, Member, Opened, Recorded
from fugu_cli.session.live_events import Live
from fugu_cli.session.log import Log
from fugu_cli.session.spending_file import OpenCall, SpendingFile, Sums, this_process
from fugu_cli.session.state import SessionState

UNPRICED = "no price is known, so that no budget can hold"
PRICE_HINT = (
    "give its entry a price = { input = ..., output = ... }, USD per million tokens; zeros where "
    "it is free"
)


@dataclass(frozen=True)
class Budgets:
    """Limits in USD; None is no limit. `day` is a calendar day of this machine, `project`
    everything in this folder.
    """

    request: float | None = None
    session: float | None = None
    day: float | None = None
    project: float | None = None
    elsewhere: OtherSpending | None = None


Limit = Budgets | float | None
"""A number alone is the request's."""


def budgets_of(limit: Limit) -> Budgets:
    """Return the budgets that a limit sets."""
    return limit if isinstance(limit, Budgets) else Budgets(request=limit)


class OtherSpending(Protocol):
    """Money spent outside this session, in USD.

    This session's own events may count payments of another day or project; these are subtracted.
    """

    def others_today(self) -> float: ...

    def others_in_project(self) -> float: ...

    def reserved_by_others(self) -> float:
        """Return the estimated cost of running calls elsewhere."""


class CallAccount(Protocol):
    """An account of model calls, in which each stands while it is under way."""

    def begin_call(self, member: Member, usage: Usage, reserved: float) -> str:
        """Reserve the most that a call may cost, and return the reservation's key. `usage` is that
        of the prompt.
        """

    def update_call(self, key: str, member: Member, usage: Usage, reserved: float) -> None:
        """Record the usage of a running call, and the most that it may cost."""

    def end_call(self, key: str, member: Member, usage: Usage) -> None:
        """End a call with its usage, which is about to be logged."""


class SharedAccount(OtherSpending, CallAccount, Protocol):
    """The account of one session among all of this machine."""

    def close(self) -> None:
        """Close the account. The session's spending stays recorded."""


LEAST_REPLY = 4096
"""Reply tokens that a budget must still carry for a call to be made."""


def worst_case_cost(member: Member, prompt: Prompt) -> float:
    """Return the most USD that a call can cost: no token is read from a cache, and all are written
    to one if that costs more. 0 if no price is known.
    """
    if member.price is None:
        return 0.0
    dearest = member.price.input * CACHE_WRITE_FACTOR
    longest = prompt.longest(member.max_tokens)
    return (prompt.estimated_tokens * dearest + longest * member.price.output) / 1e6


def remaining_budget(state: SessionState, budgets: Budgets) -> tuple[float, str, float] | None:
    """Return the rest of the tightest budget, its name and its size; None without a budget. Money
    that calls elsewhere have reserved is not left.
    """
    session, elsewhere = state.cost, budgets.elsewhere
    shared = budgets.day is not None or budgets.project is not None
    reserved = elsewhere.reserved_by_others() if elsewhere and shared else 0.0
    left: list[tuple[float, str, float]] = []
    if budgets.request is not None:
        left.append((budgets.request - state.request_cost, "request", budgets.request))
    if budgets.session is not None:
        left.append((budgets.session - session, "session", budgets.session))
    if budgets.day is not None:
        others = elsewhere.others_today() + reserved if elsewhere else 0.0
        left.append((budgets.day - session - others, "day", budgets.day))
    if budgets.project is not None:
        others = elsewhere.others_in_project() + reserved if elsewhere else 0.0
        left.append((budgets.project - session - others, "project", budgets.project))
    return min(left, default=None)


def over_budget(
    state: SessionState, member: Member, prompt: Prompt, budgets: Budgets, reserved: float = 0.0
) -> str:
    """Return a refusal if this call could exceed the rest of a budget, or its cost is unknown; ""
    if it may be made. A call that costs nothing always may. `reserved` is USD reserved by other
    calls.
    """
    tightest = remaining_budget(state, budgets)
    if tightest is None:
        return ""
    if member.price is None:
        return f"{UNPRICED}: {PRICE_HINT}"
    left, name, limit = tightest
    most = worst_case_cost(member, prompt)
    if not most or most <= left - reserved:
        return ""
    return budget_refusal(name, limit, left - reserved, most)


def within_budget(
    state: SessionState, member: Member, prompt: Prompt, budgets: Budgets, reserved: float = 0.0
) -> Prompt:
    """Return the prompt with its reply limited to the rest of the tightest budget, but to
    LEAST_REPLY at least. A limit of the agent's own entry stays. `reserved` is USD reserved by
    other calls.
    """
    tightest = remaining_budget(state, budgets)
    if tightest is None or member.price is None or not member.price.output:
        return prompt
    without_reply = worst_case_cost(member, prompt.model_copy(update={"max_tokens": 0}))
    whole = worst_case_cost(member, prompt)
    if member.max_tokens is not None or whole <= without_reply:
        return prompt
    left = tightest[0] - reserved - without_reply
    carried = int(left / (whole - without_reply) * prompt.max_tokens)
    if carried >= prompt.max_tokens:
        return prompt
    least = min(LEAST_REPLY, prompt.max_tokens)
    return prompt.model_copy(update={"max_tokens": max(carried, least)})


def budget_refusal(name: str, limit: float, left: float, most: float) -> str:
    """Return the refusal of a call that may cost more than the rest of a budget."""
    whole = f"the {name}'s budget of ${limit:.4f}"
    return f"its next call may cost ${most:.4f}; ${max(left, 0):.4f} of {whole} are left"


@dataclass(frozen=True)
class Payment:
    """One paid call. `at` is in seconds since the epoch; `dollars` at the prices the session knew,
    0 if it knew none.
    """

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
    is_estimated: bool = False
    """True if a part of `dollars` is estimated, or the price assumed."""

    @property
    def day(self) -> date:
        """The day of this machine's clock."""
        return date.fromtimestamp(self.at)


def session_payments(
    records: Sequence[Recorded], pool: Mapping[str, Member], session: str
) -> list[Payment]:
    """Return the payments of a session, oldest first. `pool` is that of all its records."""
    repo = ""
    payments = []
    for record in records:
        if isinstance(record.event, Opened):
            repo = record.event.repo  # a session may have gone on in another folder
        for agent, usage in costs.usage([record.event]).items():
            dollars = costs.cost([record.event], pool)
            priced = not costs.unpriced([record.event], pool)
            payments.append(
                Payment(
                    at=record.at,
                    seq=record.seq,
                    session=session,
                    repo=repo,
                    agent=agent,
                    usage=usage,
                    dollars=dollars,
                    priced=priced,
                    estimated_dollars=costs.estimated_cost([record.event], pool),
                    is_estimated=costs.is_estimated([record.event], pool),
                )
            )
    return payments


def all_payments(data: Path) -> list[Payment]:
    """Return the payments of all sessions, without unreadable files and lines."""
    return without_repeats(
        payment for path in sorted(store.session_paths(data)) for payment in _read(path)
    )


def without_repeats(payments: Iterable[Payment]) -> list[Payment]:
    """Remove the payments that a forked session repeats from its original: the same line at the
    same time.
    """
    unique = {(payment.at, payment.seq, payment.agent): payment for payment in payments}
    return list(unique.values())


def _read(path: Path) -> list[Payment]:
    try:
        records = log.read_lenient(path)
        return session_payments(records, SessionState.of_records(records).pool, path.stem)
    except StorageError:
        return []


class Ledger:
    """The money spent and reserved outside one session, today and in one project.

    The payments of the session `own` are subtracted, unless it is open here. `day` and `project`
    are budgets that this process and all others must not exceed together.
    """

    def __init__(
        self,
        data: Path,
        root: Path,
        own: Path | None = None,
        day: float | None = None,
        project: float | None = None,
    ) -> None:
        self.file = SpendingFile(
            data,
            lambda: [(payment.at, payment.repo, payment.dollars) for payment in all_payments(data)],
        )
        self.root = store.recorded_root(root)
        self._own = own
        self._day_limit = day
        self._project_limit = project

    def tab(self, log: Log, path: Path) -> SessionAccount:
        """Return the account of a session that is open in this process; its log is at `path`."""
        return SessionAccount(self, log, path)

    def take_lost_calls(self, path: Path) -> list[OpenCall]:
        """Remove and return the calls that a killed process of the session left running. Their
        estimates stand in the sums, so log them before the session's account is opened.
        """
        with self.file.changing() as sums:
            lost = {
                key: call
                for key, call in sums.calls.items()
                if call.is_lost and call.session == path.stem
            }
            for key in lost:
                del sums.calls[key]
        return list(lost.values())

    def others_today(self) -> float:
        """USD spent today, less what `own` has ever spent."""
        return self.spent_today() - self._spent_by_own()

    def others_in_project(self) -> float:
        """USD spent in this folder, less what `own` has ever spent."""
        return self.spent_in_project() - self._spent_by_own()

    def reserved_by_others(self) -> float:
        """Return the USD that running calls may cost."""
        return self.file.sums().reserved()

    def spent_today(self) -> float:
        """USD spent today by all sessions."""
        return self.file.sums().days.get(date.today().isoformat(), 0.0)

    def spent_in_project(self) -> float:
        """USD spent in this folder by all sessions."""
        return self.file.sums().projects.get(self.root, 0.0)

    def refusal(self, sums: Sums, reserved: float) -> str:
        """Return the reason why a call that costs at most this much must not be made; "" if it may."""
        today = date.today().isoformat()
        budgets = (
            ("day", self._day_limit, sums.days.get(today, 0.0)),
            ("project", self._project_limit, sums.projects.get(self.root, 0.0)),
        )
        for name, limit, spent in budgets:
            if limit is None:
                continue
            left = limit - spent - sums.reserved()
            if reserved > left:
                return budget_refusal(name, limit, left, reserved)
        return ""

    def _spent_by_own(self) -> float:
        return (
            sum(payment.dollars for payment in _read(self._own)) if self._own is not None else 0.0
        )


class SessionAccount:
    """The money of an open session of this process. Fits SharedAccount.

    Payments are added to the file as they are logged. The reservation of a call lasts until its
    payment is logged, so that other processes always see one of the two.
    """

    def __init__(self, ledger: Ledger, log: Log, path: Path) -> None:
        self._ledger = ledger
        self._file = ledger.file
        self._session = path.stem
        self._id = secrets.token_hex(4)
        self._calls = 0
        self._finished: list[tuple[str, str, float]] = []
        """Calls that are over and not logged yet: their keys, their agents, and USD."""
        self._members: dict[str, Member] = dict(log.state.pool)
        self._repo = ledger.root
        for event in log.events:
            self._note_opened(event)
        payments = session_payments(log.records, log.state.pool, path.stem)
        self._own = sum(payment.dollars for payment in payments)
        log.listen(self._take)

    def others_today(self) -> float:
        return self._ledger.spent_today() - self._own

    def others_in_project(self) -> float:
        return self._ledger.spent_in_project() - self._own

    def reserved_by_others(self) -> float:
        return self._file.sums().reserved(but=self._id)

    def begin_call(self, member: Member, usage: Usage, reserved: float) -> str:
        """Reserve the most that a call may cost; `usage` is that of its prompt. Return its key, ""
        for a call that is free. Raises AgentError if that exceeds a budget of the day or the
        project.
        """
        if not reserved:
            return ""
        self._calls += 1
        key = f"{self._id}:{self._calls}"
        with self._file.changing() as sums:
            refusal = self._ledger.refusal(sums, reserved)
            if not refusal:
                sums.calls[key] = OpenCall(
                    session=self._session,
                    repo=self._repo,
                    agent=member.name,
                    usage=usage,
                    reserved=reserved,
                    estimate=usd(usage, member.price),
                    process=this_process(),
                )
        if refusal:
            raise AgentError(refusal, kind="budget")
        return key

    def update_call(self, key: str, member: Member, usage: Usage, reserved: float) -> None:
        """Record the usage of a running call, and the most that it may cost."""
        if not key:
            return
        with self._file.changing() as sums:
            if key in sums.calls:
                estimate = usd(usage, member.price)
                update = {"usage": usage, "estimate": estimate, "reserved": reserved}
                sums.calls[key] = sums.calls[key].model_copy(update=update)

    def end_call(self, key: str, member: Member, usage: Usage) -> None:
        """End a call with its usage, which is about to be logged."""
        if not key:
            return
        if usage == Usage():
            with self._file.changing() as sums:
                sums.calls.pop(key, None)
        else:
            self._finished.append((key, member.name, usd(usage, member.price)))

    def close(self) -> None:
        """End the account. What was used and not logged is spent all the same."""
        if self._finished:
            with self._file.changing() as sums:
                for key, _, dollars in self._finished:
                    sums.calls.pop(key, None)
                    sums.add(time.time(), self._repo, dollars)
        self._finished.clear()

    def _take(self, item: Recorded | Live | None) -> None:
        if item is None:
            self.close()
            return
        if not isinstance(item, Recorded):
            return
        event = item.event
        self._note_opened(event)
        if not isinstance(event, PaidEvent) or not event.agent:
            return
        dollars = price(event, self._members.get(event.agent))
        finished = next((call for call in self._finished if call[1] == event.agent), None)
        with self._file.changing() as sums:
            sums.add(item.at, self._repo, dollars)
            if finished is not None:
                sums.calls.pop(finished[0], None)
        if finished is not None:
            self._finished.remove(finished)
        self._own += dollars

    def _note_opened(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._repo = event.repo
            self._members |= {member.name: member for member in event.pool}
