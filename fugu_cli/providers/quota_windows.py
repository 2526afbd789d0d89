"""Keeps which accounts are used up, and until when, in one small file for all sessions.

A server that says "again at 15:00" means every process. The file names each account by a digest of
its address, key and model. No account counts as used up for longer than a day, and a window that
begins in the future is ignored: the clock was set back since.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fugu_cli.errors import StorageError
from fugu_cli.system.atomic_files import write_atomically

NAME = "quotas.json"
LONGEST_WINDOW = 24 * 3600.0
"""Seconds that an agent is left out at most, whatever its server says."""
CLOCK_SKEW = 60.0
"""Seconds by which two processes may disagree about the time."""
LOCK_SECONDS = 0.2
"""Nothing else happens in the process meanwhile."""


class QuotaWindow(BaseModel):
    """The time in which an account is used up: `since` to `until`, in seconds since the epoch.

    `failures` counts the windows in a row. `server_named`: the server said until when.
    """

    model_config = ConfigDict(frozen=True)

    agent: str
    kind: str
    since: float
    until: float
    failures: int = 1
    server_named: bool = False

    def is_believed(self, clock: float) -> bool:
        """Return whether the window counts at the time `clock`: it does not begin in the future, and
        it is not over for more than a day.
        """
        return self.since <= clock + CLOCK_SKEW and clock < self.until + LONGEST_WINDOW


_WINDOWS = TypeAdapter(dict[str, QuotaWindow])


def account_digest(address: str, key: str, model: str) -> str:
    """Return the name of an account in the file, which gives nothing of the key away."""
    return hashlib.sha256("\0".join((address, key, model)).encode()).hexdigest()[:32]


class QuotaFile:
    """The quota windows by account, in a file of the data folder `data`. If the file cannot be
    read, its last known content counts; if it cannot be written, it stays as it is. Neither raises
    an error.
    """

    def __init__(self, data: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = data / NAME
        self._lock = FileLock(f"{self._path}.lock", mode=0o600, timeout=LOCK_SECONDS)
        self.clock = clock
        self._cached: tuple[tuple[int, int, int], dict[str, QuotaWindow]] | None = None

    def windows(self) -> dict[str, QuotaWindow]:
        """Return the windows that are believed, each cut to a day."""
        clock = self.clock()
        windows: dict[str, QuotaWindow] = {}
        try:
            recorded = self._read()
        except OSError:
            recorded = self._cached[1] if self._cached is not None else {}
        for account, window in recorded.items():
            if window.is_believed(clock):
                until = min(window.until, window.since + LONGEST_WINDOW)
                windows[account] = window.model_copy(update={"until": until})
        return windows

    def record(self, account: str, window: QuotaWindow) -> bool:
        """Write the account's window for all processes. Return whether it could be written."""
        return self._change(lambda windows: windows.update({account: window}))

    def remove(self, account: str) -> None:
        """Forget a window: the account has answered."""
        self._change(lambda windows: windows.pop(account, None))

    def _change(self, change: Callable[[dict[str, QuotaWindow]], object]) -> bool:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._read()  # a file that cannot be read is not replaced
                windows = self.windows()
                change(windows)
                write_atomically(self._path, _WINDOWS.dump_json(windows), 0o600)
        except (OSError, StorageError, Timeout):
            return False
        return True

    def _read(self) -> dict[str, QuotaWindow]:
        """Return the file's windows; none if it is missing or broken. Raises OSError."""
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if self._cached is not None and self._cached[0] == version:
                return self._cached[1]
            windows = _WINDOWS.validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return {}
        self._cached = (version, windows)
        return windows
