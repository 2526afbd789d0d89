"""A repository, a home with secrets beside it, and a sandbox of each kind that works here; as root
and as another user.

Used by the tests and by the benchmark that reports which attempts are held by which means.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from fugu_cli.safety.sandbox import confinement, mechanisms
from fugu_cli.safety.sandbox.command_sandbox import Sandbox, SandboxSettings
from fugu_cli.safety.sandbox.git_access import RACY
from fugu_cli.safety.sandbox.mechanisms import Mechanism
from fugu_cli.safety.self_running_files import entries_run_by_others
from fugu_cli.tools.shell_commands import CommandContext, CommandResult, run_command

SECRET = "S3CRET-that-nobody-may-see"
KINDS = ("landlock", "bare landlock", "bubblewrap")
OTHER = 61_234
"""The user id of the ordinary user that root becomes."""
BWRAP = shutil.which(
    "bwrap", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, Path("/opt").glob("*"))])
)

T = TypeVar("T")
Contents = dict[str, tuple[int, bytes]]


class Unavailable(Exception):
    """This cannot be tried here; the message says why."""


class Fixed(Sandbox):
    """A sandbox whose mechanism is given."""

    fixed = Mechanism("none")

    @property
    def mechanism(self) -> Mechanism:
        return self.fixed

    def at(self, root: Path) -> Fixed:
        sandbox = Fixed(root, self._store, self.settings, self._own)
        sandbox.fixed, sandbox._private = self.fixed, self._private
        return sandbox


@dataclass(frozen=True)
class World:
    """Where a command is let loose: `root` may be written, `home` and `outside` may not. `user`:
    who runs it.
    """

    root: Path
    home: Path
    outside: Path
    sandbox: Sandbox
    user: int | None = None
    port: int = 9
    """Where a program outside waits, by TCP."""

    def run(self, command: str, seconds: float = 20.0) -> CommandResult:
        around = CommandContext(sandbox=self.sandbox)
        if self.user is None:
            return asyncio.run(run_command(command, self.root, seconds, lambda text: None, around))
        return as_user(
            self.user,
            lambda: asyncio.run(
                run_command(command, self.root, seconds, lambda text: None, around)
            ),
        )

    def git(self, *words: str, folder: Path | None = None) -> str:
        """git as the user runs it, unconfined; what it prints."""
        place = folder or self.root
        return subprocess.run(
            ["git", *words],
            cwd=place,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            **_who(self.user),
        ).stdout

    def untouched(self) -> Contents:
        """Modes and contents of everything that must stay as it is."""
        git = self.root / ".git"
        found = contents(self.home, self.outside, git / "hooks") | contents(git / "config")
        for folder in (self.root, self.root / "sub"):
            if folder.is_dir():
                entries = [path.name for path in folder.iterdir()]
                names = entries_run_by_others("", entries)
                found |= contents(*(folder / name for name in names))
        return {path: kept for path, kept in found.items() if not path.endswith(".sock")}

    def history(self) -> Contents:
        """The same of all that git keeps here, and in the repository in the repository."""
        return contents(self.root / ".git", self.root / "kept" / ".git")


def contents(*places: Path) -> Contents:
    """Mode and content of each file at and below `places`; of a link, where it leads."""
    found = {}
    for place in places:
        for path in (
            place,
            *(place.rglob("*") if place.is_dir() and not place.is_symlink() else ()),
        ):
            if path.is_symlink():
                found[str(path)] = (path.lstat().st_mode, os.fsencode(path.readlink()))
            elif path.exists():
                found[str(path)] = (
                    path.stat().st_mode,
                    path.read_bytes() if path.is_file() else b"",
                )
    return found


def _who(user: int | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": ()}


def as_user(user: int, what: Callable[[], T]) -> T:
    """What a child process gets that has become `user`, and that starts the launcher with a Python
    of theirs.
    """
    _warm()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            sys.executable = interpreter(user)
            with os.fdopen(theirs, "wb") as file:
                pickle.dump(what(), file)
            code = 0
        except Exception:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        said = file.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
    return pickle.loads(said)  # type: ignore[no-any-return]


@cache
def _warm() -> None:
    """Import what running a command needs: another user may not be able to read where Python
    lies.
    """
    with tempfile.TemporaryDirectory() as place:
        sandbox = Fixed(Path(place), Path(place) / "store", SandboxSettings())
        sandbox.fixed = Mechanism("landlock")
        asyncio.run(
            run_command("true", Path(place), 20, lambda text: None, CommandContext(sandbox=sandbox))
        )
    mechanisms.find_mechanism("auto", os.environ["PATH"])


@cache
def interpreter(user: int) -> str:
    """A Python that this user may run. Raises Unavailable."""
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        code = "import sys; sys.exit(sys.version_info < (3, 11))"
        try:
            done = subprocess.run(
                [path, "-c", code], check=False, capture_output=True, cwd="/", **_who(user)
            )
        except OSError:
            continue
        if done.returncode == 0:
            return path
    raise Unavailable("no Python that another user may run")


def working(kind: str, user: int | None = None) -> Mechanism:
    """The means of this kind. Raises Unavailable where it does not work."""
    if user is not None:
        interpreter(user)
        found = as_user(user, lambda: _working(kind))
    else:
        found = _working(kind)
    if found.kind == "none" and kind != "none":
        raise Unavailable(f"{kind}: {found.why}")
    return found


def _working(kind: str) -> Mechanism:
    mechanisms.find_mechanism.cache_clear()
    if kind == "none":
        return Mechanism("none", why="the sandbox is turned off")
    if kind == "bubblewrap":
        return mechanisms.find_mechanism("bubblewrap", os.path.dirname(BWRAP) if BWRAP else "")  # noqa: PTH120
    if not confinement.landlock_abi():
        return Mechanism("none", why="no Landlock")
    found = mechanisms.find_mechanism("landlock", "")
    if kind == "bare landlock":
        return Mechanism("landlock", why="Landlock has no namespaces here")
    return found if found.namespaces else Mechanism("none", why="no namespaces")


@contextmanager
def world(found: Mechanism, rules: SandboxSettings, user: int | None = None) -> Iterator[World]:
    """A new one, in a folder of its own; HOME leads into it meanwhile."""
    with ExitStack() as held:
        place = Path(
            os.path.realpath(held.enter_context(tempfile.TemporaryDirectory(prefix="fugu-escape-")))
        )
        place.chmod(0o755)
        made = _made(place, found, rules, user)
        given = {
            "HOME": str(made.home),
            "OUR_API_KEY": SECRET,
            "PATH": f"{made.root}/.venv/bin:{os.environ['PATH']}",
        }
        held.callback(_set, {name: os.environ.get(name) for name in given})
        _set(given)
        yield made


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _made(place: Path, found: Mechanism, rules: SandboxSettings, user: int | None) -> World:
    home, root, outside, data = (place / name for name in ("home", "repo", "outside", "data"))
    for folder in (home, root, outside, data, place / "private"):
        folder.mkdir()
    for name in (
        ".ssh/id_rsa",
        ".aws/credentials",
        ".netrc",
        ".config/app/token",
        ".cargo/credentials.toml",
        "x.pem",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    for name in ("work/other/.env", "work/other/id_ed25519", "work/secrets.yml", "work/a/tls.key"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"-----BEGIN PRIVATE KEY-----\nKEY={SECRET}\n")
    (home / "work" / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (home / ".cargo" / "registry").mkdir()
    (home / ".cargo" / "registry" / "crate").write_text("a crate")
    (home / "notes.txt").write_text("notes")
    (outside / "work.txt").write_text("work")
    (data / "session.jsonl").write_text(SECRET)
    (root / "tracked.txt").write_text("tracked\n")
    (root / ".github").mkdir()
    (root / ".github" / "ci.yml").write_text("on: push\n")
    for folder in (root, root / "kept"):
        folder.mkdir(exist_ok=True)
        for words in (
            ["init", "-q", "-b", "main"],
            ["add", "-A"],
            ["commit", "-q", "--allow-empty", "-m", "start"],
        ):
            subprocess.run(["git", *words], cwd=folder, check=True)
    if user is not None:
        subprocess.run(["chown", "-R", f"{user}:{user}", str(place)], check=True)
    time.sleep(1.2 * RACY / 1e9)  # what was made until now was there before
    sandbox = Fixed(root, data / "snapshots" / "repo", rules, own=(data,))
    sandbox.fixed, sandbox._private = found, place / "private"
    return World(root, home, outside, sandbox, user)


def clear(place: World) -> None:
    """Take away what attempts left in the repository."""
    kept = {
        place.root / name for name in (".git", ".github", "kept", "tracked.txt", "dev.sock")
    } | {place.root / "kept" / ".git"}
    for path in (*place.root.iterdir(), *(place.root / "kept").iterdir()):
        if path.is_dir() and not path.is_symlink() and path not in kept:
            shutil.rmtree(path)
        elif path not in kept:
            path.unlink()
    (place.root / "tracked.txt").write_text("tracked\n")


def outside(place: World) -> tuple[Path, Path]:
    """Where programs outside wait that are not in the repository."""
    return place.home / "work" / "agent.sock", place.outside / "engine.sock"


@contextmanager
def listening(place: World) -> Iterator[World]:
    """Programs outside that wait for whoever connects: in the home, beside the repository, and in
    it.
    """
    with ExitStack() as held:
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = tcp.getsockname()[1]
        for path in (*map(str, outside(place)), f"\0fugu-escape-{port}"):
            server = held.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(path)
            server.listen(64)
            if path.startswith("/"):
                Path(path).chmod(0o777)
        who, python = (
            _who(place.user),
            sys.executable if place.user is None else interpreter(place.user),
        )
        other = held.enter_context(
            subprocess.Popen(
                [python, "-c", RELATIVE], cwd=place.root, stdout=subprocess.PIPE, **who
            )
        )
        held.callback(other.kill)
        assert other.stdout is not None and other.stdout.readline()
        yield replace(place, port=port)


RELATIVE = """
import os, socket, time
server = socket.socket(socket.AF_UNIX); server.bind("dev.sock"); server.listen(64); os.chmod("dev.sock", 0o777)
print("up", flush=True); time.sleep(600)
"""
