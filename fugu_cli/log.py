"""The session: an append-only JSONL file of facts, one writer, any number of readers.

Write, then tell. A line is on the disk before anybody hears of it. A torn last line (a crash in the middle of a write)
is cut when a writer opens the file; nothing else is ever repaired in storage. Knows nothing of what the facts mean.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from fugu_cli import processes
from fugu_cli.errors import SessionBusy, StorageError
from fugu_cli.events import RECORDED, Event, Live, Recorded

Told = TypeVar("Told", bound=BaseModel)
ALIVE = 0.5
"""Seconds between two signs of life."""


class Masking(Protocol):
    """Takes a fact or a live event, returns the same without secrets."""

    def __call__(self, fact: Told, /) -> Told: ...


class Log:
    """A session open for writing. Make one with `create`, `open` or `memory`."""

    def __init__(self, path: Path | None, records: list[Recorded], clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._records = records
        self._events: list[Event] = [record.event for record in records]
        self._clock = clock
        self._file: FileIO | None = None
        self._end = 0
        """Bytes of the whole lines on the disk."""
        self._lock: FileLock | None = None
        self._readers: list[asyncio.Queue[Recorded | Live | None]] = []
        self.left = clock()
        """When the process that wrote it before was last known to live, in seconds since the epoch."""
        self.mask: Masking | None = None
        """What everything goes through before it is written or told: secrets are taken out here and nowhere else."""

    @classmethod
    def create(cls, path: Path) -> Log:
        """A new session at `path`. Raises StorageError when the file exists or cannot be made."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            raise StorageError(f"cannot create the session {path}: {error.strerror}", hint=_SPACE) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Log:
        """An existing session, to be continued. Cuts a torn last line.

        Raises SessionBusy when another process writes it, StorageError when it cannot be read.
        """
        lock = FileLock(f"{path}.lock", timeout=processes.LET_GO, mode=0o600, thread_local=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise SessionBusy(
                f"session {path.stem} is open in another process",
                hint="wait for it to end, or use --fork-session to go on from a copy",
            ) from error
        except OSError as error:
            raise StorageError(f"cannot lock {path}: {error.strerror}", hint=_SPACE) from error
        try:
            data, left = path.read_bytes(), path.stat().st_mtime
            whole = data[: data.rfind(b"\n") + 1]
            log = cls(path, parse(whole or _begun(data), path))
            log._lock, log._end, log.left = lock, len(whole), left
            log._file = log._at_end()
        except OSError as error:
            lock.release()
            raise StorageError(f"cannot open {path}: {error.strerror}") from error
        except StorageError:
            lock.release()
            raise
        return log

    @classmethod
    def memory(cls, events: Sequence[Event] = ()) -> Log:
        """A session without a file, for rollouts and tests."""
        return cls(None, [Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate(events)])

    @property
    def events(self) -> Sequence[Event]:
        """All facts, oldest first. The list grows; do not change it."""
        return self._events

    @property
    def records(self) -> Sequence[Recorded]:
        """All lines, oldest first."""
        return self._records

    def append(self, event: Event) -> Recorded:
        """Write one fact, then tell every reader. Raises StorageError; then the file ends with the last whole line, and
        the next fact is written if it can be."""
        event = event if self.mask is None else self.mask(event)
        record = Recorded(seq=len(self._records), at=self._clock(), event=event)
        try:
            line = RECORDED.dump_json(record)
        except PydanticSerializationError:
            record = RECORDED.validate_python(_valid(record.model_dump()))
            line = RECORDED.dump_json(record)
        if self._lock is not None:
            self._write(line + b"\n")
        self._records.append(record)
        self._events.append(record.event)
        self._tell(record)
        return record

    def _write(self, line: bytes) -> None:
        """Nothing of a line stays that could not be written; the next one is tried all the same."""
        try:
            self._file = self._file or self._at_end()
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._cut_back()
            raise StorageError(f"cannot write the session {self.path}: {error.strerror}", hint=_SPACE) from error
        self._end += len(line)

    def _at_end(self) -> FileIO:
        """The file, behind its last whole line; without a buffer, which would keep what could not be written."""
        assert self.path is not None
        file = FileIO(self.path, "r+")
        if file.seek(0, os.SEEK_END) != self._end:  # else its time tells when somebody last wrote
            file.truncate(self._end)
            file.seek(self._end)
        return file

    def _cut_back(self) -> None:
        """Leave no half line behind; where even that fails, the next writing or opening cuts it."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError), file:
                file.truncate(self._end)

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """Touch the file every `ALIVE` seconds until the block is left: whoever finds the session of a killed process
        knows from its time until when that worked."""
        task = asyncio.create_task(self._touch())
        try:
            yield
        finally:
            task.cancel()

    async def _touch(self) -> None:
        while self.path is not None:
            with suppress(OSError):
                os.utime(self.path)
            await asyncio.sleep(ALIVE)

    def tell(self, live: Live) -> None:
        """Tell every reader something that is not a fact and is written nowhere."""
        self._tell(live if self.mask is None else self.mask(live))

    def _tell(self, item: Recorded | Live | None) -> None:
        for reader in self._readers:
            reader.put_nowait(item)

    async def follow(self) -> AsyncIterator[Recorded | Live]:
        """All lines so far, then every new one and every live event, until the log is closed.

        Subscribes at the first `anext`; no line is lost or told twice.
        """
        queue: asyncio.Queue[Recorded | Live | None] = asyncio.Queue()
        for record in self._records:
            queue.put_nowait(record)
        self._readers.append(queue)
        try:
            while (item := await queue.get()) is not None:
                yield item
        finally:
            self._readers.remove(queue)

    def close(self) -> None:
        """End of writing: readers' `follow` ends, the lock is given back. May be called twice."""
        self._tell(None)
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


@contextmanager
def closed(path: Path) -> Iterator[bool]:
    """Whether nobody has the session open for writing; where nobody has, nobody opens it until the block is left."""
    lock = FileLock(f"{path}.lock", timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except (Timeout, OSError):
        yield not path.parent.is_dir()
        return
    try:
        yield True
    finally:
        lock.release()


def _begun(data: bytes) -> bytes:
    """What is to be read of a file without a whole line: nothing of a session's first line that was cut off; all of a
    file that is no session's, which must not be cut."""
    return b"" if data[: len(FIRST)] == FIRST[: len(data)] else data


def _valid(value: object) -> object:
    """`value` with text that can be written: halves of a character joined where they belong together, else `\ufffd`.

    A model's JSON may escape half of a surrogate pair, and a file's name may be no UTF-8.
    """
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {key: _valid(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valid(item) for item in value]
    return value


def as_written(text: str) -> str:
    """A text as a session holds it: a path that is no UTF-8 reads otherwise there."""
    return str(_valid(text))


def read(path: Path) -> list[Recorded]:
    """The whole lines of a session, for readers that do not write; a torn last line is left alone and not returned."""
    return parse(_whole(path), path)


def skim(path: Path, types: Collection[str]) -> list[Recorded]:
    """The first and the last whole line, and those whose events are of these types: what a list of many sessions
    needs, without reading what their tools printed. Raises StorageError."""
    mark = re.compile(rb'"event":\s*\{\s*"type":\s*"(?:%s)"' % "|".join(types).encode())
    lines = _whole(path).splitlines()
    ends = {0, len(lines) - 1}
    wanted = [line for at, line in enumerate(lines) if at in ends or mark.search(line, 0, HEAD)]
    return parse(b"\n".join(wanted), path)


def legible(path: Path) -> list[Recorded]:
    """Those of a session's whole lines that can be read: for sums, from which one damaged line, or one of a newer fugu,
    must not take the others. Raises StorageError where the file cannot be read."""
    records = []
    for line in _whole(path).splitlines():
        with suppress(ValidationError):
            records.append(RECORDED.validate_json(line))
    return records


def _whole(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return data[: data.rfind(b"\n") + 1]


def parse(data: bytes, path: Path) -> list[Recorded]:
    """JSONL text to records. Raises StorageError that names the first line that is not one."""
    records = []
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            records.append(RECORDED.validate_json(line))
        except ValidationError as error:
            raise StorageError(
                f"{path}, line {number} is not a session's line: {error.errors()[0]['msg']}",
                hint="the file was changed by hand or written by a newer fugu; nothing was altered",
            ) from error
    return records


FIRST = b'{"seq":0,'
"""How a session begins."""
HEAD = 120
"""Characters of a line within which its number, its time and its event's type stand."""
_SPACE = "check free space and permissions with `df -h` and `ls -l`; what was written before is kept"
