"""Reads the kinds of requests whose decisions did not wait for them, so that their outcomes count by
kind. Whoever loads the model reads what is left, also of earlier sessions of the repository.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

from fugu_cli.coordinators.composed import ComposedHead, request_words
from fugu_cli.coordinators.kinds import BackboneKindReader
from fugu_cli.coordinators.outcome_store import OutcomeStore, UnreadRequest
from fugu_cli.coordinators.skills import KINDS
from fugu_cli.errors import CoordinatorUnavailable, StorageError
from fugu_cli.session import log
from fugu_cli.session.events import Asked, Event, KindRead
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState

MOST_UNREAD = 5
"""From so many requests of a repository on, the model is loaded for their kinds alone."""
READ_AT_ONCE = 10
"""Requests that are read after one request, the newest first."""


@dataclass(frozen=True)
class KindBacklog:
    """The requests of a repository whose kind nobody has read, and what can read it."""

    head: ComposedHead
    reader: BackboneKindReader
    outcomes: OutcomeStore
    _reading_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held while requests are read, so that the end of the next request reads none again."""

    def prepare(self, journal: Log) -> None:
        """Begin to load the model where the next decision may depend on the kind, or too many
        requests have none. Returns at once.
        """
        self.reader.report = lambda step: journal.tell(
            Waiting(why=f"the model that reads the kind of a request is {step}", notice=True)
        )
        threading.Thread(target=self._prepare, args=(journal,), daemon=True).start()

    def _prepare(self, journal: Log) -> None:
        records = tuple(journal.records)
        outcomes = self.outcomes.known(self.head.members, records, journal.path)
        unread = self.outcomes.unread(records, journal.path)
        if self.head.kind_matters(outcomes) or len(unread) >= MOST_UNREAD:
            self.reader.warm(retry=True)

    async def read(self, journal: Log) -> None:
        """Write down the kinds of requests that have none, if the model is loaded or they are
        many.
        """
        async with self._reading_lock:
            unread = await asyncio.to_thread(
                self.outcomes.unread, tuple(journal.records), journal.path
            )
            if not self.reader.is_loaded and len(unread) < MOST_UNREAD:
                return
            for request in unread[:READ_AT_ONCE]:
                is_own = request.path == journal.path
                events = journal.events if is_own else _events_of(request)
                words = _words(SessionState(events), request.number)
                if not words:
                    continue
                try:
                    reading = await self.reader.read(words)
                except CoordinatorUnavailable:
                    return
                session = "" if is_own else request.path.stem
                kinds = tuple(zip(KINDS, reading.rounded, strict=True))
                journal.append(KindRead(session=session, request=request.number, kinds=kinds))


def _events_of(request: UnreadRequest) -> list[Event]:
    try:
        return [record.event for record in log.read(request.path)]
    except StorageError:
        return []


def _words(state: SessionState, number: int) -> str:
    """Return the text of a request as a decision would have read it."""
    begun = [index for index, event in enumerate(state.events) if isinstance(event, Asked)]
    if len(begun) < number or len(state.requests) < number:
        return ""
    return request_words(SessionState(state.events[: begun[number - 1] + 1]))
