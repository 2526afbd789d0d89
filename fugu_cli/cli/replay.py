"""`fugu replay`: a session's decisions made again by another coordinator; with --run its requests
carried out again in copies.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fugu_cli import wiring
from fugu_cli.app.open_session import Session
from fugu_cli.cli.command_flags import WITH_RUN, ReplayFlags
from fugu_cli.cli.coordinator import as_usage_errors, coordinator_of
from fugu_cli.cli.current_folder import check_embedded, current_config, read_records
from fugu_cli.cli.flags import OutputFormat, check_empty, settings_of
from fugu_cli.cli.output import RunEnd, RunOutput, print_lines, session_name
from fugu_cli.cli.training_flags import RouteFlags
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry, Money
from fugu_cli.coordinators import Coordinator
from fugu_cli.engine.decision_replay import decision_points, replay_decisions
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.extensions import instruction_files
from fugu_cli.providers.scripted import load_script
from fugu_cli.safety.paths import is_folder
from fugu_cli.session import store, views
from fugu_cli.session.events import RECORDED, Asked, Event, Member, Opened, Recorded
from fugu_cli.session.spending import Ledger
from fugu_cli.system import signals
from fugu_cli.tools import worktrees
from fugu_cli.tools.diff import change_diffs, request_patch
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import headless, run_artifacts
from fugu_cli.ui import replay as shown
from fugu_cli.ui.json_output import RunEnding, exit_code, run_ending
from fugu_cli.ui.replay import RerunPair
from fugu_cli.ui.terminal_output import TerminalOutput


@dataclass(frozen=True)
class Recording:
    """The session that is replayed: its file and its lines; `opened` is its first."""

    path: Path
    records: Sequence[Recorded]
    opened: Opened

    @property
    def name(self) -> str:
        """The session's id."""
        return self.path.stem


def replay(flags: ReplayFlags) -> int:
    """Compare the decisions, or carry the requests out again. Raises UsageError for what cannot be
    replayed.
    """
    _check_flags(flags)
    settings = settings_of(flags)
    if flags.script is not None:
        load_script(flags.script)
        entry = AgentEntry(
            name="scripted", provider="scripted", model=str(flags.script.resolve()), slot="strong"
        )
        settings = {"coordinator": "single:scripted", **settings, "agents": (entry,)}
    loaded = current_config(settings)
    recording = _recording(loaded, flags)
    if flags.run:
        return asyncio.run(Rerun(flags, loaded, recording, os.environ).to_its_end())
    events = [record.event for record in recording.records]
    found, steps = decision_points(events)
    chosen = [place for place in found if flags.request in (None, place.request)]
    today = (
        tuple(entry.member() for entry in usable_pool(loaded.config, os.environ))
        if flags.present_pool
        else None
    )
    with as_usage_errors():
        compared = asyncio.run(
            replay_decisions(
                events, chosen, lambda members: _other_coordinator(flags, loaded, members), today
            )
        )
    now = loaded.config.coordinator + (f" ({flags.checkpoint})" if flags.checkpoint else "")
    report = shown.ReplayReport(
        recording.name, recording.opened.coordinator, now, tuple(compared), steps
    )
    if flags.as_json:
        print(json.dumps(shown.replay_object(events, report), indent=2))
    else:
        print_lines(shown.replay_lines(events, report))
    return 0


def _check_flags(flags: ReplayFlags) -> None:
    check_empty(agent=flags.agent, output_dir=flags.output_dir)
    if flags.agent and flags.coordinator:
        raise UsageError(
            "--agent and --coordinator exclude one another",
            hint="--agent NAME bypasses the coordinator",
        )
    if flags.yolo and flags.permission_mode:
        raise UsageError(
            "--yolo and --permission-mode exclude one another",
            hint="--yolo is --permission-mode yolo",
        )
    idle = [name for name in WITH_RUN if getattr(flags, name)] if not flags.run else []
    if idle:
        raise UsageError(
            f"--{idle[0].replace('_', '-')} needs --run: without it no agent is called",
            hint="add --run, or leave it out",
        )


def _recording(loaded: LoadedConfig, flags: ReplayFlags) -> Recording:
    path = store.find_session(loaded.config.data, loaded.root, flags.session)
    records = read_records(path)
    events = [record.event for record in records]
    opened = next((event for event in events if isinstance(event, Opened)), None)
    count = len(views.requests(events))
    if opened is None or not count:
        raise UsageError(
            f"nothing was asked in the session {path.stem} yet", hint="`fugu sessions` lists others"
        )
    if flags.request is not None and not 1 <= flags.request <= count:
        raise UsageError(f"there is no request {flags.request}", hint=f"the session has {count}")
    return Recording(path, records, opened)


