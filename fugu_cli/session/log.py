"""The session's log: an append-only JSONL file of events, one writer, any number of readers.

Write, then tell. A line is on the disk before any reader gets it. A torn last line (a crash in the
middle of a write) is cut when a writer opens the file; nothing else is ever repaired in storage: a
damaged session is read up to its first fault (`examine`) and not written. Knows nothing of what the
events mean.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from fugu_cli import __version__
from fugu_cli.errors import SessionBusy, StorageError, UsageError
from fugu_cli.messages import Call, Media
from fugu_cli.session.events import FORMAT, RECORDED, Event, Opened, Recorded
from fugu_cli.session.live_events import Live
from fugu_cli.session.log_format import LineReader, UnreadableFormat
from fugu_cli.session.state import SessionState
from fugu_cli.system import atomic_files, processes

Told = TypeVar("Told", bound=BaseModel)
HEARTBEAT_SECONDS = 0.5
"""Seconds between two signs of life."""
MOST_LOCK_BYTES = 4096
"""Bytes that are read of a lock."""


class Redaction(Protocol):
    """Removes secrets from what is written and shown, and restores them in calls (redaction.py)."""

    def text(self, text: str, /) -> str:
        """Return the text without secrets."""

    def masked(self, value: Told, /) -> Told:
        """Return the event without secrets."""

    def live(self, live: Live, /) -> Sequence[Live]:
        """Return the parts of a live event that can be shown now. The end of a streamed piece may
        be half of a secret, so it is held back.
        """

    def rest(self, event: Event, /) -> Sequence[Live]:
        """Return the held-back ends of the live texts that this event completes."""

    def original(self, call: Call, /, *, others: bool = True) -> Call:
        """Return a recorded call with its secrets restored, as its agent made it. With `others`,
        secrets of other calls with the same recorded arguments may be used.
        """

    def values(self, mark: str, near: Sequence[str], /, *, others: bool = True) -> Collection[str]:
        """Return the values that a mark may stand for: secrets of the texts in `near`, and with
        `others` all that this session knows.
        """


class LineFile:
    """A file that grows by whole lines, and the lock that keeps other writers out. `end` is the
    size of its whole lines in bytes.
    """

    def __init__(self, path: Path, lock: FileLock, end: int) -> None:
        self._path, self._lock, self._end = path, lock, end
        self._file: FileIO | None = self._opened()
        self._is_named = False

    def write(self, line: bytes) -> None:
        """Write a line. If that fails, no part of it stays in the file, and later lines may still
        be written. Raises StorageError.
        """
        try:
            self._file = self._file or self._opened()
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            # No half line stays behind. Where even that fails, the next opening cuts it.
            file, self._file = self._file, None
            if file is not None:
                with suppress(OSError), file:
                    file.truncate(self._end)
            raise StorageError(
                f"cannot write the session {self._path}: {error.strerror}", hint=_SPACE
            ) from error
        self._end += len(line)

    def _opened(self) -> FileIO:
        """Return the file, open for writing after its last whole line. It has no buffer, which
        would keep data that could not be written.
        """
        file = FileIO(self._path, "r+")
        if file.seek(0, os.SEEK_END) != self._end:  # else its time tells when somebody last wrote
            file.truncate(self._end)
            file.seek(self._end)
        return file

    def name_socket(self, text: str) -> None:
        """Write into the lock on which socket this process answers, or why it has none. It stays in
        the lock if the process is killed.
        """
        with suppress(OSError):
            lock_path(self._path).write_text(text, "utf-8")
            self._is_named = True

    def close(self) -> None:
        """Close the file and release the lock. May be called twice."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._is_named:
            self.name_socket("")
            self._is_named = False
        self._lock.release()


