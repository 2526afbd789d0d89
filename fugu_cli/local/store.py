"""The embedded models on this machine: finds, fetches and removes them. Start here to read this
folder.

A file counts as present if a sidecar file notes the size, time and hash with which it was verified,
so that no start hashes a gigabyte. A download can be killed at any moment: its bytes gather in a
part file, which is renamed once its hash is right.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from fugu_cli.errors import InfrastructureError, ModelFileError, StorageError, UsageError
from fugu_cli.local.manifest import Model, embedded_models
from fugu_cli.local.sources import (
    FetchProgress,
    ReportProgress,
    Source,
    SourceUnavailable,
    default_sources,
    no_report,
)
from fugu_cli.system import atomic_files

MARGIN = 128 << 20
"""Bytes that must stay free beside the model itself: one wheel while it is being unpacked."""
HASHED_AT_ONCE = 16 << 20


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of things that can be fetched again: FUGU_CACHE_DIR, else the user's cache
    folder.
    """
    chosen = environ.get("FUGU_CACHE_DIR", "")
    return Path(chosen).expanduser() if chosen else user_cache_path("fugu", appauthor=False)


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of `folder`."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class Store:
    """The models under `cache`, the same for every fugu of one user."""

    cache: Path
    models: tuple[Model, ...] = field(default_factory=embedded_models)
    sources: Sequence[Source] = field(default_factory=default_sources)
    free: Callable[[Path], int] = free_bytes

    @property
    def folder(self) -> Path:
        """The folder with the model files."""
        return self.cache / "models"

    def model(self, name: str) -> Model:
        """Return the model of that name. Raises UsageError with the names that exist."""
        for model in self.models:
            if model.name == name:
                return model
        names = ", ".join(model.name for model in self.models)
        raise UsageError(
            f"There is no embedded model called '{name}'.",
            hint=f"The embedded models are: {names}.",
        )

    def find(self, name: str) -> Path | None:
        """Return the verified file of a model, None if it is not here. Costs two `stat` calls;
        raises UsageError.
        """
        model = self.model(name)
        file = self.folder / model.filename
        return file if _verified_hash(file) == model.sha256 else None

    def resolve(self, name_or_path: str) -> Path:
        """Return the file for an embedded model's name or a path to a GGUF file. Raises
        ModelFileError if it is not here.
        """
        if any(model.name == name_or_path for model in self.models):
            if file := self.find(name_or_path):
                return file
            raise ModelFileError(
                f"The model '{name_or_path}' is not on this machine yet.",
                hint=f"Fetch it with: fugu models pull {name_or_path}",
            )
        file = Path(name_or_path).expanduser()
        if file.is_file():
            return file.resolve()
        names = ", ".join(model.name for model in self.models)
        raise ModelFileError(
            f"'{name_or_path}' is neither an embedded model nor a file.",
            hint=f"The embedded models are: {names}.",
        )

    async def pull(self, name: str, report: ReportProgress = no_report) -> Path:
        """Fetch and verify a model, or return at once if it is here. An interrupted download is
        continued.

        If two processes fetch one model, the second waits and finds it there. Raises UsageError (no
        such model), ModelFileError (no source could deliver, or one delivered another file) and
        StorageError (no room, no permission).
        """
        model = self.model(name)
        if file := self.find(name):
            return file
        with _storage(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            async with _alone(self.folder / f"{name}.lock", model, report):
                file = self.find(name) or await self._adopted(model, report)
                if file is None:
                    self._check_room(model)
                    file = await self._fetched(model, report)
                return file

    def remove(self, name: str) -> int:
        """Delete a model and all partial downloads of it, and return the bytes freed. Raises
        InfrastructureError.
        """
        model = self.model(name)
        if not self.folder.is_dir():
            return 0
        with _storage(self.folder):
            try:
                lock = FileLock(self.folder / f"{name}.lock").acquire(timeout=0)
            except Timeout:
                raise InfrastructureError(
                    f"'{name}' is being fetched by another fugu right now.",
                    hint="End that one first, then remove it.",
                ) from None
            with lock:
                return _cleared(self.folder, model.filename) + _cleared(
                    self.folder, f"{name}.part.*"
                )

    async def _adopted(self, model: Model, report: ReportProgress) -> Path | None:
        """Verify a file without a valid note: keep it if it is right, else delete it."""
        file = self.folder / model.filename
        if not file.is_file():
            return None
        if await _digest(file, model, report) == model.sha256:
            _note_hash(file, model.sha256)
            return file
        report(
            FetchProgress(
                0, model.size, f"{model.name} on this machine is damaged, fetching it again"
            )
        )
        file.unlink()
        return None

    def _check_room(self, model: Model) -> None:
        begun = max(
            (file.stat().st_size for file in self.folder.glob(f"{model.name}.part.*")), default=0
        )
        needed, free = max(0, model.size - begun) + MARGIN, self.free(self.folder)
        if free < needed:
            raise StorageError(
                f"Not enough room for {model.name}: it needs {_gb(needed)} in {self.folder}, and {_gb(free)} are free.",
                hint="Free some space, or set FUGU_CACHE_DIR to a folder on another disk.",
            )

    async def _fetched(self, model: Model, report: ReportProgress) -> Path:
        reasons = []
        for source in self.sources:
            part = self.folder / f"{model.name}.part.{source.key}"
            try:
                await source.fetch(model, part, report)
                digest = await _digest(part, model, report)
            except SourceUnavailable as reason:
                reasons.append(f"{source.label}: {reason}")
                continue
            if digest == model.sha256:
                file = self.folder / model.filename
                part.replace(file)
                _note_hash(file, model.sha256)
                _cleared(self.folder, f"{model.name}.part.*")
                return file
            _cleared(self.folder, f"{part.name}*")
            reasons.append(
                f"{source.label} gave a different file: its sha256 is {digest}, not {model.sha256}"
            )
            if source.chosen:
                break
        raise ModelFileError(
            f"The model {model.name} could not be fetched. " + "; ".join(reasons) + ".",
            hint=f"Check the network and try again, or put the file {model.filename} (from {model.upstream}) into a"
            " folder and set FUGU_MODELS_DIR to it.",
        )


@asynccontextmanager
async def _alone(path: Path, model: Model, report: ReportProgress) -> AsyncIterator[None]:
    """Hold the lock of one model. The system frees it if the process dies."""
    lock = FileLock(path)
    while True:
        try:
            lock.acquire(timeout=0)
            break
        except Timeout:
            report(
                FetchProgress(
                    0, model.size, f"waiting for another fugu that is fetching {model.name}"
                )
            )
            await asyncio.sleep(0.2)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _storage(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into a StorageError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message, hint = (
                f"The disk of {folder} is full.",
                "Free some space and run it again: it goes on where it stopped.",
            )
        else:
            message = f"The models cannot be kept in {folder}: {error.strerror or error}."
            hint = "Make the folder writable, or set FUGU_CACHE_DIR to one that is."
        raise StorageError(message, hint=hint) from error


async def _digest(file: Path, model: Model, report: ReportProgress) -> str:
    """Return a file's sha256. The file is read in blocks, so that this can be interrupted."""
    hasher, done = hashlib.sha256(), 0
    with file.open("rb") as source:
        while block := await asyncio.to_thread(source.read, HASHED_AT_ONCE):
            await asyncio.to_thread(hasher.update, block)
            done += len(block)
            report(FetchProgress(done, model.size, f"checking {model.name}"))
    return hasher.hexdigest()


def _sidecar(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _verified_hash(file: Path) -> str | None:
    """Return the hash that the file was verified with, None if it has changed since."""
    try:
        note = json.loads(_sidecar(file).read_text(encoding="utf-8"))
        status = file.stat()
        if (note["size"], note["mtime_ns"]) != (status.st_size, status.st_mtime_ns):
            return None
        return str(note["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _note_hash(file: Path, sha256: str) -> None:
    status = file.stat()
    note = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256}
    with atomic_files.replacement_file(_sidecar(file)) as draft:
        draft.write_text(json.dumps(note), encoding="utf-8")


def _cleared(folder: Path, pattern: str) -> int:
    freed = 0
    for path in [*folder.glob(pattern), *folder.glob(f"{pattern}.json")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.exists():
            freed += path.stat().st_size
            path.unlink()
    return freed


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
