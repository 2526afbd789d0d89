"""A session as it stands: its requests, and what follows from all its events.

The log holds the current state and gives it each new event. Whatever reads a session asks the state
and pairs nothing for itself: who acts next, prompts, policy, the screen, the trace, exports.
Must not know files, models or the screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from weakref import WeakValueDictionary

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
    Opened,
    Permitted,
    Replied,
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
from fugu_cli.session.request_state import RequestState

_OF_A_TURN = (Assigned, Replied, Permitted, ToolRan, Failed, Interrupted)


class _SessionFold:
    """Folds the events of several requests."""

    def __init__(self) -> None:
        self.count = 0
        """Of the events that were taken."""
        self.opened: Opened | None = None
        self.pool: dict[str, Member] = {}
        self.cost = 0.0
        self.undo = UndoFold()
        self.jobs: dict[str, RecordedJob] = {}
        self.todo_event: ToolRan | None = None
        self.found_tools: frozenset[str] = frozenset()
        self.refused_media: dict[str, frozenset[str]] = {}
        self.compactions: tuple[Compacted, ...] = ()

    def take(self, events: Sequence[Event], until: int) -> None:
        """Take those of the session's `events` up to the line `until` that were not taken yet."""
        for line in range(self.count, until):
            event = events[line]
            self.undo.add(event)
            match event:
                case Opened():
                    self.opened = event
                    self.pool = self.pool | {member.name: member for member in event.pool}
                    self.cost = cost(events[:line], self.pool)
                case ToolRan():
                    if event.job:
                        self.jobs[event.job] = RecordedJob(event.job, event.call)
                    if event.call.tool == TODO and event.ok:
                        self.todo_event = event
                    if event.found or event.call.tool not in self.found_tools:
                        self.found_tools |= {*event.found, event.call.tool}
                case JobEnded() if event.job in self.jobs:
                    self.jobs[event.job] = replace(self.jobs[event.job], end=event)
                case Replied() if event.refused:
                    refused = self.refused_media.get(event.agent, frozenset())
                    self.refused_media[event.agent] = refused.union(event.refused)
                case Compacted():
                    self.compactions = (event, *self.compactions)
                case _:
                    pass
            if isinstance(event, PaidEvent):
                self.cost += price(event, self.pool.get(event.agent))
        self.count = max(self.count, until)

    def copy(self) -> _SessionFold:
        """Return a fold that goes on from here with other events."""
        fold = copy(self)
        fold.undo = self.undo.copy()
        fold.jobs, fold.refused_media = dict(self.jobs), dict(self.refused_media)
        return fold

    def todo(self) -> tuple[TodoItem, ...]:
        """Return the todo list as it stands."""
        return items_of(self.todo_event.call) if self.todo_event is not None else ()


