"""llama.cpp's HTTP server as a process of its own: `python -m fugu_cli.local.server SETTINGS`,
started by `local/server_lease.py`.

One process per model file and settings, for every fugu of the user. It puts itself in the
background, writes down where it listens once it is ready, and ends by itself: clients hold a shared
lock on the lease file, the kernel frees it when a client dies in whatever way, and when nobody has
held it for `idle` seconds the server goes.

Its folder holds: `lease` (held shared by clients), `server.lock` (held by the server for life),
`state.json`, `log`.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fugu_cli.system.file_locks import try_lock, unlock

if TYPE_CHECKING:
    import xllamacpp

ALREADY_RUNNING = 75
LOCK_TRIES = 40
LOG_LIMIT = 1 << 20
CACHE_RAM_MIB = 512
"""Room for prompts that gave way to another one, to be read back at once; without a cap llama.cpp
takes up to 8 GB.
"""
REPEATED, GUESSED = 12, 48
"""After so many tokens that stand in the prompt like this, so many that follow them there are
guessed and read at once. A file that is rewritten is mostly copied: 27 instead of 15 tokens a
second on two cores, and the same text. In new text a guess is rare; a wrong one costs a second."""
POLL_SECONDS = 2.0
"""Seconds between two looks at who still holds a lease."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server. `context` is in tokens per request, `idle` in seconds, `folder` is
    the server's own.
    """

    model: str
    context: int
    folder: str
    threads: int = 1
    idle: float = 120.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class ServerState:
    """The address of a ready server. `prefix` is a secret path: other users and web pages cannot
    guess the address.
    """

    pid: int
    port: int
    prefix: str

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}/v1"

    @staticmethod
    def read(folder: Path) -> ServerState | None:
        """Read the state in a server's folder, None if there is no valid one."""
        try:
            noted = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            return ServerState(int(noted["pid"]), int(noted["port"]), str(noted["prefix"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Write the state, readable by this user alone and never half written."""
        fresh = folder / "state.new"
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(self)), encoding="utf-8")
        fresh.replace(folder / "state.json")


def physical_cores() -> int:
    """Return the physical cores this process may use. More threads than that make llama.cpp slower."""
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    else:
        cpus = set(range(os.cpu_count() or 1))
    cores = len({_siblings(cpu) for cpu in cpus})
    return max(1, min(cores, _quota() or cores))


def main() -> None:
    """Go into the background, serve, and end when no client has needed the server for a while."""
    settings = ServerSettings(**json.loads(sys.argv[1]))
    folder = Path(settings.folder)
    server_lock = os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not _locked(server_lock):
        sys.exit(ALREADY_RUNNING)
    if os.fork():
        os._exit(0)  # the child inherits the lock, and nobody has to wait for it
    os.setsid()
    (folder / "state.json").unlink(missing_ok=True)
    prefix = f"/{secrets.token_urlsafe(16)}"
    server = _server(settings, prefix)
    port = urlsplit(server.listening_address).port or 0
    ServerState(os.getpid(), port, prefix).write(folder)
    _wait_until_idle(folder, settings.idle)


def _server(settings: ServerSettings, prefix: str) -> xllamacpp.Server:
    """Load the model and listen. llama.cpp writes what goes wrong to standard error, which is the
    log.
    """
    # read when the library loads; spinning threads starve a busy machine
    os.environ["OMP_WAIT_POLICY"] = "passive"
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings.model
    params.model_alias = {Path(settings.model).stem}
    params.hostnames, params.port, params.api_prefix = ["127.0.0.1"], 0, prefix
    params.n_ctx = settings.context
    params.n_parallel = 1  # measured: a second slot costs memory and gains nothing
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.fit_params, params.offline, params.use_jinja = False, True, True
    params.cache_ram_mib = CACHE_RAM_MIB
    params.speculative.types = [
        xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
    ]
    params.speculative.ngram_simple.size_n = REPEATED
    params.speculative.ngram_simple.size_m = GUESSED
    params.ui, params.endpoint_slots, params.verbosity = False, False, 1
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(str(error))


def _locked(file: int) -> bool:
    """Take the lock for life. Clients look at it with a shared lock for an instant, so once is not
    enough.
    """
    for _ in range(LOCK_TRIES):
        if try_lock(file):
            return True
        time.sleep(0.05)
    return False


def _wait_until_idle(folder: Path, idle: float) -> None:
    lease = os.open(folder / "lease", os.O_RDWR | os.O_CREAT, 0o600)
    last_use = time.time()
    while True:
        time.sleep(min(POLL_SECONDS, max(idle / 4, 0.05)))
        if os.fstat(2).st_size > LOG_LIMIT:
            os.ftruncate(2, 0)
        if not try_lock(lease):
            last_use = time.time()
            continue
        last_use = max(
            last_use, os.fstat(lease).st_mtime
        )  # a lease too short to be seen has still touched the file
        if time.time() - last_use >= idle:
            (folder / "state.json").unlink(missing_ok=True)
            os._exit(
                0
                # the lease file stays locked to the very end: a client that comes now waits, then
                # starts again
            )
        unlock(lease)


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text(
            encoding="ascii"
        )
    except OSError:
        return str(cpu)


def _quota() -> int | None:
    """Return the whole cores that a container's limit leaves, None without a limit."""
    try:
        allowed, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, round(int(allowed) / int(period)))
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    main()
