"""Totals that interfaces show beside a log: current activity, tokens and cost by agent, todo list,
jobs, changed files.

Also holds all folds of a log together. No text layout.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fugu_cli.app.event_text import IN_BACKGROUND, call_target, describe_call
from fugu_cli.formatting import flatten, sanitize
from fugu_cli.messages import Usage
from fugu_cli.session import costs
from fugu_cli.session.costs import PaidEvent, has_assumed_price
from fugu_cli.session.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    JobEnded,
    Member,
    Merged,
    Opened,
    Permitted,
    Planned,
    Recorded,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.file_effects import net_changes
from fugu_cli.session.live_events import (
    Live,
    OutputStreamed,
    Retried,
    TextStreamed,
    ThoughtStreamed,
    Waiting,
)
from fugu_cli.session.open_work import BYTES, TODO, TodoItem, items_of
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.request_state import RequestState, request_after
from fugu_cli.session.state import SessionState
from fugu_cli.ui.trace_rows import TraceRows
from fugu_cli.ui.transcript import Transcript

RUNNING_TESTS = "running the tests"


class Activity:
    """The current activity. `doing` is "" if there is none. `since` and `until` (the next retry)
    are epoch seconds, 0 if unknown.
    """

    def __init__(self) -> None:
        self.doing = ""
        self.since = 0.0
        self.until = 0.0
        self._test_command = ""
        self._turn = ""
        self._first = ""
        """The agent of the newest request's first turn."""
        self._coordinator = ""
        self._root = ""
        self._cheap: dict[str, None] = {}

    def add_item(self, item: Recorded | Live, came_at: float) -> None:
        """Add an item of the log. `came_at` is the time of a live item."""
        match item:
            case Recorded():
                self._fact(item.event, item.at)
            case TextStreamed():
                self._show_activity(f"{sanitize(item.agent)} is writing", came_at)
            case ThoughtStreamed():
                self._show_activity(f"{sanitize(item.agent)} is thinking", came_at)
            case Waiting():
                if not item.notice:
                    self._show_activity(flatten(item.why, 60), came_at, item.seconds)
            case Retried():
                self._show_activity(f"waiting for {sanitize(item.agent)}", came_at, item.seconds)
            case OutputStreamed():
                return

    def first_agent(self, able: Collection[str]) -> str:
        """Guess which of the `able` agents will take the request's first turn, "" if that cannot be
        guessed or the turn has begun.

        The guess is the agent that took the last request's first turn, else a cheap one if the
        cascade decides.
        """
        if self._turn or not able:
            return ""
        if self._first in able or len(able) == 1:
            return self._first if self._first in able else next(iter(able))
        cheap = [name for name in self._cheap if name in able]
        return cheap[0] if cheap and self._coordinator == "cascade" else ""

    def _show_activity(self, doing: str, at: float, seconds: float = 0.0) -> None:
        if doing != self.doing:
            self.doing, self.since = doing, at
        self.until = at + seconds if seconds else 0.0

    def _fact(self, event: Event, at: float) -> None:
        match event:
            case Opened():
                self._coordinator, self._root = event.coordinator, event.repo
                self._cheap |= {
                    member.name: None for member in event.pool if member.slot == "cheap"
                }
            case Asked():
                self._test_command = event.test_command or ""
                self._show_activity("deciding", at)
            case Assigned():
                if event.subtask is None:
                    self._first = self._first if self._turn else event.agent
                    self._turn = sanitize(event.agent)
                self._show_activity(f"waiting for {sanitize(event.agent)}", at)
            case Replied() | Planned() | Compacted() | Failed():
                self._show_activity("deciding", at)
            case Permitted():
                self._show_activity(
                    self._describe_running(event) if event.allowed else f"waiting for {self._turn}",
                    at,
                )
            case ToolRan():
                self._show_activity(f"waiting for {self._turn}" if self._turn else "deciding", at)
            case Finished() | Interrupted():
                self.doing, self._turn, self.until = "", "", 0.0
            case _:
                return

    def _describe_running(self, event: Permitted) -> str:
        """Return the description of a running call; for fugu's own test run the command."""
        if event.by == EVIDENCE and event.call.tool == RUN_TESTS:
            return f"{RUNNING_TESTS}: {flatten(self._test_command, 60)}"
        return f"running {flatten(describe_call(event.call, self._root), 60)}"


