"""Where served requests leave their traces: a session file each.

A request's log is in memory while it is answered; its lines are appended before the model is called and when the
request is over, each time in one go and without waiting for the disk (handing them to a thread takes ten times as long
as writing them). `fugu trace ID` finds them like any session. The oldest ones go when there are too many.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fugu_cli import log as logs
from fugu_cli.errors import StorageError
from fugu_cli.events import RECORDED, Recorded, Replied
from fugu_cli.log import Log, Masking
from fugu_cli.serve.conversation import Author

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
    """A trace's id: sorts by time, is the `id` of the answer, and stands in the ids of its calls."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def call_id(trace: str, number: int) -> str:
    """The id of call `number` of an answer: at most 40 characters, which is what every provider takes."""
    return f"call_{trace}_{number}"


class Traces:
    """The traces in `data`, and those of requests that are being answered."""

    def __init__(self, data: Path, mask: Masking | None = None) -> None:
        self._mask = mask
        self._folder = data / "sessions" / FOLDER
        self._live: dict[str, Log] = {}
        self._written: dict[str, int] = {}
        self._authors: OrderedDict[str, Author] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="traces")
        self._opened = 0
        self.failure: StorageError | None = None
        """The newest one: answers go on, the trace is lost, and the server says so."""

    def open(self, id: str) -> Log:
        """The log of a new request."""
        log = Log.memory()
        log.mask = self._mask
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

    def author(self, call: str) -> Author | None:
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
                self._authors[call.id] = Author(reply.agent, reply.thinking, trace)
        while len(self._authors) > REMEMBERED:
            self._authors.popitem(last=False)

    def _write(self, path: Path, records: Sequence[Recorded]) -> None:
        lines = b"".join(RECORDED.dump_json(record) + b"\n" for record in records)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as file:
                file.write(lines)
        except OSError as error:
            self.failure = StorageError(f"the trace {path.stem} cannot be written: {error.strerror}")

    def _prune(self) -> None:
        with contextlib.suppress(OSError):
            files = sorted(self._folder.glob("*.jsonl"), reverse=True)
            size = 0
            for number, path in enumerate(files):
                size += path.stat().st_size
                if (number >= KEPT_FILES or size > KEPT_BYTES) and path.stem not in self._live:
                    path.unlink()
