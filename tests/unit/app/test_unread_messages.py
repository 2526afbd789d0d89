"""Messages that nobody had read when their request ended: each is queued once, none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.app.request_queue import Expand, QueuedRequest, RequestQueue
from fugu_cli.errors import UsageError
from fugu_cli.session.events import Asked, Event, Finished, Steered
from fugu_cli.session.state import SessionState
from fugu_cli.ui.tui.user_programs import UserShell

END = Finished(reason="answered", message="")


class Log:
    """A log in memory that tells nothing."""

    path = None

    def __init__(self, events: Sequence[Event]) -> None:
        self.records: list[Any] = []
        self.state = SessionState(events)

    def tell(self, live: object) -> None:
        """Tell nobody."""

    async def follow(self) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


class Session:
    """Its requests do what `work` adds to the log; one that says "refused" is refused."""

    tier, effort, can_change_plan = "fugu", "", False

    def __init__(self, events: Sequence[Event], work: Sequence[Event] = ()) -> None:
        self.log = Log(events)
        self.asked: list[str] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self._work = [*work]

    def add(self, *events: Event) -> None:
        self.log.state = SessionState([*self.log.state.events, *events])

    async def ask(self, text: str, *beside: object) -> None:
        if "refused" in text:
            raise UsageError("a hook refused the request")
        self.asked.append(text)
        self.add(Asked(text=text))

    async def steer(self, text: str, *beside: object) -> bool:
        await self.ask(text)
        return True

    async def run(self) -> None:
        if self.meanwhile is not None:
            await self.meanwhile()
        self.add(*self._work, END)
        self._work = []

    async def close(self) -> None:
        """Close nothing."""


class Listener:
    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


class Feed(Listener):
    """Shows nothing of a command's output."""

    def say(self, block: object) -> Any:
        return lambda block: None


async def opened(session: Session, expand: Expand = nullcontext) -> RequestQueue:
    work = RequestQueue(Listener(), expand)

    async def opening(_: object) -> Any:
        return session

    assert await work.open(opening)
    return work


def texts(work: RequestQueue) -> list[str]:
    return [typed.text for typed in work.queue]


def test_a_queued_message_that_is_refused_queues_no_other_again() -> None:
    async def play() -> None:
        messages = (Steered(text="refused"), Steered(text="second"))
        work = await opened(Session([Asked(text="go"), *messages, END]))
        assert texts(work) == ["refused", "second"]
        await work.send_queued()
        assert texts(work) == ["second"]
        await work.close()

    asyncio.run(play())


def test_a_message_left_before_a_hooks_follow_up_is_the_next_request() -> None:
    async def play() -> None:
        left = [Steered(text="late"), END, Asked(text="A hook asks to go on")]
        session = Session([], left)
        work = await opened(session)
        await work.submit(QueuedRequest("go"))
        assert (session.asked, texts(work)) == (["go", "late"], [])
        await work.close()

    asyncio.run(play())


def test_what_a_users_command_printed_waits_for_a_request_that_is_not_refused(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        shell = UserShell(tmp_path, Feed())
        session = Session([])
        work = await opened(session, shell.with_outputs)

        async def steer() -> None:
            await shell.run("echo first", tell=True)
            with pytest.raises(UsageError):
                await work.steer(QueuedRequest("refused"))
            await work.steer(QueuedRequest("a message"))
            await shell.run("echo second", tell=True)

        session.meanwhile = steer
        await work.submit(QueuedRequest("go"))
        session.meanwhile = None
        await work.submit(QueuedRequest("refused"))
        await work.submit(QueuedRequest("go on"))
        go, message, go_on = session.asked
        assert [("first" in text, "second" in text) for text in (go, message, go_on)] == [
            (False, False),
            (True, False),
            (False, True),
        ]
        await work.close()

    asyncio.run(play())
