"""The folder of an evaluation or a training: JSONL rows that a stopped one continues, one writer,
and the setup that must stay the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout
from pydantic import JsonValue, ValidationError

from fugu_cli.errors import ConfigError, SessionBusy, StorageError, UsageError
from fugu_cli.messages import Value
from fugu_cli.session.events import Member
from fugu_cli.system import processes
from fugu_cli.system.atomic_files import write_atomically

Row = TypeVar("Row", bound=Value)


def read_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """Read the rows of a file, [] if there is none.

    An unfinished last line is left out. Any other invalid line raises ConfigError with file and
    line.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{path}: the rows cannot be read: {error}") from error
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            rows.append(row_type.model_validate_json(line))
        except ValidationError as error:
            raise ConfigError(
                f"{path}:{number}: not a row of this measurement: {error.errors()[0]['msg']}",
                hint="give another file for the rows, or remove the line to measure it again",
            ) from error
    return rows


def append_row(path: Path, row: Value) -> None:
    """Append a row and sync it to the disk. A last line without its end is cut off first."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            if file.seek(0, 2) and file.seek(-1, 2) >= 0 and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(row.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path}: the row cannot be written: {error}") from error


SETUP_FILE = "setup.json"


class EvaluationSetup(Value):
    """Everything that must not change during an evaluation.

    The pool, each agent's reply settings, the settings by name, the digest of the checkpoint (""
    while no arm used one), and the digest of every task's contents. The suites of the tasks, and
    how many rollouts and commands ran at once, are kept as well, but may change.
    """

    version: str
    pool: tuple[Member, ...]
    entries: Mapping[str, str] = {}
    settings: Mapping[str, str]
    checkpoint: str = ""
    tasks: Mapping[str, str]
    sources: Mapping[str, str] = {}
    rollouts_at_once: int = 0
    commands_at_once: int = 0


@contextmanager
def locked_folder(folder: Path, what: str = "evaluation") -> Iterator[None]:
    """Hold the folder while measuring. Raises SessionBusy when another process does, StorageError
    without a place.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=processes.LOCK_SECONDS)
        lock.acquire()
    except Timeout as error:
        raise SessionBusy(
            f"another {what} writes to {folder}",
            hint="wait for it, or give another folder with --out",
        ) from error
    except OSError as error:
        raise StorageError(f"{folder}: the results cannot be kept here: {error}") from error
    try:
        yield
    finally:
        lock.release()


def record_or_compare_setup(folder: Path, setup: EvaluationSetup) -> None:
    """Record the setup of this evaluation, or compare it with the recorded one. Raises ConfigError
    that names the differences.
    """
    path = folder / SETUP_FILE
    before = read_setup(folder)
    if before is not None:
        for what in _changed(before, setup):
            raise ConfigError(
                f"{folder} was begun with {what}: rows of both cannot be compared",
                hint="give another folder with --out, or go on with what it was begun with",
            )
        setup = _merged(before, setup)
    if setup == before:
        return
    try:
        write_atomically(path, setup.model_dump_json(indent=1).encode())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from error


def read_setup(folder: Path) -> EvaluationSetup | None:
    """Return the setup of the evaluation in `folder`, None if none was begun. Raises ConfigError."""
    path = folder / SETUP_FILE
    try:
        return EvaluationSetup.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}", hint="give another folder with --out"
        ) from error


def common_setup(folders: Sequence[Path]) -> EvaluationSetup:
    """Return the setup of several evaluations together. Raises ConfigError naming what differs."""
    together: EvaluationSetup | None = None
    for folder in folders:
        setup = read_setup(folder)
        if setup is None:
            raise UsageError(f"there is no evaluation in {folder}")
        if together is not None:
            for what in _changed(together, setup):
                raise ConfigError(
                    f"{folders[0]} was measured with {what} in {folder}: rows of both cannot be "
                    f"compared",
                    hint="report each by itself",
                )
            setup = _merged(together, setup)
        together = setup
    assert together is not None
    return together


def _merged(before: EvaluationSetup, setup: EvaluationSetup) -> EvaluationSetup:
    return setup.model_copy(
        update={
            "entries": {**before.entries, **setup.entries},
            "settings": {**before.settings, **setup.settings},
            "checkpoint": setup.checkpoint or before.checkpoint,
            "tasks": {**before.tasks, **setup.tasks},
            "sources": {**before.sources, **setup.sources},
        }
    )


def _changed(before: EvaluationSetup, present: EvaluationSetup) -> Iterator[str]:
    if before.pool != present.pool:
        yield (
            f"another pool ({_pool(before.pool)}; now "
            f"{_pool(present.pool)}{_difference(before.pool, present.pool)})"
        )
    for name, entry in present.entries.items():
        if before.entries.get(name, entry) != entry:
            yield f"another {name}: {before.entries[name]} (now {entry})"
    digests = {before.checkpoint, present.checkpoint} - {""}
    if len(digests) > 1:
        yield f"another checkpoint ({before.checkpoint[:12]}; now {present.checkpoint[:12]})"
    for name, value in present.settings.items():
        if before.settings.get(name, value) != value and not (
            name == "checkpoint" and before.checkpoint
        ):
            yield f"{name} {before.settings[name]} (now {value})"
    for task, sha in present.tasks.items():
        if before.tasks.get(task, sha) != sha:
            yield f"another task {task!r}: its contents have changed"


def _pool(members: Sequence[Member]) -> str:
    return ", ".join(member.name for member in members)


def _difference(before: Sequence[Member], present: Sequence[Member]) -> str:
    """Describe which agent differs and in which fields, if the names are the same."""
    by_name = {member.name: member for member in before}
    for member in present:
        old = by_name.get(member.name)
        if old is not None and old != member:
            fields = [
                name for name in Member.model_fields if getattr(old, name) != getattr(member, name)
            ]
            return f": {member.name} has another {', '.join(fields)}"
    return ""


RUN_FILE = "run.json"


def begin_run(folder: Path, about: Mapping[str, JsonValue]) -> None:
    """Record the settings that must not change during a training, or compare them with the recorded
    ones. Raises UsageError that names the differences, and StorageError.
    """
    file = folder / RUN_FILE
    try:
        if not file.is_file():
            write_atomically(file, json.dumps(about, indent=1, sort_keys=True).encode())
            return
        before = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{file}: cannot be kept or read: {error}", hint="give another folder with --out"
        ) from error
    for key, old, new in _changes(before, about):
        raise UsageError(
            f"the run in {folder} was started with another {key}: {_short(old)}, now it is "
            f"{_short(new)}",
            hint="go on with what it was started with, or give another folder with --out",
        )


def _changes(
    before: Mapping[str, JsonValue], present: Mapping[str, JsonValue]
) -> Iterator[tuple[str, JsonValue, JsonValue]]:
    """Yield the names and both values of everything that differs."""
    for key in dict.fromkeys((*present, *before)):
        old, new = before.get(key), present.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from (
                (f"{key}: {inner}", inner_old, inner_new)
                for inner, inner_old, inner_new in _changes(old, new)
            )
        elif old != new:
            yield key, old, new


def _short(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
