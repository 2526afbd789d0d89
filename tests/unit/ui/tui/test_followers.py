"""Followers of a running session, over its socket: what they are told, and what they may do."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fugu_cli.app.attached_session import Connection
from fugu_cli.app.request_queue import QueuedRequest, RequestQueue
from fugu_cli.session.events import Permitted, Steered
from fugu_cli.session.live_events import OutputStreamed
from fugu_cli.session.log import LogMirror, is_open, socket_name
from tests.unit.ui.tui.demo import DemoSessionOpener
from tests.unit.ui.tui.test_working import ANSWER, ASKS, Heard, run, until

Object = dict[str, Any]


class RawFollower:
    """A follower that writes lines of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, message: Object | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.writer.write(line)

    async def next(self, kind: str) -> Object:
        """The next message of this type."""
        while True:
            line = await asyncio.wait_for(self.reader.readline(), 20)
            assert line, f"the connection ended before {kind}"
            message: Object = json.loads(line)
            if message["type"] == kind:
                return message


@asynccontextmanager
async def followers(path: Path, count: int = 1) -> AsyncIterator[list[RawFollower]]:
    connected = []
    for _ in range(count):
        streams = await asyncio.open_unix_connection(socket_name(path), limit=1 << 26)
        connected.append(RawFollower(*streams))
    try:
        yield connected
    finally:
        for follower in connected:
            follower.writer.close()


async def is_running(path: Path) -> bool:
    """What the session says of itself."""
    connection = await Connection.open(path)
    connection.close()
    return connection.status.running


def log_path(work: RequestQueue) -> Path:
    assert work.session is not None and work.session.log.path is not None
    return work.session.log.path


def test_of_two_answers_the_first_counts_and_the_other_is_told(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        path = log_path(work)
        running = asyncio.create_task(work.submit(QueuedRequest("one")))
        await until(lambda: bool(work.approvals.questions))
        async with followers(path, 2) as (first, second):
            (question,) = (await first.next("status"))["questions"]
            assert (
                question["asked"]["judgement"]["reason"]
                == "in ask mode every change is asked about"
            )
            answer = {
                "type": "answer",
                "question": question["number"],
                "call": question["asked"]["call"]["id"],
                "scope": "once",
            }
            first.send({**answer, "scope": "choice-1"})
            assert "is no answer to this question" in (await first.next("refused"))["why"]
            first.send(answer)
            await until(lambda: not work.approvals.questions)
            second.send(answer)
            assert "answered already" in (await second.next("refused"))["why"]
            await running
            assert (opener.root / "new.txt").read_text() == "x"
            assert list(LogMirror(path).records) == heard.records
            await work.close()
            assert (await first.next("dropped"))["why"] == "the session has been closed"
            assert (is_open(path), socket_name(path)) == (False, "")

    heard = run(opener, {"small": ASKS, "large": '[[step]]\ntext = "ACCEPT"\n'}, play)
    permits = [r.event for r in heard.records if isinstance(r.event, Permitted)]
    assert sum(permit.by == "user" for permit in permits) == 1


def test_a_follower_sends_requests_and_messages_and_interrupts(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        async with followers(log_path(work)) as (follower,):
            follower.send({"type": "send", "text": "one"})
            await until(lambda: bool(work.approvals.questions))
            follower.send({"type": "send", "text": "mind the tests"})
            await until(lambda: bool(work.waiting_messages))
            follower.send({"type": "send", "text": "two", "how": "queue"})
            await until(lambda: work.queued_texts == ["two"])
            follower.send({"type": "change_mode", "mode": "plan"})
            while (await follower.next("status"))["mode"] != "plan":
                continue
            follower.send({"type": "interrupt"})
            await until(lambda: not work.running)
            follower.send({"type": "interrupt"})
            assert (await follower.next("refused"))["why"] == "nothing is being worked on"

    heard = run(opener, {"small": ASKS}, play)
    messages = [r.event.text for r in heard.records if isinstance(r.event, Steered)]
    assert messages == ["mind the tests"]


def test_what_is_no_message_is_refused_and_the_session_goes_on(opener: DemoSessionOpener) -> None:
    bad: list[Object | bytes] = [
        b"no json\n",
        b"[" * 200_000 + b"\n",
        b"\xff\xfe\n",
        {"type": "send", "text": "x" * 1_000_001},
        {"type": "send"},
        {"type": "unknown"},
        {"type": "send", "text": "x", "more": 1},
        {"type": "change_mode", "mode": "root"},
        {"type": "answer", "question": 99, "scope": "once"},
        {"type": "send", "text": "hello", "pin": "nobody"},
    ]

    async def play(work: RequestQueue, heard: Heard) -> None:
        path = log_path(work)
        folder = Path(socket_name(path)).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        async with followers(path, 2) as (follower, good):
            for message in bad:
                follower.send(message)
                assert (await follower.next("refused"))["why"], message
            follower.send(b"x" * (5 << 20) + b"\n")
            assert "more than 4,194,304 bytes" in (await follower.next("dropped"))["why"]
            good.send({"type": "send", "text": "one"})
            await until(lambda: not work.running and len(heard.records) > 1)

    run(opener, {"small": ANSWER}, play)


def test_a_follower_that_does_not_read_is_dropped_and_holds_nobody_up(
    opener: DemoSessionOpener,
) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        path = log_path(work)
        assert work.session is not None
        async with followers(path, 2) as (slow, quick):
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await quick.next("status")
            for number in range(1000):
                text = f"{number} " + "x" * 10_000
                work.session.log.tell(OutputStreamed(turn=1, call="c", text=text))
                assert (await quick.next("told"))["item"]["text"] == text
            async with followers(path) as (late,):
                assert (await late.next("told"))["item"]["turn"] == 1
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            dropped = await slow.next("dropped")
            assert (dropped["why"], dropped["again"]) == ("it did not read in time", True)
            assert not await is_running(path)

    run(opener, {"small": ANSWER}, play)


def test_the_socket_of_a_killed_process_is_replaced(opener: DemoSessionOpener) -> None:
    async def play(work: RequestQueue, heard: Heard) -> None:
        path, name = log_path(work), socket_name(log_path(work))
        os.link(name, f"{name}.kept")
        await work.close()
        Path(f"{name}.kept").rename(name)  # nobody listens there any more
        again = RequestQueue(Heard())
        assert await again.open(lambda ask: opener.resume(path.stem, ask))
        assert not await is_running(path)
        await again.close()
        assert not Path(name).exists()

    run(opener, {"small": ANSWER}, play)