class SessionTotals:
    """Totals of the session so far."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.by_agent: dict[str, tuple[Usage, float]] = {}
        self.cost = 0.0
        self.context: float | None = None
        self.asked_at = 0.0
        self.todo: tuple[TodoItem, ...] = ()
        self.jobs: dict[str, str] = {}
        """Commands of the background jobs, by name."""
        self.changed: dict[str, FileChange] = {}
        """By path what became of it in this session."""
        self.authors: dict[str, dict[str, None]] = {}
        """By path the agents that changed it, in their order."""
        self._agents: dict[int, str] = {}
        """By turn of the newest request its agent."""
        self.sizes: dict[FileChange, tuple[int, int]] = {}
        """Lines added and removed, as far as they are known."""
        self.context_parts: dict[str, int] = {}
        """The next prompt of the agent that worked last: tokens by source."""
        self._written = 0
        self._streamed: dict[int, int] = {}
        self._inside: set[int] = set()
        """Subtasks of the newest turn, which waits for them; their contexts are others."""

    @property
    def tokens(self) -> Usage:
        """The tokens of the session."""
        return sum((usage for usage, _ in self.by_agent.values()), Usage())

    @property
    def estimated(self) -> list[str]:
        """Agents whose cost is estimated: tokens nobody counted, or an assumed price."""
        return [
            name
            for name, (usage, _) in self.by_agent.items()
            if usage.is_estimated or has_assumed_price(self.members.get(name))
        ]

    @property
    def unpriced(self) -> list[str]:
        """Agents that were called and have no known price."""
        return [
            name
            for name in self.by_agent
            if name in self.members and self.members[name].price is None
        ]

    @property
    def writing(self) -> int:
        """Tokens written for the newest request; those of a running reply are guessed."""
        return self._written + round(sum(self._streamed.values()) / BYTES)

    def add_item(self, item: Recorded | Live) -> None:
        """Add an item of the log."""
        if isinstance(item, TextStreamed):
            self._streamed[item.turn] = self._streamed.get(item.turn, 0) + len(item.text)
        elif isinstance(item, Retried):
            self._streamed.pop(item.turn, None)  # it is said again
        elif isinstance(item, Recorded):
            self._fact(item.event, item.at)

    def _fact(self, event: Event, at: float) -> None:
        if isinstance(event, PaidEvent) and event.agent:
            self._add_cost(event)
        if isinstance(event, ToolRan | Merged | Undone):
            agent = self._agents.get(event.turn, "") if isinstance(event, ToolRan) else ""
            for change in event.changes:
                if agent:
                    self.authors.setdefault(change.path, {})[agent] = None
                before = self.changed.pop(change.path, None)
                self.changed |= net_changes((before, change) if before is not None else (change,))
        if isinstance(event, Replied | Failed | Interrupted):
            self._streamed.pop(event.turn, None)
        match event:
            case Opened():
                self.members |= {member.name: member for member in event.pool}
                self.jobs.clear()
            case Asked():
                self.asked_at, self._written, self.todo = at, 0, ()
                self._agents.clear()
            case Assigned():
                self._agents[event.turn] = event.agent
                self._inside = {*self._inside, event.turn} if event.subtask is not None else set()
            case Replied():
                self._add_reply(event)
            case Planned() | Compacted():
                self.context = None
            case ToolRan():
                if event.job:
                    self.jobs[event.job] = call_target(event.call).removesuffix(IN_BACKGROUND)
                if event.call.tool == TODO and event.ok:
                    self.todo = items_of(event.call)
            case JobEnded():
                self.jobs.pop(event.job, None)
            case Finished():
                self._streamed.clear()
            case _:
                return

    def _add_reply(self, event: Replied) -> None:
        self._written += event.usage.output
        member = self.members.get(event.agent)
        if member is not None and member.context and event.turn not in self._inside:
            self.context = (event.usage.input + event.usage.output) / member.context

    def _add_cost(self, event: PaidEvent) -> None:
        cost = costs.price(event, self.members.get(event.agent))
        usage, before = self.by_agent.get(event.agent, (Usage(), 0.0))
        self.by_agent[event.agent] = (usage + event.usage, before + cost)
        self.cost += cost


class FoldedSession:
    """A session as an interface shows it: the conversation, the trace, the totals, and the running
    activity.
    """

    def __init__(self, records: Sequence[Recorded] = ()) -> None:
        self.transcript, self.rows = Transcript(), TraceRows()
        self.totals, self.activity = SessionTotals(), Activity()
        self._request = RequestState()
        for record in records:
            self.add_item(record, record.at)
        self.activity.doing = (
            ""  # what was under way when the session was left is not under way now
        )

    def add_item(
        self, item: Recorded | Live, came_at: float, log_state: SessionState | None = None
    ) -> tuple[int | None, int | None]:
        """Add an item of the log. `came_at` is the time of a live item. `log_state`, if given, is
        used when the log has no later events, so that nothing is derived twice. Return the first
        block and the first row that changed.
        """
        self.totals.add_item(item)
        self.activity.add_item(item, came_at)
        request = self._request
        if isinstance(item, Recorded):
            request = self._request = request_after(self._request, item.event)
            if log_state is not None and len(log_state.events) == item.seq + 1:
                request = log_state.request
        return self.transcript.add_item(item, request), self.rows.add_item(item, request)
