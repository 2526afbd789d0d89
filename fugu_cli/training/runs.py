"""The folder of a training run: what it was started with, where it stands, its log. One training at a time.

Below evolve.py. Every file is replaced whole: a run that is killed, or whose disk is full, goes on from its last
full iteration. Must not know what is trained.

    run.json        what the run was started with; a run with anything else is refused
    state.npz       the search, its random numbers, the best mean so far
    es_log.jsonl    a line per iteration
    checkpoint.safetensors   written by the caller through `save`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile

import numpy as np
from filelock import FileLock, Timeout
from pydantic import JsonValue, ValidationError

from fugu_cli import atomic, processes
from fugu_cli.errors import SessionBusy, StorageError, UsageError
from fugu_cli.messages import Value
from fugu_cli.training.optimise import Numbers

Row = TypeVar("Row", bound=Value)
LOG, STATE, ABOUT = "es_log.jsonl", "state.npz", "run.json"


@dataclass(frozen=True)
class State:
    """After `iteration` iterations: the packed search, the best mean (N,), the best validation or fitness, and when
    it was reached."""

    iteration: int
    search: bytes
    best: Numbers
    best_worth: float
    best_at: int


class Folder:
    """`about` is everything that must not change on the way; `save` writes the checkpoint of a mean."""

    def __init__(self, path: Path, about: Mapping[str, JsonValue], save: Callable[[Numbers, Path], None]) -> None:
        self.path = path
        self._about = dict(about)
        self._save = save

    @contextmanager
    def held(self) -> Iterator[Folder]:
        """For the time of a run. Raises SessionBusy where another process trains or measures here, UsageError where the
        folder holds a run that was started with something else."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=processes.LET_GO)
        except Timeout as error:
            raise SessionBusy(
                f"another training is running in {self.path}", hint="wait for it, or give another folder with --out"
            ) from error
        except OSError as error:
            raise _full(self.path, error) from error
        try:
            self.begin()
            yield self
        finally:
            lock.release()

    def begin(self) -> None:
        """Write down what the run is started with, or compare it with what it was. Raises UsageError. Whoever holds the
        folder already needs no more than this."""
        file = self.path / ABOUT
        if not file.is_file():
            write(file, json.dumps(self._about, indent=1, sort_keys=True).encode())
            return
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StorageError(f"{file} cannot be read: {error}", hint="give another folder with --out") from error
        for key, old, new in _changes(before, self._about):
            raise UsageError(
                f"the run in {self.path} was started with another {key}: {_short(old)}, now it is {_short(new)}",
                hint="go on with what it was started with, or give another folder with --out",
            )

    def restore(self) -> State | None:
        """Where the run stands, None before its first iteration. Raises StorageError for a file that is no state."""
        file = self.path / STATE
        if not file.is_file():
            return None
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as found:
                numbers = found["numbers"]
                search = found["search"].tobytes()
                return State(int(numbers[0]), search, found["best"], float(numbers[1]), int(numbers[2]))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise StorageError(
                f"{file} is no state of a training: {error}", hint="give another folder with --out"
            ) from error

    def keep(self, state: State, history: Sequence[Value]) -> None:
        """After an iteration: the log first, the state last, so that a state never knows more than its log."""
        lines = "".join(row.model_dump_json() + "\n" for row in history)
        write(self.path / LOG, lines.encode())
        try:
            self._save(state.best, self.path / "checkpoint.safetensors")
        except OSError as error:
            raise _full(self.path, error) from error
        _write_state(self.path / STATE, state)

    def history(self, kind: type[Row], count: int) -> list[Row]:
        """The log's first `count` lines. Raises StorageError for one that is none, or is not there."""
        file = self.path / LOG
        try:
            lines = file.read_text(encoding="utf-8").splitlines() if count else []
            found = [kind.model_validate_json(line) for line in lines[:count]]
        except (OSError, ValidationError) as error:
            raise StorageError(f"{file} is no log of a training: {error}") from error
        if len(found) < count:
            raise StorageError(
                f"{file} has {len(found)} lines, the training is at iteration {count}",
                hint="put it back, or give another folder with --out",
            )
        return found


def _write_state(file: Path, state: State) -> None:
    numbers = np.array([state.iteration, state.best_worth, state.best_at], np.float64)
    with _beside(file) as draft:
        np.savez(draft, numbers=numbers, search=np.frombuffer(state.search, np.uint8), best=state.best)


def write(file: Path, data: bytes) -> None:
    """Whole or not at all. Raises StorageError where the disk is full."""
    with _beside(file) as draft:
        draft.write_bytes(data)


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    """A new file that takes `file`'s place when it was written whole. Raises StorageError where the disk is full."""
    try:
        with atomic.beside(file) as draft:
            yield draft
    except OSError as error:
        raise _full(file, error) from error


def _full(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}",
        hint="make room and run the same command again: it goes on after its last full iteration",
    )


def _changes(
    before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]
) -> Iterator[tuple[str, JsonValue, JsonValue]]:
    """What differs, by its name."""
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from ((f"{key}: {inner}", was, is_now) for inner, was, is_now in _changes(old, new))
        elif old != new:
            yield key, old, new


def _short(value: JsonValue) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