class SessionState:
    """The events of a session and everything that follows from them. Grows with the log; each value
    is derived at most once between two events.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events: list[Event] = list(events)
        """Oldest first. The list grows; do not change it."""
        starts = [line for line, event in enumerate(self.events) if isinstance(event, Asked)]
        ends = [*starts[1:], len(self.events)]
        self.requests = [
            RequestState(self.events[start:end]) for start, end in zip(starts, ends, strict=False)
        ]
        """Every request, oldest first."""
        self.request = self.requests[-1] if self.requests else RequestState()
        """The newest request."""
        self._fold = _SessionFold()
        self._before_request = _SessionFold()
        """The fold of the events before the newest request."""
        self._parts: dict[int, SessionState] = {}
        self._compacted: tuple[Compacted, str] | None = None
        _BY_EVENTS[id(self.events)] = self

    def add(self, event: Event) -> None:
        """Take the next event."""
        self.events.append(event)
        if isinstance(event, Asked):
            self.request = RequestState()
            self.requests.append(self.request)
        if self.requests:
            self.request.add(event)
        self._parts.clear()
        for name in vars(self).keys() & _DERIVED:
            del vars(self)[name]

    @cached_property
    def _now(self) -> _SessionFold:
        """Return the fold of all events."""
        self._fold.take(self.events, len(self.events))
        return self._fold

    @cached_property
    def opened(self) -> Opened | None:
        """The newest opening: the session's first line, or a later one where it was continued with
        another pool.
        """
        return self._now.opened

    @cached_property
    def served(self) -> bool:
        """Whether the session serves a client of `fugu serve`, whose messages agents see instead of
        a prompt made from events.
        """
        return self.opened is not None and self.opened.served

    @cached_property
    def pool(self) -> Mapping[str, Member]:
        """Every agent the session ever had, by name, as it was known last."""
        return self._now.pool

    @cached_property
    def cost(self) -> float:
        """USD of the whole session, at the newest prices it knows."""
        return self._now.cost

    @cached_property
    def todo(self) -> tuple[TodoItem, ...]:
        """The todo list as it stands; empty where none was made. It lives as long as the session,
        until it is replaced.
        """
        return self._now.todo()

    @cached_property
    def jobs(self) -> Mapping[str, RecordedJob]:
        """Every background job that was started, by name, the oldest first."""
        return dict(self._now.jobs)

    @cached_property
    def found_tools(self) -> frozenset[str]:
        """The tools of MCP servers that find_tools has named, and those that were called: agents
        may call them from then on.
        """
        return self._now.found_tools

    def refused_media(self, agent: str) -> frozenset[str]:
        """Return the pictures and PDFs, by `sha`, that the agent's provider refused."""
        return self._now.refused_media.get(agent, frozenset())

    @cached_property
    def undo_history(self) -> UndoHistory:
        """The requests that stand, and the undos that can be redone."""
        return self._now.undo.history()

    @cached_property
    def newest_compaction(self) -> Compacted | None:
        """The newest compaction that counts for the agent of the newest turn: agents that read more
        than the one for which it was written are shown the events.
        """
        turns = self.request.turns
        member = self.pool.get(turns[-1].assigned.agent) if turns else None
        window = member.context if member is not None else 0
        counting = (one for one in self._now.compactions if not one.window or window <= one.window)
        return next(counting, None)

    @cached_property
    def after_compaction(self) -> Sequence[Event]:
        """The events that the newest summary does not stand for; all where there is none.

        A request that goes on after it keeps its words, and an open turn its assignment.
        """
        newest = self.newest_compaction
        if newest is None:
            return self.events
        before, after = self.events[: newest.upto + 1], self.events[newest.upto + 1 :]
        return (*_events_going_on(before, after), *after)

    @cached_property
    def still_open(self) -> str:
        """The open work at the newest summary: an unfinished todo list and background jobs.

        It is no part of the summary, so that what an agent may not see can be removed from the
        events first.
        """
        newest = self.newest_compaction
        if newest is None:
            return ""
        if self._compacted is None or self._compacted[0] is not newest:
            self._compacted = (newest, self._open_until(newest.upto))
        return self._compacted[1]

    def _open_until(self, line: int) -> str:
        past = _SessionFold()
        past.take(self.events, min(line + 1, len(self.events)))
        items = past.todo()
        running = [job for job in past.jobs.values() if job.end is None]
        parts = []
        if any(item.status != "done" for item in items):
            parts.append("\n".join(["The todo list, as it stood:", *todo_lines(items)]))
        if running:
            lines = [f"{job.name}: {job.call.arguments[:200]}" for job in running]
            parts.append("\n".join(["Background jobs:", *lines]))
        return "\n\n".join(parts)

    @cached_property
    def lines_of_subtasks(self) -> frozenset[int]:
        """The places of the events of subtasks, which no other turn reads."""
        lines: set[int] = set()
        subtasks: set[int] = set()
        for line, event in enumerate(self.events):
            if isinstance(event, Asked):
                subtasks.clear()
            elif isinstance(event, Assigned) and event.subtask is not None:
                subtasks.add(event.turn)
            if subtasks and getattr(event, "turn", 0) in subtasks:
                lines.add(line)
        return frozenset(lines)

    # Parts of the session as states of their own

    def before(self, assigned: Assigned) -> SessionState:
        """Return the session as it was when a turn, one of its own, began."""
        line = next(line for line, event in enumerate(self.events) if event is assigned)
        return self._with_request_from(line, ())

    def followed_by(self, event: Event) -> SessionState:
        """Return the session as it would be after one more event."""
        if isinstance(event, Asked):
            return SessionState((*self.events, event))
        return self._with_request_from(len(self.events), [event])

    def of_turn(self, number: int) -> SessionState:
        """Return the session as the turn `number` stands in it, as if it were the newest: without
        what others, open at the same time, did since it began. A worktree of its own is its
        repository here. A subtask stands alone.
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
            return SessionState(_events_of_subtask(events[:start], begin, own))
        if not begin.worktree and len(later) == len(events) - start - 1:
            return self
        begin = begin.model_copy(update={"worktree": ""}) if begin.worktree else begin
        return self._with_request_from(start, [begin, *later])

    def _with_request_from(self, line: int, events: Sequence[Event]) -> SessionState:
        """The session with other events from a line of its newest request on."""
        first = len(self.events) - len(self.request.events)
        if line <= first:
            return SessionState((*self.events[:line], *events))
        self._before_request.take(self.events, first)
        part = copy(self)
        part.events = [*self.events[:line], *events]
        part.request = RequestState(part.events[first:])
        part.requests = [*self.requests[:-1], part.request]
        part._fold, part._before_request = self._before_request.copy(), self._before_request.copy()
        part._parts = {}
        _BY_EVENTS[id(part.events)] = part
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
                *_openings(self.events),
                *_last_of(self.events, task),
                Asked(text=prompt, effort=task.effort),
                *masked,
            )
        )


_DERIVED = frozenset(
    name for name, value in vars(SessionState).items() if isinstance(value, cached_property)
)

_BY_EVENTS: WeakValueDictionary[int, SessionState] = WeakValueDictionary()


def state_of(events: Sequence[Event] | SessionState) -> SessionState:
    """Return the state whose list of events this is, or a new one."""
    if isinstance(events, SessionState):
        return events
    state = _BY_EVENTS.get(id(events))
    return state if state is not None and state.events is events else SessionState(events)


def _begins(event: Event, number: int) -> bool:
    return isinstance(event, Assigned) and event.turn == number


def _events_going_on(before: Sequence[Event], after: Sequence[Event]) -> list[Event]:
    """The request and the assignments in `before` that events in `after` belong to."""
    until = next(
        (index for index, event in enumerate(after) if isinstance(event, Asked)), len(after)
    )
    open_turns = {event.turn for event in after[:until] if isinstance(event, _OF_A_TURN)}
    start = next(
        (line for line in range(len(before) - 1, -1, -1) if isinstance(before[line], Asked)),
        len(before),
    )
    request = RequestState(before[start:])
    if request.asked is None or (request.finished is not None and not open_turns):
        return []
    begun = [
        event
        for event in request.events
        if isinstance(event, Assigned) and event.turn in open_turns
    ]
    return [request.asked, *begun]


def _events_of_subtask(
    before: Sequence[Event], begin: Assigned, later: Sequence[Event]
) -> tuple[Event, ...]:
    """The events of a session whose only request is the subtask that `begin` began."""
    assert begin.subtask is not None
    around = next((event for event in reversed(before) if isinstance(event, Asked)), None)
    rules = around.rules if around is not None else ()
    asked = Asked(text=begin.instruction, effort=begin.subtask.effort, rules=rules)
    return (*_openings(before), asked, begin.model_copy(update={"instruction": ""}), *later)


def _openings(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(event for event in events if isinstance(event, Opened))


def _last_of(events: Sequence[Event], task: Subtask) -> tuple[Event, ...]:
    """The newest subtask of the same subagent that was answered, as a request of its own."""
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
