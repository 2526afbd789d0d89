"""A session as it stands: its requests, and what follows from all its events.

The log holds the current state and gives it each new event. Whatever reads a session asks the state
and pairs nothing for itself: who acts next, prompts, policy, the screen, the trace, exports.
Must not know files, models or the screen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TypeGuard

from fugu_cli.session.costs import PaidEvent, cost, price
from fugu_cli.session.events import (
    ANSWERED,
    Asked,
    Assigned,
    Compacted,
    Event,
    Exclusion,
    Failed,
    Interrupted,
    JobEnded,
    Masked,
    Member,
    Merged,
    ModeGiven,
    Opened,
    Permitted,
    Recorded,
    Replied,
    SteeringGiven,
    Subtask,
    ToolRan,
)
from fugu_cli.session.open_work import (
    TODO,
    RecordedJob,
    TodoItem,
    UndoFold,
    UndoHistory,
    items_of,
    todo_lines,
)
from fugu_cli.session.request_state import Plan, RequestState

_OF_A_TURN = (Assigned, Replied, Permitted, ToolRan, Failed, Interrupted)


class _OpenWork:
    """The todo list and the background jobs after some events."""

    def __init__(self) -> None:
        self.todo_event: ToolRan | None = None
        self.jobs: dict[str, RecordedJob] = {}

    def add(self, event: ToolRan | JobEnded) -> None:
        """Take the next event that `_concerns_open_work`."""
        if isinstance(event, JobEnded):
            if event.job in self.jobs:
                self.jobs[event.job] = replace(self.jobs[event.job], end=event)
            return
        if event.job:
            self.jobs[event.job] = RecordedJob(event.job, event.call)
        if event.call.tool == TODO and event.ok:
            self.todo_event = event

    @property
    def todo(self) -> tuple[TodoItem, ...]:
        """The items of the todo list."""
        return items_of(self.todo_event.call) if self.todo_event is not None else ()

    @property
    def text(self) -> str:
        """The work that is left, for agents; "" if none is."""
        items = self.todo
        running = [job for job in self.jobs.values() if job.end is None]
        parts = []
        if any(item.status != "done" for item in items):
            parts.append("\n".join(["The todo list, as it stood:", *todo_lines(items)]))
        if running:
            lines = [f"{job.name}: {job.call.arguments[:200]}" for job in running]
            parts.append("\n".join(["Background jobs:", *lines]))
        return "\n\n".join(parts)


class _SessionFold:
    """Folds the events of several requests."""

    def __init__(self) -> None:
        self.count = 0
        """Of the events that were taken."""
        self.openings: list[tuple[int, Opened]] = []
        """Every opening of the session, after its line."""
        self.pool: dict[str, Member] = {}
        self.cost = 0.0
        self.request_cost = 0.0
        self.paid_agents: dict[str, None] = {}
        """The agents that were paid for, in the order of their first call."""
        self.undo = UndoFold()
        self.work = _OpenWork()
        self.work_events: list[tuple[int, ToolRan | JobEnded]] = []
        """The events that `work` is made of, each after its line."""
        self.found_tools: frozenset[str] = frozenset()
        self.refused_media: dict[str, frozenset[str]] = {}
        self.compactions: tuple[Compacted, ...] = ()
        self.lines_of_subtasks: set[int] = set()
        self._subtasks: set[int] = set()
        """The subtasks of the newest request."""
        self._request_start: int | None = None

    def take(self, events: Sequence[Event], until: int) -> None:
        """Fold the session's `events` up to the line `until` that are not folded yet."""
        for line in range(self.count, until):
            event = events[line]
            self.undo.add(event)
            match event:
                case Opened():
                    self._open(events, line, event)
                case Asked():
                    self._request_start, self.request_cost = line, 0.0
                    self._subtasks.clear()
                case Assigned() if event.subtask is not None:
                    self._subtasks.add(event.turn)
                case ToolRan():
                    if event.found or event.call.tool not in self.found_tools:
                        self.found_tools |= {*event.found, event.call.tool}
                case Replied() if event.refused:
                    refused = self.refused_media.get(event.agent, frozenset())
                    self.refused_media[event.agent] = refused.union(event.refused)
                case Compacted():
                    self.compactions = (event, *self.compactions)
                case _:
                    pass
            if _concerns_open_work(event):
                self.work.add(event)
                self.work_events.append((line, event))
            if self._subtasks and getattr(event, "turn", 0) in self._subtasks:
                self.lines_of_subtasks.add(line)
            if isinstance(event, PaidEvent) and event.agent:
                self.paid_agents[event.agent] = None
                dollars = price(event, self.pool.get(event.agent))
                self.cost += dollars
                if self._request_start is not None:
                    self.request_cost += dollars
        self.count = max(self.count, until)

    def _open(self, events: Sequence[Event], line: int, event: Opened) -> None:
        """Add an Opened event. Payments so far are counted at the prices that it names."""
        self.openings.append((line, event))
        before, self.pool = self.pool, self.pool | {member.name: member for member in event.pool}
        if not self.paid_agents:
            return
        if all(_same_price(member, before.get(member.name)) for member in event.pool):
            return
        self.cost = cost(events[:line], self.pool)
        if self._request_start is not None:
            self.request_cost = cost(events[self._request_start : line], self.pool)

    def work_in(self, lines: range) -> _OpenWork:
        """Return the todo list and the jobs of the events at these lines."""
        work = _OpenWork()
        for line, event in self.work_events:
            if line in lines:
                work.add(event)
        return work

    def copy(self) -> _SessionFold:
        """Return a fold that goes on from here with other events."""
        fold = copy(self)
        fold.undo, fold.work = self.undo.copy(), copy(self.work)
        fold.work.jobs = dict(self.work.jobs)
        fold.openings, fold.work_events = list(self.openings), list(self.work_events)
        fold.refused_media, fold.paid_agents = dict(self.refused_media), dict(self.paid_agents)
        fold.lines_of_subtasks, fold._subtasks = set(self.lines_of_subtasks), set(self._subtasks)
        return fold


