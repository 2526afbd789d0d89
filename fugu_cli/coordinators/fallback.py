"""Fallback: the learned coordinator where it can decide, a declared rule where it cannot, and the trace says which.

Loads in the background: `warm()` while the first prompt is read, the first decision waits for it. Must not know torch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from fugu_cli.coordinators import Coordinator, Decision
from fugu_cli.coordinators.along import ReadsAlong
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.events import Assigned, Event


class Fallback:
    """Asks what `factory` makes; once that has failed, `rule`, with the reason in every Assigned."""

    def __init__(self, factory: Callable[[], Coordinator], rule: Coordinator) -> None:
        self._factory = factory
        self._rule = rule
        self._loading: Future[Coordinator] | None = None
        self._failed: CoordinatorUnavailable | None = None

    def warm(self) -> None:
        """Start loading on a thread of its own. Returns at once; may be called again."""
        if self._loading is None:
            thread = ThreadPoolExecutor(1, thread_name_prefix="coordinator")
            self._loading = thread.submit(self._factory)
            thread.shutdown(wait=False)

    async def decide(self, events: Sequence[Event]) -> Decision:
        """The learned decision, or the rule's."""
        if self._failed is None:
            try:
                self.warm()
                assert self._loading is not None
                learned = await asyncio.shield(asyncio.wrap_future(self._loading))
                return await learned.decide(events)
            except CoordinatorUnavailable as error:
                self._failed = error
            except MemoryError as error:
                why = f"out of memory: {error}".rstrip(": ")
                self._failed = CoordinatorUnavailable(why, hint="close other programs")
        return self._marked(await self._rule.decide(events), self._failed)

    @property
    def shares_processor(self) -> bool:
        """As the learned one says; True while it is not there: then nothing is lost by waiting."""
        learned = self._learned()
        return learned is None or learned.shares_processor

    async def ahead(self, events: Sequence[Event], said: str, stop: threading.Event) -> None:
        """Let the learned coordinator read along, once it is loaded."""
        learned = self._learned()
        if learned is not None:
            await learned.ahead(events, said, stop)

    def _learned(self) -> ReadsAlong | None:
        if self._failed is not None or self._loading is None or not self._loading.done():
            return None
        if self._loading.exception() is not None:
            return None
        learned = self._loading.result()
        return learned if isinstance(learned, ReadsAlong) else None

    def _marked(self, decision: Decision, why: CoordinatorUnavailable) -> Decision:
        if not isinstance(decision, Assigned):
            return decision
        said = f"{why} ({why.hint})" if why.hint else str(why)
        return decision.model_copy(update={"reason": f"{decision.reason} [no learned coordinator: {said}]"})


def with_fallback(factory: Callable[[], Coordinator], rule: Coordinator) -> Fallback:
    """A coordinator that needs nothing: `factory` may raise CoordinatorUnavailable now or whenever it decides."""
    return Fallback(factory, rule)


if TYPE_CHECKING:

    def _fits(fallback: Fallback) -> Coordinator:
        return fallback