class Log:
    """A session open for writing. Make one with `create`, `open` or `memory`."""

    def __init__(
        self, path: Path | None, records: list[Recorded], clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self._records = records
        self.state = SessionState.of_records(records)
        """The state that follows from the events so far."""
        self._clock = clock
        self._file: LineFile | None = None
        self._readers: list[Callable[[Recorded | Live | None], object]] = []
        self.left = clock()
        """When the process that wrote it before was last known to live, in seconds since the
        epoch.
        """
        self.mask: Redaction | None = None
        """Masks secrets in everything that is written or shown. Nothing else does."""

    @classmethod
    def create(cls, path: Path) -> Log:
        """Create a session at `path`. Raises StorageError if the file exists or cannot be made."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            raise StorageError(
                f"cannot create the session {path}: {error.strerror}", hint=_SPACE
            ) from error
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Log:
        """Open an existing session to continue it. A torn last line is cut. Raises SessionBusy if
        another process writes it, and StorageError if it cannot be read or has a fault: nothing is
        written behind a line that is not understood.
        """
        lock = FileLock(
            lock_path(path), timeout=processes.LOCK_SECONDS, mode=0o600, thread_local=False
        )
        try:
            lock.acquire()
        except Timeout as error:
            raise SessionBusy(
                f"session {path.stem} is open in another process",
                hint=f"`fugu attach {path.stem}` opens it here, too; --fork-session continues a copy",
            ) from error
        except OSError as error:
            raise StorageError(f"cannot lock {path}: {error.strerror}", hint=_SPACE) from error
        try:
            left = path.stat().st_mtime
            content = examine(path)
            if content.fault is not None:
                raise content.fault.error(path)
            log = cls(path, content.records)
            log._file, log.left = LineFile(path, lock, content.size), left
        except OSError as error:
            lock.release()
            raise StorageError(f"cannot open {path}: {error.strerror}") from error
        except StorageError:
            lock.release()
            raise
        return log

    @classmethod
    def memory(cls, events: Sequence[Event] = ()) -> Log:
        """Return a session without a file, for rollouts and tests."""
        return cls(
            None, [Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate(events)]
        )

    @property
    def events(self) -> Sequence[Event]:
        """All events, oldest first. The list grows; do not change it."""
        return self.state.events

    @property
    def records(self) -> Sequence[Recorded]:
        """All lines, oldest first."""
        return self._records

    def append(self, event: Event) -> Recorded:
        """Write one event, then tell every reader. Raises StorageError; the file then ends with its
        last whole line, and later events may still be written.
        """
        opened = self.state.opened
        if opened is not None and opened.format != FORMAT and not isinstance(event, Opened):
            self.append(opened.model_copy(update={"format": FORMAT, "version": __version__}))
        if self.path is not None:
            event = _without_media(event, media_folder(self.path))
        held_back: Sequence[Live] = ()
        if self.mask is not None:
            held_back = self.mask.rest(event)
            event = self.mask.masked(event)
        record = Recorded(seq=len(self._records), at=self._clock(), event=event)
        try:
            line = RECORDED.dump_json(record)
        except PydanticSerializationError:
            record = RECORDED.validate_python(_valid(record.model_dump()))
            line = RECORDED.dump_json(record)
        if self._file is not None:
            self._file.write(line + b"\n")
        self._records.append(record)
        self.state.add(record.event)
        for item in (*held_back, record):
            self._tell(item)
        return record

    def tell(self, live: Live) -> None:
        """Send a live event to every reader. It is not written."""
        for item in [live] if self.mask is None else self.mask.live(live):
            self._tell(item)

    def _tell(self, item: Recorded | Live | None) -> None:
        for reader in self._readers:
            reader(item)

    async def follow(self) -> AsyncIterator[Recorded | Live]:
        """Yield all lines so far, then every new line and live event, until the log is closed.
        Subscribes at the first `anext`; no line is lost or sent twice.
        """
        queue: asyncio.Queue[Recorded | Live | None] = asyncio.Queue()
        for record in self._records:
            queue.put_nowait(record)
        reader = self.listen(queue.put_nowait)
        try:
            while (item := await queue.get()) is not None:
                yield item
        finally:
            self._readers.remove(reader)

    def listen(
        self, reader: Callable[[Recorded | Live | None], object]
    ) -> Callable[[Recorded | Live | None], object]:
        """Call `reader` with every new line and every live event, masked; with None when the log is
        closed.
        """
        self._readers.append(reader)
        return reader

    def stop_listening(self, reader: Callable[[Recorded | Live | None], object]) -> None:
        """Stop calling `reader`."""
        self._readers.remove(reader)

    def name_socket(self, text: str) -> None:
        """Write into the session's lock on which socket this process answers, or why on none."""
        if self._file is not None:
            self._file.name_socket(text)

    def close(self) -> None:
        """Stop writing: the `follow` of readers ends, and the lock is released. May be called
        twice.
        """
        self._tell(None)
        if self._file is not None:
            self._file.close()
            self._file = None


class LogMirror(Log):
    """The log of a session that another process writes, read from its file."""

    def __init__(self, path: Path) -> None:
        """Read the lines that are there. Raises StorageError."""
        super().__init__(path, [])
        self._reader, self._offset = LineReader(), 0
        self.catch_up()

    def catch_up(self) -> None:
        """Add the complete lines written since, and tell every reader. Raises StorageError."""
        assert self.path is not None
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                *lines, _ = file.read().split(b"\n")
        except OSError as error:
            raise StorageError(f"cannot read {self.path}: {error.strerror}") from error
        for line in lines:
            number = len(self._records) + 1
            try:
                record = self._reader.parse(line)
            except UnreadableFormat as error:
                raise LogFault(number, "", earlier=True).error(self.path) from error
            except ValidationError as error:
                fault = LogFault(number, _why(error), _newer(self._records, line))
                raise fault.error(self.path) from error
            self._offset += len(line) + 1
            self._records.append(record)
            self.state.add(record.event)
            self._tell(record)

    def append(self, event: Event) -> Recorded:
        """Raise UsageError: the process that has the session open writes it."""
        raise UsageError(
            f"the session is written by another process: {event.type} cannot be recorded here",
            hint="do this in the terminal in which it runs",
        )


def lock_path(path: Path) -> Path:
    """Return the lock of the session at `path`."""
    return Path(f"{path}.lock")


def socket_name(path: Path) -> str:
    """Return the socket of the process that opened the session last, or the reason why it has none,
    as the lock says. "" once the process has closed the session.
    """
    try:
        return lock_path(path).read_bytes()[:MOST_LOCK_BYTES].decode("utf-8", "replace")
    except OSError:
        return ""


def is_open(path: Path) -> bool:
    """Return whether a process has the session open for writing."""
    from fugu_cli.system.file_locks import try_lock  # a run does not ask

    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)


