"""A served request as a session: its messages become events, the events become an answer with its
usage, and the log is stored as a trace.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fugu_cli import prompts
from fugu_cli.errors import StorageError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Thinking, Usage
from fugu_cli.session import costs, log_format
from fugu_cli.session import log as logs
from fugu_cli.session.events import (
    ANSWERED,
    CLIENT,
    Asked,
    Assigned,
    Event,
    Permitted,
    Recorded,
    Replied,
    ToolRan,
)
from fugu_cli.session.log import Log, Redaction
from fugu_cli.session.state import SessionState
from fugu_cli.wires.client_requests import ServedAnswer

UNKNOWN = "earlier"
"""The author of a reply that did not come from this endpoint."""


@dataclass(frozen=True)
class CallAuthor:
    """The agent that made a tool call, its reasoning before the call, and the trace of its request."""

    agent: str
    thinking: tuple[Thinking, ...] = ()
    trace: str = ""


AuthorLookup = Callable[[str], CallAuthor | None]
"""Return the author of the call with this id, or None if it is unknown."""


def author_of(message: FromAgent, find_author: AuthorLookup) -> CallAuthor | None:
    """Return the author of an earlier reply, found by the ids of its calls."""
    for call in message.calls:
        author = find_author(call.id)
        if author is not None:
            return author
    return None


def with_authors(messages: Sequence[Message], find_author: AuthorLookup) -> tuple[Message, ...]:
    """Return the messages with the author of each reply and the reasoning behind it."""
    attributed: list[Message] = []
    for message in messages:
        if isinstance(message, FromAgent):
            author = author_of(message, find_author) or CallAuthor(UNKNOWN, message.thinking)
            update = {"agent": author.agent, "thinking": author.thinking}
            attributed.append(message.model_copy(update=update))
        else:
            attributed.append(message)
    return tuple(attributed)


def conversation_events(messages: Sequence[Message], *, log_only: bool = False) -> list[Event]:
    """Return the conversation as a log would hold it, with its newest request open.

    If the last message is a reply, the client wants it to continue, which is a request of its own.
    With `log_only`, prompts are built from these events alone, so text of the user next to tool
    results becomes a request too.
    """
    builder = _EventBuilder(log_only=log_only)
    for message in messages:
        builder.add(message)
    builder.finish_results()
    if messages and isinstance(messages[-1], FromAgent):
        return [*builder.events, *follow_up_request(messages)]
    return builder.events


def follow_up_request(messages: Sequence[Message]) -> list[Event]:
    """Return the events that end the client's turn and ask another agent to continue.

    After a reply the request is for the rest of it; after tool results the user's newest request is
    asked again.
    """
    if not isinstance(messages[-1], FromAgent):
        for message in reversed(messages):
            if isinstance(message, FromUser) and message.text.strip():
                return [ANSWERED, Asked(text=message.text, media=message.media)]
    return [ANSWERED, Asked(text=prompts.load("serve/go_on"))]


def _joined_request(messages: Sequence[FromUser]) -> Asked:
    """Return one request with the texts and the media of several messages."""
    texts = [message.text for message in messages if message.text.strip()]
    media = chain.from_iterable(message.media for message in messages)
    return Asked(text="\n\n".join(texts), media=tuple(media))


class _EventBuilder:
    """Translates messages into events, one after the other."""

    def __init__(self, *, log_only: bool) -> None:
        self.events: list[Event] = []
        self._log_only = log_only
        self._next_to_results: list[FromUser] = []
        """Messages of the user among the tool results of the open turn."""
        self._turn = 0
        self._calls: dict[str, Call] = {}
        self._in_turn = False
        """An agent's calls wait for results, so a user's message belongs to the same request."""

    def add(self, message: Message) -> None:
        match message:
            case FromUser():
                last = self.events[-1] if self.events else None
                if isinstance(last, Asked):
                    earlier = FromUser(text=last.text, media=last.media)
                    self.events[-1] = _joined_request([earlier, message])
                elif self._in_turn:
                    self._next_to_results.append(message)
                else:
                    self._begin_request(Asked(text=message.text, media=message.media))
            case FromAgent():
                self.finish_results()
                if not self.events:
                    self.events.append(Asked(text=""))
                agent = message.agent or UNKNOWN
                if not self._in_turn:
                    self._turn += 1
                    self.events.append(
                        Assigned(turn=self._turn, agent=agent, role="worker", by=CLIENT)
                    )
                self._in_turn = bool(message.calls)
                self._calls = {call.id: call for call in message.calls}
                self.events.append(
                    Replied(
                        turn=self._turn,
                        agent=agent,
                        text=message.text,
                        calls=message.calls,
                        stop="calls" if message.calls else "end",
                    )
                )
            case FromTool():
                call = self._calls.get(message.call) or Call(id=message.call, tool=message.tool)
                if not self.events:
                    self.events.append(Asked(text=""))
                self.events.append(Permitted(turn=self._turn, call=call, allowed=True, by=CLIENT))
                self.events.append(
                    ToolRan(
                        turn=self._turn,
                        call=call,
                        output=message.text,
                        ok=message.ok,
                        media=message.media,
                    )
                )

    def finish_results(self) -> None:
        """Turn the user's messages among the tool results into a request, with `log_only`."""
        request = _joined_request(self._next_to_results)
        self._next_to_results = []
        if self._log_only and (request.text or request.media):
            self._begin_request(request)
            self._in_turn = False

    def _begin_request(self, request: Asked) -> None:
        if self.events:
            self.events.append(ANSWERED)
        self._turn = 0
        self.events.append(request)


