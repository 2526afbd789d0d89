"""The spending of all sessions on this machine: a sum for each day and project, in one small file.

Every payment is added when it is logged, and stays when its log is deleted. The file also reserves
the estimated cost of running calls for every process; if a process is killed its estimate becomes
spending. A lock is held while the file is changed; readers need none.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from fugu_cli.errors import StorageError
from fugu_cli.messages import Usage

DAYS_KEPT = 60
LOST_CALLS_KEPT = 200
"""Calls of killed processes that wait for their sessions to go on."""


class OpenCall(BaseModel):
    """A running call. `reserved` is the most that it can cost, `estimate` its cost so far, in USD.
    `is_lost`: its process was killed, and the sums include the estimate.
    """

    model_config = ConfigDict(frozen=True)

    session: str
    repo: str
    agent: str
    usage: Usage
    reserved: float
    estimate: float
    process: str
    is_lost: bool = False


class Sums(BaseModel):
    """The content of the file. `since`: payments before this time are in the sums only once they
    have been read from the logs (`has_past`).
    """

    since: float
    has_past: bool = False
    days: dict[str, float] = {}
    projects: dict[str, float] = {}
    calls: dict[str, OpenCall] = {}

    def add(self, at: float, repo: str, dollars: float) -> None:
        """Add a payment made at `at`, in seconds since the epoch."""
        day = date.fromtimestamp(at).isoformat()
        self.days[day] = self.days.get(day, 0.0) + dollars
        self.projects[repo] = self.projects.get(repo, 0.0) + dollars
        for old in sorted(self.days)[:-DAYS_KEPT]:
            del self.days[old]

    def processes_gone(self) -> set[str]:
        """Return the processes that were killed during their calls."""
        processes = {call.process for call in self.calls.values() if not call.is_lost}
        return {process for process in processes if not _is_running(process)}

    def settle_lost_calls(self) -> None:
        """Take the estimates of calls whose processes are gone as spent."""
        gone = self.processes_gone()
        for key, call in self.calls.items():
            if not call.is_lost and call.process in gone:
                self.add(time.time(), call.repo, call.estimate)
                self.calls[key] = call.model_copy(update={"is_lost": True, "reserved": 0.0})
        lost = [key for key, call in self.calls.items() if call.is_lost]
        for key in lost[:-LOST_CALLS_KEPT]:
            del self.calls[key]

    def reserved(self, but: str = "") -> float:
        """Return the USD that running calls may cost, without those of the account `but`."""
        return sum(
            call.reserved
            for key, call in self.calls.items()
            if not but or key.partition(":")[0] != but
        )


ReadPast = Callable[[], list[tuple[float, str, float]]]
"""Reads all payments from the logs: when, in which folder, how many USD."""


class SpendingFile:
    """The sums of the data folder `data`. `read_past` is asked once in the life of the file."""

    def __init__(self, data: Path, read_past: ReadPast) -> None:
        self._path = data / "spending.json"
        self._lock = FileLock(f"{self._path}.lock", mode=0o600, thread_local=False)
        self._read_past = read_past
        self._cached: tuple[tuple[int, int, int], Sums] | None = None

    def sums(self) -> Sums:
        """Return the present sums, including what was spent before there was a file."""
        sums = self._read()
        if sums is not None and sums.has_past and not sums.processes_gone():
            return sums
        with self.changing() as changed:
            if not changed.has_past:
                for at, repo, dollars in self._read_past():
                    if at < changed.since:
                        changed.add(at, repo, dollars)
                changed.has_past = True
            return changed

    @contextmanager
    def changing(self) -> Iterator[Sums]:
        """Yield the sums to be changed, and write them when the block ends. Raises StorageError."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._cached = None
                sums = self._read() or Sums(since=time.time())
                self._cached = None
                sums.settle_lost_calls()
                yield sums
                text = sums.model_dump_json()
                draft = self._path.with_name(f".{self._path.name}-{secrets.token_hex(4)}")
                draft.write_text(text, "utf-8")
                draft.chmod(0o600)
                draft.replace(self._path)
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror}",
                hint="check free space and permissions: budgets of a day or a project need this file",
            ) from error

    def _read(self) -> Sums | None:
        try:
            state = self._path.stat()
            version = (state.st_mtime_ns, state.st_ino, state.st_size)
            if self._cached is not None and self._cached[0] == version:
                return self._cached[1]
            sums = Sums.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:  # damaged: what the logs still hold is counted again
            return None
        self._cached = (version, sums)
        return sums


def this_process() -> str:
    """Return a name of this process that no later process has."""
    return _process_name(os.getpid())


def _process_name(pid: int) -> str:
    return f"{pid}:{_start_time(pid)}"


def _start_time(pid: int) -> str:
    """Return the time at which the process began, in the kernel's ticks; "" if the system does not
    say.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def _is_running(process: str) -> bool:
    pid, _, _ = process.partition(":")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    except (ValueError, OverflowError):
        return False
    return _process_name(int(pid)) == process
