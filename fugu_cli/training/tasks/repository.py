"""The repository of a task on disk, as an agent is given it: one commit of fixed author and date.

The same task always gives the same commit. The hidden files of a task are never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.safety.git_process import own_environment, start_git
from fugu_cli.snapshots.git_repositories import communicate
from fugu_cli.training.tasks import Task

_AUTHOR = "fugu"
_MAIL = "fugu@localhost"
_DATE = "2025-01-01T00:00:00+00:00"
_PLAIN = ("-c", "core.autocrlf=false", "-c", "commit.gpgsign=false")
_BY_PRODUCTS = "__pycache__/\n*.pyc\n.pytest_cache/\n/target/\n"
"""Ignored by git, since files that a test run leaves behind are nobody's change."""

_MAX_NAME_BYTES = 255
"""The longest file name that file systems take."""
_AFFIX_BYTES = 55
"""Bytes of it that are reserved for text around a task's id."""


def unwritable_reason(task: Task) -> str:
    """Return why no disk can hold the task, "" if one can."""
    texts = [task.id, task.prompt, task.test_command, task.grade_command]
    names = [*task.files, *task.binaries, *task.hidden, *task.solution]
    contents: list[str] = []
    for files in (task.files, task.hidden, task.solution):
        contents += files.values()
    for text in (*texts, *names, *contents):
        try:
            text.encode()
        except UnicodeEncodeError:
            return "it holds half a character (a lone surrogate)"
    for text in (*texts, *names):
        if "\0" in text:
            return f"it has a NUL in {text[:60]!r}"
    file_names = [task.id + _AFFIX_BYTES * "-"]
    for name in names:
        file_names += PurePosixPath(name).parts
    for name in file_names:
        if len(name.encode()) > _MAX_NAME_BYTES:
            return (
                f"it has a name of {len(name.encode())} bytes, {name[:20]}..., and none can be "
                f"longer than {_MAX_NAME_BYTES}"
            )
    return _clash({*task.files, *task.binaries, *task.solution}) or _clash(task.hidden)


def _clash(names: Iterable[str]) -> str:
    """Return why the paths cannot exist together, "" if they can: one is a file and a folder of
    another.
    """
    paths = {PurePosixPath(name) for name in names}
    for path in sorted(paths):
        for parent in reversed(path.parents):
            if parent in paths:
                return f"{parent} is a file, and a folder for {path}"
    return ""


async def create_repository(task: Task, folder: Path) -> Path:
    """Write the task's files into `folder` (created; must be empty) and commit them. Returns the
    folder.

    Raises UsageError when the folder is not empty, StorageError when it cannot be written or git
    fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty", hint="give a new folder for every try at a task"
            )
        write_files(task.files, folder)
        write_binaries(task.binaries, folder)
        for name in task.executable:
            (folder / name).chmod(0o755)
        await _git(folder, "init", "--quiet", "--initial-branch=main", "--template=")
        exclude = folder / ".git" / "info" / "exclude"
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text(_BY_PRODUCTS, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write the task {task.id} into {folder}: {error}") from error
    await _git(folder, "add", "--all", "--force")
    await _git(folder, "commit", "--quiet", "--no-verify", "--message", f"task {task.id}")
    return folder


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write each text below `folder` as UTF-8, byte for byte, over whatever stands there."""
    write_binaries({path: text.encode("utf-8") for path, text in files.items()}, folder)


def write_binaries(files: Mapping[str, bytes], folder: Path) -> None:
    """Write each file below `folder`, over whatever stands there."""
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


async def _git(folder: Path, *arguments: str) -> None:
    """Run git on this folder only, with nobody's configuration and a fixed clock."""
    environment = own_environment(
        GIT_AUTHOR_NAME=_AUTHOR,
        GIT_AUTHOR_EMAIL=_MAIL,
        GIT_AUTHOR_DATE=_DATE,
        GIT_COMMITTER_NAME=_AUTHOR,
        GIT_COMMITTER_EMAIL=_MAIL,
        GIT_COMMITTER_DATE=_DATE,
    )
    process = await start_git(folder, *_PLAIN, *arguments, environment=environment)
    _, errors = await communicate(process)
    if process.returncode:
        words = errors.decode("utf-8", "replace").strip()
        raise StorageError(f"git {arguments[0]} failed in {folder}: {words}")