def answer_with_usage(
    state: SessionState, first_new: int, reply: Replied, recorded: Replied, note: str = ""
) -> ServedAnswer:
    """Return the answer made of `reply`, with the costs of all events from index `first_new` on.

    `recorded` is the same reply as the log holds it, with secrets redacted.
    """
    new_events = state.events[first_new:]
    is_estimated = costs.is_estimated(new_events, state.pool)
    return ServedAnswer(
        text=reply.text,
        calls=reply.calls,
        stop=reply.stop,
        usage=reply.usage,
        orchestration=orchestration_usage(new_events, recorded),
        agent=reply.agent,
        served=reply.model,
        cost=costs.cost(new_events, state.pool),
        estimated_cost=costs.estimated_cost(new_events, state.pool) if is_estimated else None,
        reasoning="\n\n".join(block.text for block in reply.thinking if block.text),
        note=note,
    )


def orchestration_usage(events: Sequence[Event], answer: Replied) -> Usage:
    """Add up the tokens that the coordinator read and those of every model call except `answer`."""
    total = Usage()
    for event in events:
        if isinstance(event, Assigned) and event.scores is not None:
            total += Usage(input=event.scores.tokens, cached=event.scores.cached_tokens)
        elif event is not answer:
            usage = getattr(event, "usage", None)
            total += usage if isinstance(usage, Usage) else Usage()
    return total


FOLDER = "served"
"""The folder of traces below `sessions`: requests of an endpoint belong to no repository."""

KEPT_BYTES = 512 * 1024 * 1024
KEPT_FILES = 5000
PRUNE_INTERVAL = 100
"""Requests between two checks for surplus traces."""

REMEMBERED = 4096
"""Calls whose authors are kept in memory."""

ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
CALL = re.compile(rf"call_({ID.pattern})(?:_([0-9a-f]{{5}}))?_\d+")
"""A call id: its trace, the tag of its agent (absent in ids of earlier versions), and its number."""


def new_id() -> str:
    """Return a new trace id, which is also the id of the answer and part of its call ids. Ids sort
    by time.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def agent_tag(agent: str) -> str:
    """Return five hex digits that stand for an agent's name in call ids."""
    return hashlib.sha256(agent.encode()).hexdigest()[:5]


def call_id(trace: str, agent: str, number: int) -> str:
    """Return the id of call `number` of an agent's answer: at most 40 of the characters
    `[A-Za-z0-9_-]`, which every provider takes.
    """
    return f"call_{trace}_{agent_tag(agent)}_{number}"


def author_by_tag(call: str, agents: Iterable[str]) -> CallAuthor | None:
    """Return the agent that the tag in a call id stands for, None if there is none. Another replica
    may have answered, so only the name is known, not the reasoning.
    """
    match = CALL.fullmatch(call)
    if match is None:
        return None
    trace, tag = match.groups()
    tagged = [agent for agent in agents if agent_tag(agent) == tag]
    return CallAuthor(tagged[0], trace=trace) if len(tagged) == 1 else None


class Traces:
    """The traces below the folder `data`, and the logs of requests that are being answered."""

    def __init__(
        self, data: Path, new_redaction: Callable[[], Redaction | None] = lambda: None
    ) -> None:
        self._new_redaction = new_redaction
        self._folder = data / "sessions" / FOLDER
        self._live: dict[str, Log] = {}
        self._written: dict[str, int] = {}
        self._authors: OrderedDict[str, CallAuthor] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traces")
        self._opened = 0
        self.failure: StorageError | None = None
        """The newest failed write. The trace is lost, answers continue, and `/health` reports it."""

    def open(self, id: str) -> Log:
        """Open the log of a new request."""
        log = Log.memory()
        log.mask = self._new_redaction()
        self._live[id] = log
        self._written[id] = 0
        self._opened += 1
        if self._opened % PRUNE_INTERVAL == 1:
            self._thread.submit(self._prune)
        return log

    def path(self, id: str) -> Path:
        """Return the path of a request's trace."""
        return self._folder / f"{id}.jsonl"

    def save(self, id: str) -> None:
        """Write the new records of a request. If the disk fails, the trace is lost but not the
        answer.
        """
        new = self._live[id].records[self._written[id] :]
        self._written[id] += len(new)
        self._write(self.path(id), new)

    def finish(self, id: str) -> None:
        """Write the rest of a finished request, remember the authors of its calls, and drop its
        log.
        """
        log = self._live[id]
        for event in log.events:
            if isinstance(event, Replied):
                self._remember(event, id)
        self.save(id)
        del self._written[id], self._live[id]

    def read(self, id: str) -> list[Recorded] | None:
        """Return the records of a trace, or None if it does not exist. Raises StorageError."""
        if not ID.fullmatch(id):
            return None
        if id in self._live:
            return list(self._live[id].records)
        path = self.path(id)
        return logs.read(path) if path.is_file() else None

    def newest(self, count: int) -> list[str]:
        """Return the ids of the newest traces, newest first. Called in a thread."""
        with contextlib.suppress(OSError):
            stored = [path.stem for path in self._folder.glob("*.jsonl")]
            return sorted({*stored, *tuple(self._live)}, reverse=True)[:count]
        return []

    def author(self, call: str) -> CallAuthor | None:
        """Return the author of the call with this id, from memory or from the trace in the id."""
        author = self._authors.get(call)
        match = CALL.fullmatch(call)
        if author is not None or match is None:
            return author
        trace = match[1]
        try:
            records = self.read(trace) or []
        except StorageError:
            return None
        for record in records:
            if isinstance(record.event, Replied):
                self._remember(record.event, trace)
        return self._authors.get(call)

    def close(self) -> None:
        """Write everything to disk."""
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
        lines = log_format.encode_lines(records)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb") as file:
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
                too_old = number >= KEPT_FILES or size > KEPT_BYTES
                if too_old and path.stem not in self._live:
                    path.unlink()
