"""fugu in a process forked from one that has imported it: most of what a command costs is
importing.

The process has its own environment, folder and streams, runs `python -m fugu_cli` or one of SCRIPTS
to its end, and is a child of the process that asked for it. What is read while Python or a library
starts is not read again, so tests of starting start anew. `PYTEST_FUGU_EXEC=1` does so for all.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
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
import termios
import threading
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FUGU = (sys.executable, "-m", "fugu_cli")
"""The command that `Popen` answers with a fork."""
ROOT = Path(__file__).parents[2]
SCRIPTS = (str(ROOT / "tests" / "unit" / "extensions" / "mcp" / "oauth_server.py"),)
"""Servers of the tests that import as much as fugu does: `Popen` forks for them, too."""
PACKAGES = (
    "acp",
    "app",
    "cli",
    "config",
    "coordinators",
    "engine",
    "extensions",
    "local",
    "providers",
    "safety",
    "server",
    "session",
    "snapshots",
    "system",
    "testing",
    "tools",
    "ui",
    "wires",
)
LOADED_LATER = (
    "anyio._backends._asyncio",
    "bs4",
    "genai_prices.data_snapshot",
    "httpcore",
    "mcp.client.auth",
    "mcp.client.sse",
    "mcp.client.streamable_http",
    "mcp.server.auth.provider",
    "mcp.server.lowlevel",
    "mcp.server.mcpserver",
    "platformdirs.unix",
    "prompt_toolkit.shortcuts",
    "pygls.lsp.client",
    "pypdf",
    "rich._unicode_data.unicode17-0-0",
    "rich.markdown",
    "rich.syntax",
    "textual.drivers.linux_driver",
    "textual.drivers.linux_inline_driver",
    "tomlkit",
    "yaml",
)
"""Modules of libraries that are imported when they are used."""
READ_AT_START = (
    "COLUMNS",
    "ESCDELAY",
    "FORCE_COLOR",
    "GITHUB_",
    "LANG",
    "LC_",
    "NO_COLOR",
    "PYTHON",
    "TERMINAL_WIDTH",
    "TERM_PROGRAM",
    "TEXTUAL",
)
"""Variables with these beginnings are read while Python or a library starts."""
SILENT = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that Python ignores where nobody says otherwise."""
LARGEST = 100_000
"""Characters of a command line and its environment."""
_SET_SUBREAPER = 36
"""prctl's PR_SET_CHILD_SUBREAPER."""
_one_request = threading.Lock()
"""Held from a request to its answer: threads share the server."""


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, which forks for FUGU and SCRIPTS. `terminal`: standard input becomes the
    terminal that controls the new session.
    """

    def __init__(self, args: Any, *, terminal: bool = False, **options: Any) -> None:
        environ = dict(os.environ if options.get("env") is None else options["env"])
        self._request: dict[str, Any] | None = None
        command = tuple(args) if isinstance(args, list | tuple) else ()
        is_script = len(command) > 1 and command[0] == FUGU[0] and command[1] in SCRIPTS
        own = options.get("preexec_fn") or options.get("pass_fds")
        # a script has no use for fugu's folder
        needed = {**environ, "PYTHONPATH": str(ROOT)} if is_script else environ
        if (is_script or command[:3] == FUGU) and not own and _can_fork(args, needed):
            self._request = {
                "script": command[1] if is_script else "",
                "words": [os.fsdecode(word) for word in command[2 if is_script else 3 :]],
                "folder": os.fsdecode(options.get("cwd") or Path.cwd()),
                "environ": environ,
                "new_session": terminal or options.get("start_new_session", False),
                "terminal": terminal,
            }
        elif terminal:
            options |= {"start_new_session": True, "preexec_fn": _take_terminal}
        super().__init__(args, **options)

    def _execute_child(self, *arguments: Any) -> None:
        """Take the server's new process for the child, where it can run the command."""
        if self._request is None:
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        pipes = arguments[10:16]
        stdin, _, _, stdout, _, stderr = pipes
        streams = [
            0 if stdin < 0 else stdin,
            1 if stdout < 0 else stdout,
            2 if stderr < 0 else stderr,
        ]
        server = _server()
        with _one_request, _adopting_orphans():
            socket.send_fds(server, [json.dumps(self._request).encode()], streams)
            pid = server.recv(20)
        if not pid:
            raise RuntimeError("what fugu is forked from has ended; PYTEST_FUGU_EXEC=1 needs none")
        self.pid = int(pid)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    words: Sequence[str | bytes],
    folder: Path,
    environ: dict[str, str],
    stdin: bytes = b"",
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """`fugu WORDS` to its end, its standard streams pipes. Raises subprocess.TimeoutExpired."""
    pipe = subprocess.PIPE
    command = [*FUGU, *words]
    with Popen(command, cwd=folder, env=environ, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _can_fork(command: Sequence[str | bytes], environ: dict[str, str]) -> bool:
    """Return whether a process of the server can run the command: nothing asks for what only a new
    interpreter does.
    """
    if sys.platform != "linux" or "PYTEST_FUGU_EXEC" in os.environ:
        return False
    base = _environ()
    if _own_start(environ) is not None:
        environ = {**environ, "PYTHONPATH": base["PYTHONPATH"]}
    if "PYTHONWARNINGS" not in environ:
        environ = {**environ, "PYTHONWARNINGS": base["PYTHONWARNINGS"]}
    size = sum(map(len, command)) + sum(map(len, environ.values()))
    return size < LARGEST // 2 and not any(
        environ.get(name) != base.get(name)
        for name in {*environ, *base}
        if name.startswith(READ_AT_START)
    )


