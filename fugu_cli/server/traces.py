"""A served request as a session: its messages become events, events become an answer with its
usage, and the log is kept as a trace.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import prompts
from fugu_cli.errors import StorageError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Thinking, Usage
from fugu_cli.server.client_requests import ServedAnswer
from fugu_cli.session import log as logs
from fugu_cli.session import views
from fugu_cli.session.events import (
    ANSWERED,
    CLIENT,
    RECORDED,
    Asked,
    Assigned,
    Event,
    Permitted,
    Recorded,
    Replied,
    ToolRan,
)
from fugu_cli.session.log import Log, Redaction

UNKNOWN = "earlier"
"""The author of a reply that did not come from this endpoint."""


@dataclass(frozen=True)
class CallAuthor:
    """Who made a call: the agent, what it had thought, and the trace that holds the decision."""

    agent: str
    thinking: tuple[Thinking, ...] = ()
    trace: str = ""


Recall = Callable[[str], CallAuthor | None]
"""The author of the call with this id."""


def author_of(message: FromAgent, recall: Recall) -> CallAuthor | None:
    """Who wrote an earlier reply, told by the ids of its calls."""
    found = (recall(call.id) for call in message.calls)
    return next((author for author in found if author is not None), None)


def with_authors(messages: Sequence[Message], recall: Recall) -> tuple[Message, ...]:
    """The messages with their authors, and each author's own thinking back in its place."""
    return tuple(
        _attributed(message, recall) if isinstance(message, FromAgent) else message
        for message in messages
    )


def _attributed(message: FromAgent, recall: Recall) -> FromAgent:
    author = author_of(message, recall)
    update = {"agent": author.agent, "thinking": author.thinking} if author else {"agent": UNKNOWN}
    return message.model_copy(update=update)


def conversation_events(messages: Sequence[Message], *, whole: bool = False) -> list[Event]:
    """The conversation as a log would hold it; its newest request is open. Where a reply is the
    last that was said, the client wants it to go on: that is a request of its own. `whole`: prompts
    are made of these facts alone, so what the user said beside results is a request, too."""
    told = _EventBuilder(whole=whole)
    for message in messages:
        told.take(message)
    told.settle()
    return (
        [*told.events, *follow_up_request(messages)]
        if messages and isinstance(messages[-1], FromAgent)
        else told.events
    )


def follow_up_request(messages: Sequence[Message]) -> list[Event]:
    """The turn that the client brought along is over, and whoever comes next is asked: for the rest
    of the reply that was the last, or, where results were, once more for what they are of."""
    said = (
        message
        for message in reversed(messages)
        if isinstance(message, FromUser) and message.text.strip()
    )
    again = None if isinstance(messages[-1], FromAgent) else next(said, None)
    asked = (
        Asked(text=again.text, media=again.media)
        if again
        else Asked(text=prompts.load("serve/go_on"))
    )
    return [ANSWERED, asked]


def _together(said: Sequence[FromUser]) -> Asked:
    """What the user said one after the other, as one request."""
    media = tuple(one for message in said for one in message.media)
    return Asked(
        text="\n\n".join(message.text for message in said if message.text.strip()), media=media
    )


class _EventBuilder:
    """Messages in, facts out, one after the other."""

    def __init__(self, *, whole: bool) -> None:
        self.events: list[Event] = []
        self._whole = whole
        self._beside: list[FromUser] = []
        """What the user said beside the results of the turn that is open."""
        self._turn = 0
        self._calls: dict[str, Call] = {}
        self._in_turn = False
        """An agent's calls wait for results: what the user says now belongs to the same request."""

    def take(self, message: Message) -> None:
        match message:
            case FromUser():
                self._user(message)
            case FromAgent():
                self._agent(message)
            case FromTool():
                self._result(message)

    def _user(self, message: FromUser) -> None:
        last = self.events[-1] if self.events else None
        if isinstance(last, Asked):
            self.events[-1] = _together((FromUser(text=last.text, media=last.media), message))
            return
        if self._in_turn:  # part of the turn, and in a prompt made of the messages themselves
            self._beside.append(message)
            return
        self._ask(Asked(text=message.text, media=message.media))

    def _ask(self, asked: Asked) -> None:
        if self.events:
            self.events.append(ANSWERED)
        self._turn = 0
        self.events.append(asked)

    def settle(self) -> None:
        """The results that stand in a row have all come."""
        said = _together(self._beside)
        self._beside = []
        if self._whole and (said.text or said.media):
            self._ask(said)
            self._in_turn = False

    def _agent(self, message: FromAgent) -> None:
        self.settle()
        if not self.events:
            self.events.append(Asked(text=""))
        if not self._in_turn:
            self._turn += 1
            name = message.agent or UNKNOWN
            self.events.append(Assigned(turn=self._turn, agent=name, role="worker", by=CLIENT))
        self._in_turn = bool(message.calls)
        self._calls = {call.id: call for call in message.calls}
        self.events.append(
            Replied(
                turn=self._turn,
                agent=message.agent or UNKNOWN,
                text=message.text,
                calls=message.calls,
                stop="calls" if message.calls else "end",
            )
        )

    def _result(self, message: FromTool) -> None:
        call = self._calls.get(message.call) or Call(id=message.call, tool=message.tool)
        if not self.events:
            self.events.append(Asked(text=""))
        self.events.append(Permitted(turn=self._turn, call=call, allowed=True, by=CLIENT))
        self.events.append(
            ToolRan(
                turn=self._turn, call=call, output=message.text, ok=message.ok, media=message.media
            )
        )


