"""The real `fugu`, run as a user or a CI job runs it: a process of its own, a home of its own, no
terminal.

Stands between the end-to-end tests and the loopback server. Every process a run starts inherits a
mark, so that what it left behind can be counted.
"""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fugu_cli
from fugu_cli.session import log as logs
from fugu_cli.session.events import Event, Finished
from tests.acceptance import forked
from tests.acceptance.loopback import KEY

MARK = "FUGU_E2E_MARK"
CHECK = 'grep -q fixed calc.txt && echo "1 passed" || { echo "calc.txt:1: 1 failed"; exit 1; }\n'
FILES = {"calc.txt": "broken\n", "check.sh": CHECK}
_BEGUN: list[bytes] = []
"""The archive of the repository that a place begins with, once there is one."""


@dataclass(frozen=True)
class Agent:
    """An entry of the pool, reached at the loopback server."""

    name: str
    slot: str = "cheap"
    provider: str = "openai"
    price: str = "{ input = 0.0, output = 0.0 }"
    more: str = ""
    url: str = ""

    def entry(self, url: str) -> str:
        lines = [
            "[[agents]]",
            f'name = "{self.name}"',
            f'provider = "{self.provider}"',
            f'model = "{self.name}"',
            f'base_url = "{self.url or url}"',
            'api_key_env = "LOOPBACK_KEY"',
            f'slot = "{self.slot}"',
        ]
        return "\n".join([*lines, f"price = {self.price}", self.more, ""])


@dataclass(frozen=True)
class Done:
    """A run that has ended."""

    code: int
    out: str
    err: str


@dataclass
class Place:
    """A repository, a home, and the processes that ran there."""

    folder: Path
    url: str
    variables: dict[str, str] = field(default_factory=dict)
    """More of its runs' environment."""
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    python: str = sys.executable

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def files(self, files: dict[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def begin(self) -> None:
        """The folders, and FILES committed: a copy of the first repository that was made so."""
        self.repo.mkdir()
        self.home.mkdir()
        if not _BEGUN:
            self.files(dict(FILES))
            self.commit()
            with io.BytesIO() as kept:
                with tarfile.open(fileobj=kept, mode="w") as archive:
                    archive.add(self.repo, ".")
                _BEGUN.append(kept.getvalue())
            return
        with tarfile.open(fileobj=io.BytesIO(_BEGUN[0])) as archive:
            # what `filter="fully_trusted"` says; Python 3.11.3 has no such argument
            archive.extraction_filter = lambda member, _: member
            archive.extractall(self.repo)

    def commit(self) -> None:
        begin = () if (self.repo / ".git").exists() else (["init", "-q", "--template="],)
        for arguments in (*begin, ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "start"]):
            subprocess.run(["git", *arguments], cwd=self.repo, check=True, env=self.environ())

    def configure(
        self,
        *agents: Agent,
        more: str = 'test_command = "sh check.sh"',
        coordinator: str = "cascade",
    ) -> None:
        """Write the user's `.fugurc`. `coordinator`: "" leaves it to the default."""
        rule = f'coordinator = "{coordinator}"' if coordinator else ""
        text = "\n".join([rule, more, *(agent.entry(self.url) for agent in agents)])
        (self.home / ".fugurc").write_text(text + "\n")

    def environ(self) -> dict[str, str]:
        """Nothing of the developer's own but PATH."""
        own = {
            name: os.environ[name]
            for name in ("PATH", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")
            if name in os.environ
        }
        who = {
            f"GIT_{role}_{what}": "t@example.org"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        return {
            **own,
            **who,
            "HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": str(Path(fugu_cli.__file__).parent.parent),
            "PYTHONWARNINGS": "error",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of what a short run of pytest costs
            "LOOPBACK_KEY": KEY,
            MARK: self.mark,
            **self.variables,
        }

    def start(self, *arguments: str | bytes, closed: bool = False) -> subprocess.Popen[bytes]:
        """`fugu ...` in the background, in a session of its own; nothing to read, or `closed`: no
        standard input.
        """
        return subprocess.Popen(
            [self.python, "-m", "fugu_cli", *arguments],
            cwd=self.repo,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=(lambda: os.close(0)) if closed else None,
        )

    def fugu(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        folder: Path | None = None,
        limit: int | None = None,
        files: int | None = None,
    ) -> Done:
        """`fugu ...` to its end, standard input a pipe. `limit`: bytes of the largest file it may
        write; `files`: how many it may have open."""

        if limit is None and files is None and self.python == sys.executable:
            done = forked.run(arguments, folder or self.repo, self.environ(), stdin)
        else:
            done = self._limited(arguments, folder or self.repo, stdin, limit, files)
        return Done(
            done.returncode,
            done.stdout.decode("utf-8", "replace"),
            done.stderr.decode("utf-8", "replace"),
        )

    def _limited(
        self,
        words: Sequence[str | bytes],
        folder: Path,
        stdin: bytes,
        limit: int | None,
        files: int | None,
    ) -> subprocess.CompletedProcess[bytes]:
        def limited() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        # where files may not grow, Python would leave half a compiled module behind
        compiled = {} if limit is None else {"PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [self.python, "-m", "fugu_cli", *words],
            cwd=folder,
            env=self.environ() | compiled,
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
            preexec_fn=limited,
        )

    def sessions(self) -> list[Path]:
        """Session logs, the one that was begun first first; names tell no seconds apart."""
        found = (self.home / "data" / "fugu" / "sessions").glob("*/*.jsonl")
        return sorted(
            found,
            key=lambda path: ([record.at for record in logs.examine(path).records[:1]], path.name),
        )

    def events(self) -> Sequence[Event]:
        """The facts of the newest session. Every line must parse."""
        return [record.event for record in logs.read(self.sessions()[-1])]

    def end(self) -> Finished | None:
        """How the newest session's newest request ended."""
        newest = self.events()[-1]
        return newest if isinstance(newest, Finished) else None

    def left_behind(self) -> list[str]:
        """Command lines of processes that this place's runs started and that still live."""
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            try:
                marked = f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes()
                zombie = b") Z " in (process / "stat").read_bytes()
                command = (
                    (process / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                )
            except OSError:
                continue
            if marked and not zombie:
                found.append(command)
        return found


def ended(process: subprocess.Popen[bytes], timeout: float = 30) -> Done:
    """Wait for a run that was started."""
    out, err = process.communicate(timeout=timeout)
    return Done(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def objects(text: str) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in text.splitlines()]