def _other_coordinator(
    flags: ReplayFlags, loaded: LoadedConfig, members: tuple[Member, ...]
) -> Coordinator:
    """The coordinator of flags and configuration for these agents. It must decide itself: a
    fallback's decisions compared under its name would mislead."""
    config = loaded.config
    names = {member.name for member in members}
    single = (
        [config.coordinator.removeprefix("single:")]
        if config.coordinator.startswith("single:")
        else []
    )
    for name in (*single, *(flags.opt_out or ())):
        if name not in names:
            raise UsageError(
                f"{name!r} is not an agent of this pool: "
                f"{', '.join(sorted(names)) or 'it is empty'}",
                hint=(
                    "the session's own pool is meant; --present-pool chooses among the agents "
                    "of today"
                ),
            )
    if not names - set(config.opt_out):
        raise UsageError(
            "every agent of this pool is opted out", hint="shorten opt_out or --opt-out"
        )
    plain = LoadedConfig(
        config.model_copy(update={"tier": "fugu"}), (), (), loaded.root, loaded.trusted
    )
    if config.coordinator != "trinity":
        return wiring.build_coordinator(plain.config, members)[0]
    return coordinator_of(RouteFlags(coordinator="trinity"), plain, members)


COPY_LIFETIME = 7 * 86_400.0
"""Seconds a copy of the working tree is kept."""
ABORTED = 4
"""The exit code after Ctrl-C."""


class Rerun:
    """One `fugu replay --run`."""

    def __init__(
        self,
        flags: ReplayFlags,
        loaded: LoadedConfig,
        recording: Recording,
        environ: Mapping[str, str],
    ) -> None:
        self._flags = flags
        self._loaded = loaded
        self._recording = recording
        self._events: list[Event] = [record.event for record in recording.records]
        self._environ = environ
        self._screen = TerminalOutput()
        self._working: asyncio.Task[Any] | None = None
        self._cut = False

    async def to_its_end(self) -> int:
        """The exit code: the worst of the requests', as `fugu run` would give it."""
        signals.call_on_signals(asyncio.get_running_loop(), self._stop)
        code = await self._carried_out()
        signals.exit_on_signals(asyncio.get_running_loop(), code)
        return code

    async def _carried_out(self) -> int:
        folder = (
            run_artifacts.prepare_output_dir(Path(self._flags.output_dir))
            if self._flags.output_dir
            else None
        )
        workspace = wiring.build_workspace(
            self._loaded.config, self._loaded.root, logs=(self._recording.path,)
        )
        asked = self._chosen()
        for number, request in asked:
            await _check_tree(self._events, workspace, number, request)
        for note in check_embedded(self._loaded.config, self._environ):
            self._screen.show(f"fugu: {note}")
        _prepare_folder(self._loaded.config.data / "replays")
        pairs: list[RerunPair] = []
        for number, request in asked:
            if self._cut:
                break
            if (pair := await self._request(workspace, (number, request), folder)) is not None:
                pairs.append(pair)
        if self._flags.as_json:
            print(json.dumps(shown.rerun_object(self._recording.name, pairs), indent=2))
        else:
            print_lines(shown.rerun_lines(pairs))
        codes = [exit_code(pair.again.reason or "interrupted") for pair in pairs]
        return ABORTED if self._cut else max(codes, key=(0, 3, 2, 4).index, default=ABORTED)

    def _stop(self) -> None:
        """Ctrl-C, SIGTERM or SIGHUP: once, the request is cut and no other one begins; twice, out
        at once.
        """
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
                f"the session {self._recording.name} worked in {repo}{gone}, not in "
                f"{self._loaded.root}",
                hint=(
                    "call it in that folder; without --run only the decisions are compared, "
                    "anywhere"
                ),
            )
        asked = [event for event in self._events if isinstance(event, Asked)]
        return [
            pair for pair in enumerate(asked, start=1) if self._flags.request in (None, pair[0])
        ]

    async def _request(
        self, workspace: Workspace, given: tuple[int, Asked], folder: Path | None
    ) -> RerunPair | None:
        """Carry one request out in its copy. None where the user ended it before it was asked."""
        number, asked = given
        place = (
            self._loaded.config.data
            / "replays"
            / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"
        )
        await worktrees.make_worktree(
            workspace, await _tree(self._events, workspace, number), place
        )
        place = place.resolve()
        session = await self._opened(workspace, asked, place / "tree")
        try:
            end = await self._worked(session, asked)
            if len(views.requests(session.log.events)) < number:
                return None
            patch = await request_patch(session.environment.workspace, session.log.events)
        finally:
            await session.close()
        saved = self._save(session, end, patch, folder / f"request-{number}" if folder else place)
        own = session_name(session.log)
        made = await _request_changes(workspace, self._recording.records, number)
        recorded = shown.rerun_side(self._recording.name, self._recording.records, number, made)
        again = shown.rerun_side(own, session.log.records, number, patch.decode("utf-8", "replace"))
        return RerunPair(
            number,
            asked.text,
            recorded,
            replace(again, reason=end.reason, message=end.message),
            saved,
        )

    async def _opened(self, workspace: Workspace, asked: Asked, tree: Path) -> Session:
        config = self._config(workspace, asked)
        trusted = self._loaded.trusted and _same_instructions(self._loaded.root, tree)
        loaded = replace(self._loaded, root=tree, config=config, trusted=trusted)
        session = wiring.build_session(
            loaded, self._environ, headless.deny_headless, self._before(config, asked, tree)
        )
        for note in session.notes():
            self._screen.show(f"fugu: {note}")
        return session

    def _config(self, workspace: Workspace, asked: Asked) -> Config:
        """The present one with the request's own test command and checks; the originals' objects
        may be read.
        """
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
            spent = Ledger(config.data, self._loaded.root).spent_in_project()
            left = max(money.project - spent, 0.0)
            update["max_budget_usd"] = Money(**{**money.model_dump(), "project": left or 1e-9})
        return config.model_copy(update=update)

    def _before(self, config: Config, asked: Asked, tree: Path) -> Path | None:
        """A new session's file with what the recorded one said before the request; None before its
        first.
        """
        records = self._recording.records[
            : next(i for i, event in enumerate(self._events) if event is asked)
        ]
        if not any(isinstance(record.event, Asked) for record in records):
            return None
        path = store.new_path(config.data, tree)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=False)
            path.write_bytes(b"".join(RECORDED.dump_json(record) + b"\n" for record in records))
        except OSError as error:
            raise StorageError(f"cannot write the session {path}: {error.strerror}") from error
        return path

    async def _worked(self, session: Session, asked: Asked) -> RunEnding:
        """Ask, follow and run. What is left unsaid by the log was cut."""
        if self._flags.as_json:
            follow = headless.follow_quietly(session.log)
        else:
            self._screen.show(f"session {session_name(session.log)} in {session.root}")
            follow = headless.follow_text(session.log, self._screen, len(session.log.records))
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
        return run_ending(session.log.events, RunEnding("interrupted", "the request was cut"))

    def _save(self, session: Session, end: RunEnding, patch: bytes, folder: Path) -> str:
        """The diff's path; with --output-dir what `fugu run` leaves there, for each request."""
        if self._flags.output_dir is None:
            (folder / run_artifacts.PATCH).write_bytes(patch)
        else:
            run_artifacts.prepare_output_dir(folder)
            RunOutput(OutputFormat.json, folder, self._screen).write(
                RunEnd(session.log, 0, end), patch
            )
        return str(folder / run_artifacts.PATCH)