def _concerns_open_work(event: Event) -> TypeGuard[ToolRan | JobEnded]:
    if isinstance(event, ToolRan):
        return bool(event.job) or (event.call.tool == TODO and event.ok)
    return isinstance(event, JobEnded)


def _same_price(member: Member, before: Member | None) -> bool:
    return before is not None and member.price == before.price


class SessionState:
    """The events of a session and everything that follows from them. Grows with the log; each value
    is derived at most once between two events.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        """Oldest first. The list grows; do not change it."""
        self._starts = [line for line, event in enumerate(self.events) if isinstance(event, Asked)]
        """The line of each request."""
        ends = [*self._starts[1:], len(self.events)]
        self.requests = [
            RequestState(self.events[start:end])
            for start, end in zip(self._starts, ends, strict=False)
        ]
        """Every request, oldest first."""
        self.request = self.requests[-1] if self.requests else RequestState()
        """The newest request."""
        self._fold = _SessionFold()
        self._before_request = _SessionFold()
        """The fold of the events before the newest request."""
        self._parts: dict[int, SessionState] = {}

    @classmethod
    def of_records(cls, records: Iterable[Recorded]) -> SessionState:
        """Return the state that follows from the lines of a log."""
        return cls(record.event for record in records)

    def add(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, Asked):
            self._before_request = self._now.copy()
            self.request = RequestState()
            self.requests.append(self.request)
            self._starts.append(len(self.events))
        self.events.append(event)
        if self.requests:
            self.request.add(event)
        self._parts.clear()
        for name in vars(self).keys() & _DERIVED:
            del vars(self)[name]
        self._fold.take(self.events, len(self.events))

    @cached_property
    def _now(self) -> _SessionFold:
        """Return the fold of all events."""
        self._fold.take(self.events, len(self.events))
        return self._fold

    @cached_property
    def opened(self) -> Opened | None:
        """The newest opening: the session's first line, or a later one if it was continued with
        another pool.
        """
        openings = self._now.openings
        return openings[-1][1] if openings else None

    @cached_property
    def served(self) -> bool:
        """True if the session serves a client of `fugu serve`, whose messages agents see instead of
        a prompt made from events.
        """
        return self.opened is not None and self.opened.served

    @cached_property
    def pool(self) -> Mapping[str, Member]:
        """All agents that the session ever had, by name, in their newest form."""
        return self._now.pool

    @cached_property
    def cost(self) -> float:
        """The USD of the whole session, at the newest known prices."""
        return self._now.cost

    @cached_property
    def unpriced(self) -> tuple[str, ...]:
        """The agents that were called and whose price is unknown."""
        members = {name: self.pool[name] for name in self._now.paid_agents if name in self.pool}
        return tuple(name for name, member in members.items() if member.price is None)

    @cached_property
    def request_cost(self) -> float:
        """The USD of the newest request, at the newest known prices."""
        return self._now.request_cost

    @cached_property
    def todo(self) -> tuple[TodoItem, ...]:
        """The todo list, empty if none was made. It lasts until another list replaces it."""
        return self._now.work.todo

    @cached_property
    def jobs(self) -> Mapping[str, RecordedJob]:
        """Every background job that was started, by name, the oldest first."""
        return dict(self._now.work.jobs)

    def jobs_since(self, line: int) -> Mapping[str, RecordedJob]:
        """Return the background jobs that were started at this line or later."""
        return self._now.work_in(range(line, len(self.events))).jobs

    @property
    def open_plan(self) -> Plan | None:
        """The plan that the newest request ended with and that nobody has accepted yet, or None."""
        return None if self.served else self.request.plan

    @cached_property
    def found_tools(self) -> frozenset[str]:
        """The tools of MCP servers that find_tools named or that were called. Agents may call them
        from then on.
        """
        return self._now.found_tools

    def refused_media(self, agent: str) -> frozenset[str]:
        """Return the pictures and PDFs, by `sha`, that the agent's provider refused."""
        return self._now.refused_media.get(agent, frozenset())

    @cached_property
    def undo_history(self) -> UndoHistory:
        """The requests that were not undone, and the undos that can be redone."""
        return self._now.undo.history()

    @cached_property
    def newest_compaction(self) -> Compacted | None:
        """The newest compaction that counts for the agent of the newest turn. Agents with a larger
        context than the one it was written for are shown the events instead.
        """
        turns = self.request.turns
        member = self.pool.get(turns[-1].assigned.agent) if turns else None
        window = member.context if member is not None else 0
        for compaction in self._now.compactions:
            if not compaction.window or window <= compaction.window:
                return compaction
        return None

    @cached_property
    def summary(self) -> str:
        """The newest summary; "" if there is none."""
        return self.newest_compaction.summary if self.newest_compaction is not None else ""

    @property
    def earlier_requests(self) -> list[RequestState]:
        """The requests before the newest. If the newest carries out the plan of the one before it,
        that one is left out, because the newest holds the words of both.
        """
        earlier = self.requests[:-1]
        asked = self.request.asked
        return earlier[:-1] if asked is not None and asked.plan is not None else earlier

    @cached_property
    def shown_requests(self) -> tuple[RequestState, ...]:
        """The requests that the newest summary does not replace; all if there is none.

        A request that continues after the summary is shown with its words, the assignments of its
        open turns, and the later events.
        """
        newest = self.newest_compaction
        if newest is None:
            return tuple(self.requests)
        first = newest.upto + 1
        index = bisect_left(self._starts, first)
        later = self.requests[index:]
        if index == 0:
            return tuple(later)
        count = first - self._starts[index - 1]
        going_on = _rest_of_request(self.requests[index - 1], count)
        return (going_on, *later) if going_on is not None else tuple(later)

    @cached_property
    def still_open(self) -> str:
        """The open work at the newest summary: an unfinished todo list and background jobs. It is
        not in the summary itself, because events that an agent may not see are removed before.
        """
        newest = self.newest_compaction
        if newest is None:
            return ""
        return self._now.work_in(range(newest.upto + 1)).text

    @cached_property
    def lines_of_subtasks(self) -> Set[int]:
        """The lines of events of subtasks, which no other turn reads."""
        return self._now.lines_of_subtasks

    # Parts of the session as states of their own

    def before(self, assigned: Assigned) -> SessionState:
        """Return the session as it was when one of its own turns began."""
        line = next(
            line for line in reversed(range(len(self.events))) if self.events[line] is assigned
        )
        return self._with_request_from(line, ())

    def followed_by(self, event: Event) -> SessionState:
        """Return the session as it would be after one more event."""
        if isinstance(event, Asked):
            return SessionState((*self.events, event))
        return self._with_request_from(len(self.events), [event])

    def of_turn(self, number: int) -> SessionState:
        """Return the session from the view of the turn `number`, as its newest turn: without events
        of turns that ran beside it. If it has a worktree, that counts as the repository. A subtask
        is a session of its own.
        """
        if number not in self._parts:
            self._parts[number] = self._part(number)
        return self._parts[number]

    def _part(self, number: int) -> SessionState:
        events = self.events
        start = next(
            (line for line in range(len(events) - 1, -1, -1) if _begins(events[line], number)), None
        )
        if start is None:
            return self
        begin = events[start]
        assert isinstance(begin, Assigned)
        later = [
            event
            for event in events[start + 1 :]
            if getattr(event, "turn", number) == number and not isinstance(event, Merged)
        ]
        if begin.subtask is not None:
            own = [event for event in later if getattr(event, "turn", 0) == number]
            return SessionState(self._events_of_subtask(start, begin, own))
        if not begin.worktree and len(later) == len(events) - start - 1:
            return self
        begin = begin.model_copy(update={"worktree": ""}) if begin.worktree else begin
        return self._with_request_from(start, [begin, *later])

    def _events_of_subtask(
        self, start: int, begin: Assigned, later: Sequence[Event]
    ) -> tuple[Event, ...]:
        """Return the events of a session whose only request is the subtask that `begin` began."""
        assert begin.subtask is not None
        index = bisect_left(self._starts, start) - 1
        around = self.requests[index].asked if index >= 0 else None
        rules = around.rules if around is not None else ()
        request = Asked(text=begin.instruction, effort=begin.subtask.effort, rules=rules)
        openings = [event for line, event in self._now.openings if line < start]
        return (*openings, request, begin.model_copy(update={"instruction": ""}), *later)

    def _with_request_from(self, line: int, events: Sequence[Event]) -> SessionState:
        """Return the session with other events from a line of its newest request on."""
        first = len(self.events) - len(self.request.events)
        if line <= first:
            return SessionState((*self.events[:line], *events))
        self._before_request.take(self.events, first)
        part = copy(self)
        part.events = [*self.events[:line], *events]
        part.request = RequestState(part.events[first:])
        part.requests = [*self.requests[:-1], part.request]
        part._fold, part._before_request = self._before_request.copy(), self._before_request.copy()
        part._starts, part._parts = list(self._starts), {}
        for name in vars(part).keys() & _DERIVED:
            del vars(part)[name]
        return part

    def to_assign(
        self, task: Subtask, prompt: str, excluded: Mapping[str, Exclusion]
    ) -> SessionState:
        """Return what a coordinator reads to choose who does a subtask: what the same subagent did
        last, whose prompt may be cached, and the new prompt. `excluded` cannot do it now.
        """
        masked = (Masked(agents=tuple(sorted(excluded.items()))),) if excluded else ()
        return SessionState(
            (
                *(opened for _, opened in self._now.openings),
                *_last_of(self.events, task),
                Asked(text=prompt, effort=task.effort),
                *masked,
            )
        )


