"""git's plumbing on a store of our own, kept apart from everything the user has.

Below snapshots.py. Every call names git folder, working tree and index itself, takes no configuration but ours, runs no
hook, no filter and no file monitor of the repository, and never asks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.processes import reap

OPTIONS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null",
    "-c", "core.autocrlf=false", "-c", "core.safecrlf=false", "-c", "core.symlinks=true", "-c", "core.fileMode=true",
    "-c", "core.quotePath=false", "-c", "core.compression=1", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=64m",
    "-c", "core.fsync=none", "-c", "advice.addEmbeddedRepo=false", "-c", "core.preloadIndex=true",
)  # fmt: skip


LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
"""Variables that bind git to one repository; a hook that starts fugu has them set."""


def outside(root: Path) -> str:
    """PATH without folders in `root` and relative ones: what fugu itself runs is nothing a repository brought."""
    kept = (Path(entry) for entry in os.get_exec_path() if entry.startswith("/"))
    return os.pathsep.join(str(entry) for entry in kept if not _within(entry.resolve(), root))


def _within(path: Path, root: Path) -> bool:
    return path == root or root in path.parents


def program(root: Path) -> str | None:
    """The path of git, None where it is not installed outside `root`."""
    return shutil.which("git", path=outside(root))


@dataclass(frozen=True)
class Output:
    """What a call left: `code` is 0 when it succeeded."""

    code: int
    out: bytes
    err: str


def environment(**more: str) -> dict[str, str]:
    """The process's environment without anything that would turn git to another repository or configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
        **more,
    }


@dataclass(frozen=True)
class Git:
    """git in `cwd`, with `folder` as its git folder, `tree` as its working tree and `index` as its index. It also
    reads the objects in `borrowed`, another repository's folder of objects."""

    folder: Path
    tree: Path
    index: Path
    cwd: Path
    borrowed: Path | None = None

    def environment(self) -> dict[str, str]:
        more = {} if self.borrowed is None else {"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(self.borrowed)}
        folders = {"GIT_DIR": self.folder, "GIT_WORK_TREE": self.tree, "GIT_INDEX_FILE": self.index}
        return environment(**more, **{name: str(path) for name, path in folders.items()})

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """A git process with all three streams piped. Raises UsageError when git is missing."""
        git = program(self.tree)
        try:
            if git is None:
                raise FileNotFoundError("git")
            return await asyncio.create_subprocess_exec(
                git, *OPTIONS, *arguments, cwd=self.cwd, env=self.environment(), limit=2**20,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except FileNotFoundError as error:
            if not self.cwd.is_dir():
                raise gone(self.cwd) from error
            raise UsageError("git was not found", hint="install git and make sure it is on PATH") from error

    async def try_run(self, *arguments: str, given: bytes = b"") -> Output:
        """Run git to its end; a cancelled call ends the process."""
        process = await self.start(*arguments)
        out, err = await said(process, given)
        return Output(process.returncode or 0, out, err.decode("utf-8", "replace").strip())

    async def run(self, *arguments: str, given: bytes = b"") -> bytes:
        """Run git and return its output. Raises StorageError when it fails."""
        done = await self.try_run(*arguments, given=given)
        if done.code:
            raise StorageError(
                f"git {arguments[0]} failed on fugu's store of snapshots: {done.err or f'exit code {done.code}'}",
                hint=f"make room on the disk, or remove {self.folder} to start a new store (older undo steps are lost)",
            )
        return done.out


def gone(folder: Path) -> StorageError:
    """The error for a folder that was removed meanwhile."""
    return StorageError(f"the folder {folder} is gone", hint="start again in a folder that exists")


async def said(process: asyncio.subprocess.Process, given: bytes | None = None) -> tuple[bytes, bytes]:
    """Output and errors of a process, run to its end; a cancelled call ends it."""
    try:
        return await process.communicate(given)
    finally:
        await reap(process)


def _quoted(path: Path) -> str:
    """As git reads a list of folders: in quotes where the path would not read as one."""
    text = str(path)
    if text.startswith('"') or os.pathsep in text or "\n" in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return text


def names(out: bytes) -> list[str]:
    """NUL-separated paths as the os module would give them."""
    return [os.fsdecode(name) for name in out.split(b"\0") if name]
