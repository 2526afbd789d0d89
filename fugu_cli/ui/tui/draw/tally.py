"""What the status line counts: tokens, money, context, and what is being waited for. An incremental fold of the log.

Beside story.py. Adding one item takes the same time after ten thousand as after ten.
"""

from __future__ import annotations

from fugu_cli import views
from fugu_cli.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Compacted,
    Failed,
    Finished,
    Interrupted,
    Live,
    Member,
    Opened,
    Permitted,
    Planned,
    Recorded,
    Replied,
    Retried,
    Said,
    ToolRan,
    ToolSaid,
    Waiting,
)
from fugu_cli.messages import Usage
from fugu_cli.ui.clean import clean
from fugu_cli.ui.render import describe
from fugu_cli.ui.tui.draw.text import flat
from fugu_cli.views.spending import Paid


class Tally:
    """Totals of the session so far. `doing` is "" when nothing is under way; `since` is when that began (epoch).

    `until` is when it is tried again (epoch); 0 where nobody knows.
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.by_agent: dict[str, tuple[Usage, float]] = {}
        self.cost = 0.0
        self.context: float | None = None
        self.doing = ""
        self.since = 0.0
        self.until = 0.0
        self.asked_at = 0.0
        self._test_command = ""
        self._turn = ""

    @property
    def tokens(self) -> Usage:
        """All tokens of the session."""
        return sum((usage for usage, _ in self.by_agent.values()), Usage())

    @property
    def unpriced(self) -> list[str]:
        """Agents that were called and whose price nobody knows."""
        return [name for name in self.by_agent if name in self.members and self.members[name].price is None]

    def take(self, item: Recorded | Live, now: float) -> None:
        """One item of the log; `now` is the time a live one was heard."""
        if isinstance(item, Recorded):
            self._fact(item)
            return
        match item:
            case Said():
                self._now(f"{clean(item.agent)} is writing", now)
            case Waiting():
                self._now(flat(item.why, 60), now, item.seconds)
            case Retried():
                self._now(f"waiting for {clean(item.agent)}", now, item.seconds)
            case ToolSaid():
                return

    def _now(self, doing: str, at: float, seconds: float = 0.0) -> None:
        if doing != self.doing:
            self.doing, self.since = doing, at
        self.until = at + seconds if seconds else 0.0

    def _fact(self, record: Recorded) -> None:
        event, at = record.event, record.at
        match event:
            case Opened():
                self.members |= {member.name: member for member in event.pool}
            case Asked():
                self.asked_at = at
                self._test_command = event.test_command or ""
                self._now("deciding", at)
            case Assigned():
                self._turn = clean(event.agent)
                self._now(f"{self._turn} reads", at)
            case Replied():
                self._replied(event)
                self._now("deciding", at)
            case Planned() | Compacted():
                self._paid(event)
                self.context = None
                self._now("deciding", at)
            case Permitted():
                self._now(self._running(event) if event.allowed else f"{self._turn} reads", at)
            case ToolRan():
                self._now(f"{self._turn} reads" if self._turn else "deciding", at)
            case Failed():
                self._paid(event)
                self._now("deciding", at)
            case Finished() | Interrupted():
                self.doing, self._turn, self.until = "", "", 0.0
            case _:
                return

    def _running(self, event: Permitted) -> str:
        """What runs; of fugu's own test run the command, and the key that ends it."""
        if event.by == EVIDENCE and event.call.tool == views.RUN_TESTS:
            return f"running the tests: {flat(self._test_command, 60)} (F2 skips)"
        return f"running {flat(describe(event.call), 60)}"

    def _replied(self, event: Replied) -> None:
        self._paid(event)
        member = self.members.get(event.agent)
        if member is not None and member.context:
            self.context = (event.usage.input + event.usage.output) / member.context

    def _paid(self, event: Paid) -> None:
        if not event.agent:
            return
        cost = views.price(event, self.members.get(event.agent))
        usage, before = self.by_agent.get(event.agent, (Usage(), 0.0))
        self.by_agent[event.agent] = (usage + event.usage, before + cost)
        self.cost += cost