_DERIVED = frozenset(
    name for name, value in vars(SessionState).items() if isinstance(value, cached_property)
)


def _begins(event: Event, number: int) -> bool:
    return isinstance(event, Assigned) and event.turn == number


def _rest_of_request(request: RequestState, count: int) -> RequestState | None:
    """Return a request without its first `count` events, None if it had ended by then.

    The text of the request is kept, and so are, for turns that go on, their assignments and the
    messages they were given.
    """
    before, after = RequestState(request.events[:count]), request.events[count:]
    open_turns = {event.turn for event in after if isinstance(event, _OF_A_TURN)}
    if before.plan is not None and request.finished is None:
        open_turns.add(request.turns[-1].number)  # its agent changes its plan
    if before.asked is None or (before.finished is not None and not open_turns):
        return None
    kept: list[Event] = [before.asked]
    for event in before.events:
        if isinstance(event, Assigned | SteeringGiven | ModeGiven) and event.turn in open_turns:
            kept.append(event)
    return RequestState([*kept, *after], rest_of=request)


def _last_of(events: Sequence[Event], task: Subtask) -> tuple[Event, ...]:
    """Return the newest answered subtask of the same subagent, as a request of its own."""
    for line in range(len(events) - 1, -1, -1):
        begin = events[line]
        if (
            isinstance(begin, Assigned)
            and begin.subtask is not None
            and begin.subtask.name == task.name
        ):
            replies = [
                event
                for event in events[line:]
                if isinstance(event, Replied) and event.turn == begin.turn
            ]
            if replies and not replies[-1].calls:
                assigned = begin.model_copy(update={"instruction": "", "subtask": None})
                return (Asked(text=begin.instruction), assigned, replies[-1], ANSWERED)
    return ()