async def _check_tree(
    events: Sequence[Event], workspace: Workspace, number: int, asked: Asked
) -> None:
    """Raises UsageError where the request's working tree cannot be had any more."""
    if asked.snapshot is None or workspace.history.snapshots is None:
        raise UsageError(
            f"request {number} has no snapshot of its working tree: it was made outside git",
            hint="without --run the decisions are compared",
        )
    tree = await _tree(events, workspace, number)
    async with workspace.history.snapshots.held():
        found = await workspace.history.snapshots.git.try_run("cat-file", "-e", f"{tree}^{{tree}}")
    if found.code:
        raise UsageError(
            f"the snapshot {tree[:12]} of request {number} is not in the store any more",
            hint="choose another one with --request, or compare the decisions alone, without --run",
        )


async def _tree(events: Sequence[Event], workspace: Workspace, number: int) -> str:
    """The working tree before a request. Before one that only read it is as the next one found it,
    or as it is.
    """
    later = views.requests(events)[number - 1 :]
    known = next((tree for facts in later if (tree := views.start_snapshot(facts))), "")
    return known or await workspace.history.snapshot() or ""


async def _work(session: Session, asked: Asked) -> None:
    session.warm()
    await session.ask(asked.text, asked.typed, asked.skill, asked.piped)
    await session.run()


async def _request_changes(workspace: Workspace, records: Sequence[Any], number: int) -> str:
    """What the recorded request changed, as diffs."""
    events = [record.event for record in records]
    changes = views.changes(views.requests(events)[number - 1]).values()
    return "".join((await change_diffs(workspace, changes)).values())


def _same_instructions(one: Path, other: Path) -> bool:
    """The standing instructions are those that were trusted."""
    here, there = ([path.read_bytes() for path in _note(folder)] for folder in (one, other))
    return here == there


def _note(folder: Path) -> list[Path]:
    file = instruction_files.folder_instruction_file(folder)
    return [file, *instruction_files.imported(file, folder)] if file is not None else []


def _prepare_folder(folder: Path) -> None:
    """The user's alone, like the sessions. Copies from more than a week ago go; their sessions
    stay.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise StorageError(
            f"cannot write into {folder}: {error.strerror}", hint="make it writable"
        ) from error
    for place in folder.glob("*"):
        if place.is_dir() and time.time() - place.stat().st_mtime > COPY_LIFETIME:
            shutil.rmtree(place, ignore_errors=True)
