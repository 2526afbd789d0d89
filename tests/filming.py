"""A session filmed: before and after every line of its log the world around it is copied, to be
gone on from.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fugu_cli.session.events import (
    RECORDED,
    Assigned,
    Event,
    Finished,
    Merged,
    Permitted,
    Recorded,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.log import Log

Begin = Callable[[Path, Log], Awaitable[Callable[[], Awaitable[Finished]]]]
"""Begins a session in a world, with its log; what it returns goes on to the end, and is what is
filmed.
"""


@dataclass(frozen=True)
class Frame:
    """The world when the log had `lines` lines; `what` says which moment that is."""

    lines: int
    world: Path
    what: str


@dataclass(frozen=True)
class Film:
    """One whole session in `world`: its frames, its log, and how it ended."""

    world: Path
    frames: tuple[Frame, ...]
    lines: tuple[bytes, ...]
    end: Finished

    def chosen(self) -> list[int]:
        """Return the numbers of the frames to go on from: the last of each kind of moment, and all
        of them with `FUGU_KILLS` in the environment.
        """
        if "FUGU_KILLS" in os.environ:
            return list(range(len(self.frames)))
        last: dict[tuple[str, ...], int] = {}
        for number, frame in enumerate(self.frames):
            event = RECORDED.validate_json(self.lines[frame.lines - 1]).event
            match event:
                case Permitted():
                    detail = event.call.tool
                case ToolRan():
                    detail = f"{event.call.tool} {event.ok}"
                case Assigned():
                    detail = event.role
                case Replied():
                    detail = str(bool(event.calls))
                case _:
                    detail = ""
            last[(frame.what, detail)] = number
        return sorted(last.values())


class Filmed(Log):
    """A log that has the world copied around every line that is written."""

    film: Callable[[int, str], None]

    def append(self, event: Event) -> Recorded:
        if isinstance(
            event, ToolRan | Merged | Undone
        ):  # what it tells of has happened, and nobody wrote that down
            self.film(len(self.records), f"before {event.type}")
        record = super().append(event)
        self.film(len(self.records), f"after {event.type}")
        return record


def _copied(world: Path, copy: Path) -> bool:
    """False where a file went while it was copied: a git of another lane, which runs on, had it for
    a moment.
    """
    try:
        shutil.copytree(world, copy, symlinks=True)
    except shutil.Error as error:
        gone = [why for source, _target, why in error.args[0] if not Path(source).exists()]
        if len(gone) < len(error.args[0]):
            raise
        return False
    return True


def _files(world: Path) -> dict[str, tuple[int, int, Path | bytes]]:
    """What is in a world, with modes and the times of changes."""
    found: dict[str, tuple[int, int, Path | bytes]] = {}
    for path in world.rglob("*"):
        status = path.lstat()
        content = (
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        )
        found[str(path.relative_to(world))] = (
            status.st_mode,
            path.is_dir() or status.st_mtime_ns,
            content,
        )
    return found


def shoot(folder: Path, begin: Begin) -> Film:
    """Play a session in `folder`/world, beside its log and its frames."""
    world = folder / "world"
    world.mkdir()
    (world / "counter").touch()
    frames: list[Frame] = []

    def film(lines: int, what: str) -> None:
        copy = folder / "frames" / str(len(frames))
        while not _copied(world, copy):
            shutil.rmtree(copy)
        if frames and frames[-1].lines == lines and _files(frames[-1].world) == _files(copy):
            shutil.rmtree(
                copy
            )  # what began and ended between two lines left nothing: it is the same moment
            frames[-1] = replace(frames[-1], what=f"{frames[-1].what}, {what}")
            return
        frames.append(Frame(lines, copy, what))

    log = Filmed.create(folder / "whole.jsonl")
    assert isinstance(log, Filmed)
    log.film = lambda lines, what: None

    async def whole() -> Finished:
        go_on = await begin(world, log)
        log.film = film
        return await go_on()

    with (
        pytest.MonkeyPatch.context() as patch
    ):  # a fixture of a module is made before that of a test
        for who in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{who}_NAME", "A. Tester")
            patch.setenv(f"GIT_{who}_EMAIL", "tester@example.org")
        try:
            end = asyncio.run(whole())
        finally:
            log.close()
    lines = tuple((folder / "whole.jsonl").read_bytes().splitlines(keepends=True))
    return Film(world, tuple(frames), lines, end)
