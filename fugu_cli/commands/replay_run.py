"""`fugu replay --run`: recorded requests carried out again, each in a copy of the working tree it began with.

The copy is a repository of its own in fugu's data folder, made from the request's snapshot; the user's files are not
touched, and nothing is taken over. Each request gets a session of its own, which begins with what was said before it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fugu_cli import sessions, signals, views, wiring
from fugu_cli.commands.embedded import check_embedded
from fugu_cli.commands.printing import show
from fugu_cli.commands.replay import Recording
from fugu_cli.commands.replay_flags import SessionReplayFlags
from fugu_cli.config import Config, instructions
from fugu_cli.config.files import Loaded
from fugu_cli.config.tables import Money
from fugu_cli.contents import diffs, request_patch
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.events import RECORDED, Asked, Event
from fugu_cli.ledger import Ledger
from fugu_cli.loop import worktrees
from fugu_cli.policy.paths import is_folder
from fugu_cli.session import Session
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import ask, headless, output_dir, replay_sides
from fugu_cli.ui.replay_sides import Pair
from fugu_cli.ui.result import Ending, ending, exit_code, result
from fugu_cli.ui.screen import Screen

KEPT = 7 * 86_400.0
"""Seconds a copy of the working tree is kept."""
ABORTED = 4
"""The exit code after Ctrl-C."""


class Rerun:
    """One `fugu replay --run`."""

    def __init__(
        self, flags: SessionReplayFlags, loaded: Loaded, recording: Recording, environ: Mapping[str, str]
    ) -> None:
        self._flags = flags
        self._loaded = loaded
        self._recording = recording
        self._events: list[Event] = [record.event for record in recording.records]
        self._environ = environ
        self._screen = Screen()
        self._working: asyncio.Task[Any] | None = None
        self._cut = False

    async def to_its_end(self) -> int:
        """The exit code: the worst of the requests', as `fugu run` would give it."""
        signals.told(asyncio.get_running_loop(), self._stop)
        code = await self._carried_out()
        signals.decided(asyncio.get_running_loop(), code)
        return code

    async def _carried_out(self) -> int:
        folder = output_dir.prepare(Path(self._flags.output_dir)) if self._flags.output_dir else None
        workspace = wiring.build_workspace(self._loaded.config, self._loaded.root, logs=(self._recording.path,))
        asked = self._chosen()
        for number, request in asked:
            await self._there(workspace, number, request)
        for note in check_embedded(self._loaded.config, self._environ):
            self._screen.show(f"fugu: {note}")
        _prepare(self._loaded.config.data / "replays")
        pairs: list[Pair] = []
        for number, request in asked:
            if self._cut:
                break
            if (pair := await self._request(workspace, (number, request), folder)) is not None:
                pairs.append(pair)
        if self._flags.as_json:
            print(json.dumps(replay_sides.pairs_object(self._recording.name, pairs), indent=2))
        else:
            show(replay_sides.lines(pairs))
        codes = [exit_code(pair.again.reason or "interrupted") for pair in pairs]
        return ABORTED if self._cut else max(codes, key=(0, 3, 2, 4).index, default=ABORTED)

    def _stop(self) -> None:
        """Ctrl-C, SIGTERM or SIGHUP: once, the request is cut and no other one begins; twice, out at once."""
        if self._cut:
            os._exit(ABORTED)
        self._cut = True
        self._screen.show("interrupting; once more to leave at once")
        if self._working is not None:
            self._working.cancel()

    def _chosen(self) -> list[tuple[int, Asked]]:
        """The requests by number. Raises UsageError where the session worked elsewhere."""
        repo = Path(self._recording.opened.repo)
        if repo != self._loaded.root:
            gone = "" if is_folder(repo) else ", which is not on this machine"
            raise UsageError(
                f"the session {self._recording.name} worked in {repo}{gone}, not in {self._loaded.root}",
                hint="call it in that folder; without --run only the decisions are compared, anywhere",
            )
        asked = [event for event in self._events if isinstance(event, Asked)]
        return [pair for pair in enumerate(asked, start=1) if self._flags.request in (None, pair[0])]

    async def _there(self, workspace: Workspace, number: int, asked: Asked) -> None:
        """Raises UsageError where the request's working tree cannot be had any more."""
        if asked.snapshot is None or workspace.snapshots is None:
            raise UsageError(
                f"request {number} has no snapshot of its working tree: it was made outside git",
                hint="without --run the decisions are compared",
            )
        async with workspace.snapshots.held():
            found = await workspace.snapshots.git.try_run("cat-file", "-e", f"{asked.snapshot}^{{tree}}")
        if found.code:
            raise UsageError(
                f"the snapshot {asked.snapshot[:12]} of request {number} is not in the store any more",
                hint="choose another one with --request, or compare the decisions alone, without --run",
            )

    async def _request(self, workspace: Workspace, given: tuple[int, Asked], folder: Path | None) -> Pair | None:
        """Carry one request out in its copy. None where the user ended it before it was asked."""
        number, asked = given
        assert asked.snapshot is not None
        place = self._loaded.config.data / "replays" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        await worktrees.make(workspace, asked.snapshot, place)
        place = place.resolve()
        session = await self._opened(workspace, asked, place / "tree")
        try:
            end = await self._worked(session, asked)
            if len(views.requests(session.log.events)) < number:
                return None
            patch = await request_patch(session.bench.workspace, session.log.events)
        finally:
            await session.close()
        saved = self._save(session, end, patch, folder / f"request-{number}" if folder else place)
        own = session.log.path.stem if session.log.path else "memory"
        made = await _made(workspace, self._recording.records, number)
        recorded = replay_sides.side(self._recording.name, self._recording.records, number, made)
        again = replay_sides.side(own, session.log.records, number, patch.decode("utf-8", "replace"))
        return Pair(number, asked.text, recorded, replace(again, reason=end.reason, message=end.message), saved)

    async def _opened(self, workspace: Workspace, asked: Asked, tree: Path) -> Session:
        config = self._config(workspace, asked)
        trusted = self._loaded.trusted and _same(self._loaded.root, tree)
        loaded = replace(self._loaded, root=tree, config=config, trusted=trusted)
        session = await wiring.open_session(loaded, self._environ, ask.never, self._before(config, asked, tree))
        for note in session.notes():
            self._screen.show(f"fugu: {note}")
        return session

    def _config(self, workspace: Workspace, asked: Asked) -> Config:
        """The present one with the request's own test command and checks; the originals' objects may be read."""
        config = self._loaded.config
        sandbox = config.sandbox.model_copy(
            update={"readable": (*config.sandbox.readable, workspace.store / "objects")}
        )
        checks = config.tests.model_copy(update={"until": asked.until, "until_pass": False})
        update: dict[str, object] = {"sandbox": sandbox, "tests": checks}
        if asked.test_command is not None:
            update["test_command"] = asked.test_command
        money = config.money
        if money.project is not None:
            spent = Ledger(config.data, self._loaded.root).project()
            left = max(money.project - spent, 0.0)
            update["max_budget_usd"] = Money(**{**money.model_dump(), "project": left or 1e-9})
        return config.model_copy(update=update)

    def _at(self, asked: Asked) -> int:
        return next(i for i, event in enumerate(self._events) if event is asked)

    def _before(self, config: Config, asked: Asked, tree: Path) -> Path | None:
        """A new session's file with what the recorded one said before the request; None before its first."""
        records = self._recording.records[: self._at(asked)]
        if not any(isinstance(record.event, Asked) for record in records):
            return None
        path = sessions.new_path(config.data, tree)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(b"".join(RECORDED.dump_json(record) + b"\n" for record in records))
        except OSError as error:
            raise StorageError(f"cannot write the session {path}: {error.strerror}") from error
        return path

    async def _worked(self, session: Session, asked: Asked) -> Ending:
        """Ask, follow and run. What is left unsaid by the log was cut."""
        follow = headless.follow_quietly(session.log) if self._flags.as_json else self._told(session)
        reader = asyncio.create_task(follow)
        work = self._working = asyncio.create_task(_work(session, asked))
        if self._cut:
            work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            if not self._cut:
                raise
        finally:
            self._working = None
            session.log.close()
            await reader
        return ending(session.log.events, Ending("interrupted", "the request was cut"))

    def _told(self, session: Session) -> Coroutine[Any, Any, None]:
        self._screen.show(f"session {session.log.path.stem if session.log.path else 'memory'} in {session.root}")
        return headless.follow_text(session.log, self._screen, len(session.log.records))

    def _save(self, session: Session, end: Ending, patch: bytes, folder: Path) -> str:
        """The diff's path; with --output-dir what `fugu run` leaves there, for each request."""
        name = session.log.path.stem if session.log.path else "memory"
        if self._flags.output_dir is None:
            (folder / output_dir.PATCH).write_bytes(patch)
            return str(folder / output_dir.PATCH)
        output_dir.prepare(folder)
        summary = result(session.log.records, name, end)
        for said in output_dir.write(folder, session.log.records, name, summary, patch):
            self._screen.show(f"fugu: {said}")
        return str(folder / output_dir.PATCH)


async def _work(session: Session, asked: Asked) -> None:
    session.warm()
    await session.ask(asked.text, asked.attachments, asked.typed, asked.skill, asked.piped)
    await session.run()


async def _made(workspace: Workspace, records: Sequence[Any], number: int) -> str:
    """What the recorded request changed, as diffs."""
    events = [record.event for record in records]
    changes = views.changes(views.requests(events)[number - 1]).values()
    return "".join((await diffs(workspace, changes)).values())


def _same(one: Path, other: Path) -> bool:
    """The standing instructions are those that were trusted."""
    here, there = ([path.read_bytes() for path in _told(folder)] for folder in (one, other))
    return here == there


def _told(folder: Path) -> list[Path]:
    file = instructions.of_folder(folder)
    return [file, *instructions.imported(file, folder)] if file is not None else []


def _prepare(folder: Path) -> None:
    """The user's alone, like the sessions. Copies from more than a week ago go; their sessions stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise StorageError(f"cannot write into {folder}: {error.strerror}", hint="make it writable") from error
    for place in folder.glob("*"):
        if place.is_dir() and time.time() - place.stat().st_mtime > KEPT:
            shutil.rmtree(place, ignore_errors=True)
