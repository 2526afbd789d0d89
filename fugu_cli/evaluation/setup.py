"""An evaluation's folder: one writer, one pool, one set of limits, the same tasks for as long as it goes on.

What was measured with another pool, or on a task that has changed, cannot stand in one table. Knows nothing of running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from fugu_cli import processes
from fugu_cli.atomic import write_whole
from fugu_cli.errors import ConfigError, SessionBusy, StorageError
from fugu_cli.events import Member
from fugu_cli.messages import Value

FILE = "setup.json"


class Setup(Value):
    """What must stay as it is: the pool, what its entries say of an answer by agent, the settings by name, the digest
    of the checkpoint ("" where no arm decided with one yet), and every task's contents (checking.sha)."""

    version: str
    pool: tuple[Member, ...]
    entries: Mapping[str, str] = {}
    settings: Mapping[str, str]
    checkpoint: str = ""
    tasks: Mapping[str, str]


@contextmanager
def alone(folder: Path, what: str = "evaluation") -> Iterator[None]:
    """Hold the folder while measuring. Raises SessionBusy when another process does, StorageError without a place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=processes.LET_GO)
        lock.acquire()
    except Timeout as error:
        raise SessionBusy(
            f"another {what} writes to {folder}", hint="wait for it, or give another folder with --out"
        ) from error
    except OSError as error:
        raise StorageError(f"{folder}: the results cannot be kept here: {error}") from error
    try:
        yield
    finally:
        lock.release()


def settle(folder: Path, setup: Setup) -> None:
    """Write down what this evaluation is, or compare it with what it was. Raises ConfigError naming what changed."""
    path = folder / FILE
    before = read(folder)
    if before is not None:
        for what in _changed(before, setup):
            raise ConfigError(
                f"{folder} was begun with {what}: rows of both cannot be compared",
                hint="give another folder with --out, or go on with what it was begun with",
            )
        setup = setup.model_copy(
            update={
                "entries": {**before.entries, **setup.entries},
                "settings": {**before.settings, **setup.settings},
                "checkpoint": setup.checkpoint or before.checkpoint,
                "tasks": {**before.tasks, **setup.tasks},
            }
        )
    if setup == before:
        return
    try:
        write_whole(path, setup.model_dump_json(indent=1).encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from error


def read(folder: Path) -> Setup | None:
    """What the evaluation in `folder` is; None where none was begun. Raises ConfigError."""
    path = folder / FILE
    try:
        return Setup.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", hint="give another folder with --out") from error


def _changed(before: Setup, now: Setup) -> Iterator[str]:
    if before.pool != now.pool:
        yield f"another pool ({_pool(before.pool)}; now {_pool(now.pool)}{_difference(before.pool, now.pool)})"
    for name, entry in now.entries.items():
        if before.entries.get(name, entry) != entry:
            yield f"another {name}: {before.entries[name]} (now {entry})"
    digests = {before.checkpoint, now.checkpoint} - {""}
    if len(digests) > 1:
        yield f"another checkpoint ({before.checkpoint[:12]}; now {now.checkpoint[:12]})"
    for name, value in now.settings.items():
        if before.settings.get(name, value) != value and not (name == "checkpoint" and before.checkpoint):
            yield f"{name} {before.settings[name]} (now {value})"
    for task, sha in now.tasks.items():
        if before.tasks.get(task, sha) != sha:
            yield f"another task {task!r}: its contents have changed"


def _pool(members: Sequence[Member]) -> str:
    return ", ".join(member.name for member in members)


def _difference(before: Sequence[Member], now: Sequence[Member]) -> str:
    """Which agent differs in what, where the names alone do not say it."""
    known = {member.name: member for member in before}
    for member in now:
        old = known.get(member.name)
        if old is not None and old != member:
            fields = [name for name in Member.model_fields if getattr(old, name) != getattr(member, name)]
            return f": {member.name} has another {', '.join(fields)}"
    return ""