@asynccontextmanager
async def heartbeat(log: Log) -> AsyncIterator[None]:
    """Touch the log's file every `HEARTBEAT_SECONDS` inside the block, so that the time of a killed
    session says when its process last worked.
    """

    async def touch(path: Path) -> None:
        while True:
            with suppress(OSError):
                os.utime(path)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = asyncio.create_task(touch(log.path)) if log.path is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


def _without_media(event: Event, folder: Path) -> Event:
    """Return the event without the bytes of its media, which are written to the folder. Raises
    StorageError.
    """
    media: tuple[Media, ...] = getattr(event, "media", ())
    if not any(item.data for item in media):
        return event
    for item in media:
        target = folder / item.sha
        try:
            if item.data and not target.exists():
                with atomic_files.replacement_file(target, 0o600) as draft:
                    draft.write_bytes(base64.b64decode(item.data))
        except OSError as error:
            raise StorageError(f"cannot write {target}: {error.strerror}", hint=_SPACE) from error
    return event.model_copy(
        update={"media": tuple(item.model_copy(update={"data": ""}) for item in media)}
    )


def stored_media(path: Path | None, sha: str) -> bytes | None:
    """Return the bytes of a picture or PDF of the session at `path`; None if they are gone."""
    if path is None or not _SHA.fullmatch(sha):
        return None
    try:
        return (media_folder(path) / sha).read_bytes()
    except OSError:
        return None


def media_folder(path: Path) -> Path:
    """Return the folder beside the log that holds a session's pictures and PDFs, named by their
    `sha`.
    """
    return path.with_suffix(".media")


