"""While an agent streams its reply, the coordinator already reads it, so that the decision after it is quick.

A reader of the log like any other, on a thread of its own: it never blocks the event loop, gives way to every
decision, and changes none (what it reads is a prefix that the decision finds known, or it is dropped). Where agent
and coordinator share the processor it pauses while the agent computes. Must not know torch; what can read along
says so by having `ahead`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol, runtime_checkable

from fugu_cli.coordinators import Coordinator
from fugu_cli.session import views
from fugu_cli.session.events import Event, Permitted, Recorded, Replied
from fugu_cli.session.live_events import TextStreamed
from fugu_cli.session.log import Log

LEAST_NEW = 8
"""Characters, two tokens or so, that must be new before they are worth a pass."""
LONGEST_DELAY = 0.15
"""Seconds after which fewer than that are read all the same: the agent has paused."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A coordinator that can take in what will be a part of its next transcript."""

    @property
    def shares_processor(self) -> bool:
        """It computes where local agents compute."""
        ...

    async def ahead(self, events: Sequence[Event], said: str, stop: threading.Event) -> None:
        """Read the transcript of `events` with `said` as the beginning of the open turn's reply, until `stop` is set.

        Does nothing while it is not loaded. Raises nothing that the next decision would not find out itself.
        """
        ...


@asynccontextmanager
async def reading_ahead(log: Log, coordinator: Coordinator) -> AsyncIterator[None]:
    """While this is open, `coordinator` reads along with `log` if it can."""
    if not isinstance(coordinator, ReadsAhead):
        yield
        return
    reader = _Reader(log, coordinator)
    tasks = [asyncio.create_task(reader.listen()), asyncio.create_task(reader.read())]
    await asyncio.sleep(0)  # they listen from here on: a word that was missed would spoil all that follow
    try:
        yield
    finally:
        reader.stop.set()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


class _Reader:
    """One run's reading: `listen` keeps up with the log, `read` with what there is to read."""

    def __init__(self, log: Log, coordinator: ReadsAhead) -> None:
        self.stop = threading.Event()
        self._log = log
        self._coordinator = coordinator
        self._said: list[str] = []
        self._new = asyncio.Event()
        self._new.set()  # what is in the log when this begins
        self._paused = self._agent_computes()

    async def listen(self) -> None:
        """Gather what is being said, and interrupt the reading where an agent needs the processor."""
        old = len(self._log.records)
        async for item in self._log.follow():
            if old:
                old -= 1
            elif isinstance(item, TextStreamed):
                self._said.append(item.text)
                self._new.set()
            elif isinstance(item, Recorded):
                self._said.clear()
                self._paused = self._agent_computes()
                if self._paused:
                    self.stop.set()
                self._new.set()

    async def read(self) -> None:
        """Read whenever there is something worth it."""
        known = 0
        while True:
            await self._new.wait()
            self._new.clear()
            said = "".join(self._said)
            if said and 0 <= len(said) - known < LEAST_NEW:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._new.wait(), LONGEST_DELAY)
                    continue
            known = len(said)
            if not self._paused:
                self.stop.clear()
                await self._coordinator.ahead(list(self._log.events), said, self.stop)

    def _agent_computes(self) -> bool:
        return self._coordinator.shares_processor and local_agent_computes(self._log.events)


def local_agent_computes(events: Sequence[Event]) -> bool:
    """The open turn's agent runs on this machine and is at work: its reply is due, and no tool of its turn runs."""
    turns = views.turns(events)
    if not turns or turns[-1].failed or turns[-1].interrupted or views.finished(events) is not None:
        return False
    member = views.pool(events).get(turns[-1].assigned.agent)
    running = isinstance(events[-1], Permitted) and events[-1].allowed
    return member is not None and member.provider == "local" and not running and not isinstance(events[-1], Replied)


def possible_logs(events: Sequence[Event], said: str, more: str) -> list[Sequence[Event]]:
    """The logs that this one may become when the turn closes: its reply is `said`, or `said` and `more`.

    Where no reply is due - there is no turn, or its agent has spoken and called nothing - that is the log as it is.
    """
    turns = views.turns(events)
    if not turns or turns[-1].failed or turns[-1].interrupted:
        return [events]
    replies, assigned = turns[-1].replies, turns[-1].assigned
    if not said and replies and not replies[-1].calls:
        return [events]
    return [[*events, Replied(turn=assigned.turn, agent=assigned.agent, text=text)] for text in (said, said + more)]


def common_prefix(*texts: str) -> str:
    """The longest common beginning."""
    one, other = min(texts), max(texts)
    same, differs = 0, min(len(one), len(other)) + 1
    while differs - same > 1:  # the texts are long and the same nearly to their ends
        middle = (same + differs) // 2
        same, differs = (middle, differs) if one[same:middle] == other[same:middle] else (same, middle)
    return one[:same]
