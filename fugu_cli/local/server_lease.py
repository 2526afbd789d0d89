"""Leases a running model server, and starts it if there is none: the client's side of `server.py`.

Agents get a base_url and know no more. Only file locks record who uses a server, so there is
nothing to clean up after a crash: a lease is a shared lock on a file, and a server runs while it
holds its own lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType

from fugu_cli.errors import InfrastructureError, ModelFileError, installing
from fugu_cli.local.server import ALREADY_RUNNING, ServerSettings, ServerState, physical_cores
from fugu_cli.local.store import Store, default_cache
from fugu_cli.system.file_locks import try_lock
from fugu_cli.system.processes import reap

START_LIMIT = 300.0
"""Seconds a model may take to load before the start counts as failed."""
ANSWER_LIMIT = 10.0
POLL_SECONDS = 0.05
IDLE = 120.0
STEP = 8192
"""Contexts are rounded up to a multiple of this, so that agents with nearly the same wish share a
server.
"""
TAIL = 12


@dataclass(frozen=True, slots=True)
class Lease:
    """A running server. It stays until the lease is closed or this process ends.

    The server ends when no process holds a lock on `lock_file`.
    """

    base_url: str
    model: str
    context: int
    lock_file: FileIO

    async def close(self) -> None:
        """Release the server. It ends after its idle time unless another lease is open. Closing
        twice does no harm.
        """
        self.lock_file.close()

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()


async def lease_server(
    name_or_path: str, *, context: int, cache: Path | None = None, idle: float | None = None
) -> Lease:
    """Lease a server for an embedded model or a GGUF file, with room for at least `context` tokens.

    Use it as `async with await lease_server(...)`, or close it. All leases of the same model and
    context share it, in every process. `idle` (seconds) counts only if this call starts the server.
    Raises ModelFileError (missing, or llama.cpp cannot load it) and InfrastructureError (no server
    can be started).
    """
    cache, context = cache or default_cache(), -(-max(context, 1) // STEP) * STEP
    model = Store(cache).resolve(name_or_path)
    status = model.stat()
    key = f"{model}\n{status.st_size}\n{status.st_mtime_ns}\n{context}"
    folder = cache / "servers" / f"{model.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = ServerSettings(
        model=str(model),
        context=context,
        folder=str(folder),
        threads=physical_cores(),
        idle=_idle() if idle is None else idle,
    )
    lock = await _acquire_lock(folder / "lease", shared=True)
    try:
        os.utime(lock.fileno())
        state = await _ready(folder) or await _started(settings, name_or_path)
    except BaseException:  # a cancellation too: a lease that nobody holds keeps the server alive
        lock.close()
        raise
    return Lease(state.base_url, model.stem, context, lock)


async def _started(settings: ServerSettings, name: str) -> ServerState:
    """Start the server, or watch another client do it."""
    folder = Path(settings.folder)
    async with _one_at_a_time(folder / "start.lock"):
        if state := await _ready(folder):
            return state
        _end_hung(folder)
        await _spawn(settings)
        limit = time.monotonic() + START_LIMIT
        while time.monotonic() < limit:
            alive = _is_held(folder / "server.lock")
            if state := await _ready(folder):
                return state
            if not alive:
                raise _not_loaded(settings, name)
            await asyncio.sleep(POLL_SECONDS)
        _end_hung(folder)
        raise InfrastructureError(
            f"The model server for {name} was not ready after {START_LIMIT:.0f} s.",
            hint=f"The machine may be short of memory. The server's log is {folder / 'log'}.",
        )


def installing_local() -> str:
    """Return the command that adds the extra `local`, for error messages."""
    return installing("xllamacpp>=2026.10", "tree-sitter>=0.25,<1", "tree-sitter-python>=0.25,<1")


def missing_package() -> ModelFileError | None:
    """Return an error with advice if the package that runs models is not installed."""
    if importlib.util.find_spec("xllamacpp") is not None:
        return None
    return ModelFileError(
        "the embedded models need the package 'xllamacpp', which is not installed",
        hint=(
            f"keep a provider's key with `fugu login`, or add what is in the extra `local`: "
            f"{installing_local()}"
        ),
    )


async def _spawn(settings: ServerSettings) -> None:
    if (missing := missing_package()) is not None:
        raise missing
    log = os.open(
        Path(settings.folder) / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600
    )
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-m", "fugu_cli.local.server", settings.to_json()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=settings.folder,
        )
    finally:
        os.close(log)
    try:
        code = await child.wait()  # it only lives until it has put itself in the background
    finally:
        await reap(child)
    if code not in (0, ALREADY_RUNNING):
        raise InfrastructureError(
            f"The model server could not be started: {_tail(Path(settings.folder))}"
        )


async def _ready(folder: Path) -> ServerState | None:
    """Return the server that answers, if one does."""
    state = ServerState.read(folder)
    if state is None or not _is_held(folder / "server.lock"):
        return None
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_LIMIT):
            reader, writer = await asyncio.open_connection("127.0.0.1", state.port)
            try:
                writer.write(f"GET {state.prefix}/health HTTP/1.0\r\n\r\n".encode())
                if b" 200 " in await reader.readline():
                    return state
            finally:
                writer.close()
    return None


def _end_hung(folder: Path) -> None:
    """End a server that holds its lock but does not answer. One that still loads has no state and
    is left alone.
    """
    state = ServerState.read(folder)
    if state is not None and _is_held(folder / "server.lock"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(state.pid, signal.SIGKILL)


@asynccontextmanager
async def _one_at_a_time(path: Path) -> AsyncIterator[None]:
    with await _acquire_lock(path, shared=False):
        yield


async def _acquire_lock(path: Path, *, shared: bool) -> FileIO:
    """Return an open file with a lock, which the kernel frees when it is closed or its process
    dies.
    """
    lock = FileIO(path, "ab")
    try:
        while not try_lock(lock.fileno(), shared=shared):
            await asyncio.sleep(POLL_SECONDS)
        return lock
    except BaseException:  # a cancellation while it waits: the file must not stay open
        lock.close()
        raise


def _is_held(path: Path) -> bool:
    """Return whether some process holds the lock exclusively."""
    try:
        tried = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(tried, shared=True)
    finally:
        os.close(tried)


def _not_loaded(settings: ServerSettings, name: str) -> ModelFileError:
    reason = _tail(Path(settings.folder)) or "it ended without a word, perhaps for lack of memory"
    return ModelFileError(
        f"The model {name} could not be loaded: {reason}",
        hint=(
            f"If the file is damaged ({settings.model}), remove it and fetch it again with "
            f"'fugu models'."
        ),
    )


def _tail(folder: Path) -> str:
    try:
        lines = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-TAIL:])


def _idle(environ: Mapping[str, str] = os.environ) -> float:
    try:
        return max(0.0, float(environ.get("FUGU_LOCAL_IDLE", "")))
    except ValueError:
        return IDLE