@contextmanager
def locked_if_closed(path: Path) -> Iterator[bool]:
    """Yield whether nobody has the session open for writing. If so, nobody can open it inside the
    block.
    """
    lock = FileLock(lock_path(path), timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except (Timeout, OSError):
        yield not path.parent.is_dir()
        return
    try:
        yield True
    finally:
        lock.release()


def _valid(value: object) -> object:
    """Return `value` with text that can be written. Surrogate halves are joined if they belong
    together, else they become `�`: a model's JSON may escape one half, and a file's name may not be
    UTF-8.
    """
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {key: _valid(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_valid(item) for item in value]
    return value


def as_written(text: str) -> str:
    """Return a text as a session stores it: bytes of a path that are not UTF-8 are replaced."""
    return str(_valid(text))


@dataclass(frozen=True)
class LogFault:
    """The reason why a session cannot be read further. `line` counts from 1. `newer` is the version
    of fugu that wrote the session if it is newer than this one, "" for damage. `earlier`: it has a
    form that is no longer read.
    """

    line: int
    why: str
    newer: str = ""
    earlier: bool = False

    def error(self, path: Path) -> StorageError:
        """Return the error for a caller that needs the rest of the session."""
        if self.newer:
            return StorageError(
                f"{path} was written by fugu {self.newer}; this is fugu {__version__}",
                hint="update fugu to open it; the file was not changed",
            )
        if self.earlier:
            return StorageError(
                f"{path} was written by an early fugu, whose sessions are no longer read",
                hint="the file was not changed",
            )
        if self.line == 1:
            return StorageError(
                f"{path}, line 1 is not a session's line: {self.why}",
                hint="`fugu sessions` lists the sessions",
            )
        return StorageError(
            f"the session {path} is damaged at line {self.line}: {self.why}",
            hint=f"`fugu sessions repair {shlex.quote(_key(path))}` makes a copy of what stands before it; "
            "the file was not changed",
        )


@dataclass(frozen=True)
class LogContents:
    """The readable part of a session: the records before its first fault, and their size in bytes."""

    records: list[Recorded]
    size: int
    fault: LogFault | None = None


def examine(path: Path) -> LogContents:
    """Read a session as far as possible. A torn last line is ignored and is no fault. Raises
    StorageError if the file itself cannot be read.
    """
    try:
        return _examined(path.read_bytes())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def read(path: Path) -> list[Recorded]:
    """Return all whole lines of a session, for readers that do not write. Raises StorageError if
    one has a fault.
    """
    content = examine(path)
    if content.fault is not None:
        raise content.fault.error(path)
    return content.records


def read_lenient(path: Path) -> list[Recorded]:
    """Return the readable records, skipping damaged lines and those of a newer fugu. For sums.

    Raises StorageError if the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    records, reader = [], LineReader()
    for line in data.split(b"\n"):
        with suppress(ValidationError, UnreadableFormat):
            records.append(reader.parse(line))
    return records


def _examined(data: bytes) -> LogContents:
    """Read the lines of a session's file, up to the first that is invalid or does not follow the
    line before it.
    """
    records: list[Recorded] = []
    reader, size = LineReader(), 0
    *lines, last = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            record = reader.parse(line)
        except UnreadableFormat:
            return LogContents([], 0, LogFault(number, "", earlier=True))
        except ValidationError as error:
            return LogContents(records, size, LogFault(number, _why(error), _newer(records, line)))
        if record.seq != len(records):
            return LogContents(
                records, size, LogFault(number, f"it is line {record.seq} of a session")
            )
        records.append(record)
        size += len(line) + 1
    if newer := _newer(records):
        return LogContents(records, size, LogFault(1, "", newer))
    if not lines and last[: len(FIRST)] != FIRST[: len(last)]:
        return LogContents([], 0, LogFault(1, "it has no end"))
    return LogContents(records, size)


def _why(error: ValidationError) -> str:
    """Return a line's first fault in words."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "json_invalid":
            return "it is no JSON"
        case "union_tag_invalid":
            return f"this fugu knows no event {first['ctx']['tag']!r}"
        case "extra_forbidden":
            return f"this fugu knows no field {where!r}"
    return f"{where}: {first['msg']}" if where else first["msg"]


def _newer(records: Sequence[Recorded], line: bytes = b"") -> str:
    """Return the newest version of fugu that wrote these lines, or that the unreadable `line`
    names; "" if that is not newer than this version.
    """
    versions = [record.event.version for record in records if isinstance(record.event, Opened)]
    if match := _VERSION.search(line, 0, HEAD):
        versions.append(match[1].decode("utf-8", "replace"))
    newest = max(versions, key=_numbers, default="")
    return newest if _numbers(newest) > _numbers(__version__) else ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (1, 10, 0) for 1.10.0, and () for a text that is no
    version of fugu.
    """
    return (
        tuple(map(int, version.split(".")))
        if re.fullmatch(r"\d{1,9}(\.\d{1,9}){2}", version)
        else ()
    )


def _key(path: Path) -> str:
    """Return the session's name in commands: its id, or its path if it has none."""
    return path.stem if _ID.fullmatch(path.stem) else str(path)


FIRST = b'{"seq":0,'
"""The first bytes of a session."""
HEAD = 200
"""Bytes of a line within which its event's type and, of a session's first line, the version
stand.
"""
_VERSION = re.compile(rb'"type":\s*"opened",\s*"version":\s*"([^"]{1,40})"')
_SHA = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4,8}")
_SPACE = (
    "check free space and permissions with `df -h` and `ls -l`; what was written before is kept"
)