def _own_start(environ: dict[str, str]) -> Path | None:
    """Return the `sitecustomize.py` that stands alone in a folder of PYTHONPATH before fugu's."""
    folder, _, rest = environ.get("PYTHONPATH", "").partition(os.pathsep)
    if rest == str(ROOT) and [path.name for path in Path(folder).iterdir()] == ["sitecustomize.py"]:
        return Path(folder, "sitecustomize.py")
    return None


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Meanwhile a process whose parent ends becomes a child of this one."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_SUBREAPER, 0, 0, 0, 0)


def _take_terminal() -> None:
    """Make standard input the terminal of this session. A run of the tests in the background
    ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


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
    # a process with threads, as numpy would start them, must not fork
    environ = {**_environ(), "OPENBLAS_NUM_THREADS": "1"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[theirs.fileno()],
        )  # fmt: skip

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> str:
    """Returns in a process of its own for each command line, as that command's process: the script
    to run, "" for fugu.
    """
    _prepare()
    os.fsync = lambda number: None  # as tests/conftest.py
    gc.collect()
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(requests, 2 * LARGEST, 3)
        if not message:
            os._exit(0)
        pid_read, pid_write = os.pipe()
        between = os.fork()
        if between == 0:
            if pid := os.fork():
                os.write(pid_write, str(pid).encode())
                os._exit(0)
            break
        os.waitpid(between, 0)  # from now on its child is the child of whoever asked
        requests.send(os.read(pid_read, 20))
        for number in (*streams, pid_read, pid_write):
            os.close(number)
    requests.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for number in (*streams, pid_read, pid_write):
        os.close(number)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    request = json.loads(message)
    if request["new_session"]:
        os.setsid()
    if request["terminal"]:
        _take_terminal()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = [request["script"] or sys.argv[0], *request["words"]]
    if "PYTHONWARNINGS" not in os.environ:
        warnings.resetwarnings()
        for category in SILENT:
            warnings.simplefilter("ignore", category)
    start = _own_start(request["environ"])
    if start is not None:
        runpy.run_path(str(start))
    return str(request["script"])


def _prepare() -> None:
    """Import what commands import, and make what libraries make at its first use and keep: models,
    schemas, the names of languages. Try out the sandbox.
    """
    from pydantic import BaseModel
    from rich.syntax import Syntax

    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # as fugu_cli/__main__.py
    for name in PACKAGES:
        package = importlib.import_module(f"fugu_cli.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # of what is an extra
                    importlib.import_module(module.name)
    for name in LOADED_LATER:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    models = [BaseModel]
    while models:
        model = models.pop()
        models += model.__subclasses__()
        if not model.__pydantic_complete__ and model.__module__.startswith("fugu_cli"):
            model.model_rebuild(raise_errors=False)
    from fugu_cli.safety.programs import search_path_outside
    from fugu_cli.safety.sandbox.mechanisms import find_mechanism
    from fugu_cli.session.tool_facts import TOOLS
    from fugu_cli.tools.toolbox import load_tool, tool_spec

    find_mechanism("auto", search_path_outside(ROOT / "no repository"))
    for facts in TOOLS.values():
        if facts.implementation:
            tool_spec(load_tool(facts), "")
    for name in ("calc.txt", "calc.py"):
        Syntax.guess_lexer(name)


def _run(script: str) -> None:
    """Run `script`, or fugu where it is "", then end at once: taking the interpreter apart costs as much as many
    commands do.
    """
    code: object = 0
    try:
        if script:
            runpy.run_path(script, run_name="__main__")
        else:
            runpy.run_module("fugu_cli", run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        code = leaving.code
    except BaseException as error:  # noqa: BLE001 - any bug ends here
        from fugu_cli.__main__ import _crashed

        # the hook that fugu sets; typer, imported earlier here, would pass it over
        _crashed(type(error), error, error.__traceback__)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    _run(_serve(socket.socket(fileno=int(sys.argv[1]))))
