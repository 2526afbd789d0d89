"""fugu in a process forked from one that has imported it: most of what a command costs is
importing.

The process has its own environment, folder and streams, and runs `python -m fugu_cli` to its end.
What is read while Python or a library starts is not read again, so tests of starting start anew.
`PYTEST_FUGU_EXEC=1` does so for all.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PRELOADED = (
    "fugu_cli.cli.app",
    "fugu_cli.cli.run_session",
    "fugu_cli.extension_wiring",
    "fugu_cli.wiring",
)
FOLDERS = ("engine", "providers", "tools")
"""Modules and folders of modules that nearly every command needs."""
READ_AT_START = ("COLUMNS", "FORCE_COLOR", "GITHUB_", "LANG", "LC_", "NO_COLOR", "PYTHON", "TERM")
"""Variables with these beginnings are read while Python or a library starts."""
LARGEST = 100_000
"""Characters of a command line and its environment."""
ROOT = Path(__file__).parents[2]


def run(
    words: Sequence[str | bytes],
    folder: Path,
    environ: dict[str, str],
    stdin: bytes = b"",
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """`fugu WORDS` to its end, its standard streams pipes. Raises subprocess.TimeoutExpired."""
    given = json.dumps([[os.fsdecode(word) for word in words], str(folder), environ])
    base = _environ()
    special = any(
        environ.get(name) != base.get(name)
        for name in {*environ, *base}
        if name.startswith(READ_AT_START)
    )
    if (
        special
        or len(given) > LARGEST
        or "PYTEST_FUGU_EXEC" in os.environ
        or sys.platform != "linux"
    ):
        return subprocess.run(
            [sys.executable, "-m", "fugu_cli", *words],
            cwd=folder, env=environ, input=stdin, capture_output=True, timeout=timeout, check=False,
        )  # fmt: skip
    pipes = [os.pipe() for _ in range(4)]
    (
        (stdin_read, stdin_write),
        (out_read, out_write),
        (err_read, err_write),
        (code_read, code_write),
    ) = pipes
    theirs = [stdin_read, out_write, err_write, code_write]
    socket.send_fds(_server(), [given.encode()], theirs)
    for number in theirs:
        os.close(number)
    errors: list[bytes] = []
    threads = [
        threading.Thread(target=_write, args=(stdin_write, stdin)),
        threading.Thread(target=lambda: errors.append(_read(err_read))),
    ]
    for thread in threads:
        thread.start()
    pid = int(os.read(code_read, 20))
    watch = threading.Timer(timeout, _kill, [pid])
    watch.start()
    out = _read(out_read)
    for thread in threads:
        thread.join()
    code = int(_read(code_read))
    if not watch.is_alive():
        raise subprocess.TimeoutExpired(["fugu", *words], timeout, out, errors[0])
    watch.cancel()
    return subprocess.CompletedProcess(["fugu", *words], code, out, errors[0])


def _write(number: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(number, "wb") as file:
        file.write(text)


def _read(number: int) -> bytes:
    with os.fdopen(number, "rb") as file:
        return file.read()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _environ() -> dict[str, str]:
    """What the server is started with."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "LC_ALL", "TMPDIR")
        if name in os.environ
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


@cache
def _server() -> socket.socket:
    """The end that this process keeps; the server ends when it is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pipe = (
        subprocess.PIPE
    )  # not /dev/null: the streams that Python makes of these are kept, and must not seek
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT, env=_environ(), stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[theirs.fileno()],
        )  # fmt: skip

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours


def _serve(asked: socket.socket) -> None:
    """Returns in a process of its own for each command line, as that command's process."""
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # as fugu_cli/__main__.py
    for name in PRELOADED:
        importlib.import_module(name)
    for folder in FOLDERS:
        package = importlib.import_module(f"fugu_cli.{folder}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    os.fsync = lambda number: None  # as tests/conftest.py
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        given, streams, _, _ = socket.recv_fds(asked, 2 * LARGEST, 4)
        if not given:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            break
        for number in streams:
            os.close(number)
    *standard, code = streams
    if pid := os.fork():
        os.write(code, f"{pid:<20}".encode())
        for number in standard:
            os.close(number)
        os.write(code, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
        os._exit(0)
    os.close(code)
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    words, folder, environ = json.loads(given)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = words


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("fugu_cli", run_name="__main__", alter_sys=True)