def answer_with_usage(
    events: Sequence[Event], began: int, reply: Replied, recorded: Replied, note: str = ""
) -> ServedAnswer:
    """The answer made of `reply`, which the log holds as `recorded`, without secrets. This request
    made the facts from `began` on."""
    made = events[began:]
    return ServedAnswer(
        text=reply.text,
        calls=reply.calls,
        stop=reply.stop,
        usage=reply.usage,
        orchestration=orchestration_usage(made, recorded),
        agent=reply.agent,
        served=reply.model,
        cost=views.cost(made, views.pool(events)),
        reasoning="\n\n".join(block.text for block in reply.thinking if block.text),
        note=note,
    )


def orchestration_usage(made: Sequence[Event], answer: Replied) -> Usage:
    """What the coordinator read, and every model call but the one whose reply is the answer."""
    total = Usage()
    for event in made:
        if isinstance(event, Assigned) and event.scores is not None:
            total += Usage(input=event.scores.tokens, cached=event.scores.cached_tokens)
        elif event is not answer:
            usage = getattr(event, "usage", None)
            total += usage if isinstance(usage, Usage) else Usage()
    return total


FOLDER = "served"
"""Beside the folders of repositories: the requests of an endpoint belong to none."""

KEPT_BYTES = 512 * 1024 * 1024
KEPT_FILES = 5000
EVERY = 100
"""Requests between two looks at what is too much."""

REMEMBERED = 4096
"""Calls whose authors are known without looking at the disk."""

ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
CALL = re.compile(rf"call_({ID.pattern})_\d+")


def new_id() -> str:
    """A trace's id: sorts by time, is the `id` of the answer, and stands in the ids of its
    calls.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def call_id(trace: str, number: int) -> str:
    """The id of call `number` of an answer: at most 40 characters, which is what every provider
    takes.
    """
    return f"call_{trace}_{number}"


class Traces:
    """The traces in `data`, and those of requests that are being answered."""

    def __init__(self, data: Path, mask: Callable[[], Redaction | None] = lambda: None) -> None:
        self._new_mask = mask
        self._folder = data / "sessions" / FOLDER
        self._live: dict[str, Log] = {}
        self._written: dict[str, int] = {}
        self._authors: OrderedDict[str, CallAuthor] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traces")
        self._opened = 0
        self.failure: StorageError | None = None
        """The newest one: answers go on, the trace is lost, and the server says so."""

    def open(self, id: str) -> Log:
        """The log of a new request."""
        log = Log.memory()
        log.mask = self._new_mask()
        self._live[id] = log
        self._written[id] = 0
        self._opened += 1
        if self._opened % EVERY == 1:
            self._thread.submit(self._prune)
        return log

    def path(self, id: str) -> Path:
        """Where the trace of a request lies."""
        return self._folder / f"{id}.jsonl"

    def save(self, id: str) -> None:
        """Write what is new of a request. A disk that fails loses the trace, not the answer."""
        new = self._live[id].records[self._written[id] :]
        self._written[id] += len(new)
        self._write(self.path(id), new)

    def finish(self, id: str) -> None:
        """The request is over: write the rest, remember who made its calls, and forget it."""
        log = self._live[id]
        for event in log.events:
            if isinstance(event, Replied):
                self._remember(event, id)
        self.save(id)
        del self._written[id], self._live[id]

    def read(self, id: str) -> list[Recorded] | None:
        """The records of a trace, None where there is none. Raises StorageError."""
        if not ID.fullmatch(id):
            return None
        if id in self._live:
            return list(self._live[id].records)
        path = self.path(id)
        return logs.read(path) if path.is_file() else None

    def author(self, call: str) -> CallAuthor | None:
        """Who made the call with this id: from memory, else from the trace that the id names."""
        known = self._authors.get(call)
        found = CALL.fullmatch(call)
        if known is not None or found is None:
            return known
        try:
            records = self.read(found.group(1)) or []
        except StorageError:
            return None
        for record in records:
            if isinstance(record.event, Replied):
                self._remember(record.event, found.group(1))
        return self._authors.get(call)

    def close(self) -> None:
        """Everything is on the disk when this returns."""
        for id in list(self._written):
            self.save(id)
        self._thread.shutdown(wait=True)

    def _remember(self, reply: Replied, trace: str) -> None:
        for call in reply.calls:
            if CALL.fullmatch(call.id) and call.id.startswith(f"call_{trace}_"):
                self._authors[call.id] = CallAuthor(reply.agent, reply.thinking, trace)
        while len(self._authors) > REMEMBERED:
            self._authors.popitem(last=False)

    def _write(self, path: Path, records: Sequence[Recorded]) -> None:
        lines = b"".join(RECORDED.dump_json(record) + b"\n" for record in records)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb"
            ) as file:
                file.write(lines)
        except OSError as error:
            self.failure = StorageError(
                f"the trace {path.stem} cannot be written: {error.strerror}"
            )

    def _prune(self) -> None:
        with contextlib.suppress(OSError):
            files = sorted(self._folder.glob("*.jsonl"), reverse=True)
            size = 0
            for number, path in enumerate(files):
                size += path.stat().st_size
                if (number >= KEPT_FILES or size > KEPT_BYTES) and path.stem not in self._live:
                    path.unlink()
