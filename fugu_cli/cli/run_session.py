"""The run itself: the session, the reader of its log, signals, and the end. One object a run, used
once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fugu_cli import wiring
from fugu_cli.app.approval_questions import ApprovalQuestion
from fugu_cli.app.open_session import Session
from fugu_cli.app.request_queue import QueuedRequest, RequestQueue, record_request
from fugu_cli.cli.current_folder import check_embedded, current_config
from fugu_cli.cli.flags import OutputFormat, RequestInput, RunFlags
from fugu_cli.cli.output import ABORTED, RunEnd, RunOutput, init_of, session_name
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.errors import FuguError, InfrastructureError, StorageError, UsageError
from fugu_cli.extensions import skill_library
from fugu_cli.extensions.skill_library import TypedRequest
from fugu_cli.formatting import flatten
from fugu_cli.session import log, store
from fugu_cli.session.events import Asked, Finished, Recorded, Steered
from fugu_cli.session.state import SessionState
from fugu_cli.system import signals
from fugu_cli.ui import headless, json_output
from fugu_cli.ui.json_output import RunEnding, exit_code, run_ending
from fugu_cli.ui.terminal_output import TerminalOutput

if TYPE_CHECKING:
    from fugu_cli.config.schema import TimeLimit
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call
    from fugu_cli.safety.policy import Judgement
    from fugu_cli.session.live_events import Live
    from fugu_cli.snapshots.plain_folder import PlainFolder


def resolve_request(
    text: str, flags: RunFlags, loaded: LoadedConfig, environ: Mapping[str, str]
) -> tuple[TypedRequest, LoadedConfig]:
    """Return the request and its configuration. Raises UsageError for an unknown command, skill or
    agent.
    """
    request = skill_library.parse_headless_request(text, loaded.library)
    changed: dict[str, str] = {}
    if request.agent and not (flags.agent or flags.coordinator or flags.script):
        names = [entry.name for entry in usable_pool(loaded.config, environ)]
        if request.agent not in names:
            message = (
                f"{text.split()[0]} is for the agent {request.agent!r}, which is not in the pool"
            )
            raise UsageError(
                message, hint=f"the pool has: {', '.join(names)}; --agent NAME takes another"
            )
        changed["coordinator"] = f"single:{request.agent}"
    if request.tier and flags.tier is None:
        changed["tier"] = request.tier
    return request, replace(loaded, config=loaded.config.model_copy(update=changed))


INTERRUPTED = RunEnding("interrupted", "the turn was cut; `fugu run --continue` goes on with it")
NOT_RECORDED = RunEnding("interrupted", "nothing was recorded yet; give the request again")
UNANSWERED = Finished(
    reason="time_limit",
    message="nobody answered in time; `fugu --resume` with the session's id goes on from here.",
)
CRASHED = RunEnding(
    "failed", "fugu itself failed; `fugu run --continue` goes on with what was recorded"
)


UNANSWERED_SECONDS = 24 * 3600.0
"""Seconds that a background session without a time limit waits for an answer."""


@dataclass(frozen=True)
class RunParts:
    """The parsed values of --output-dir and --json-schema. `detach` is called with the id of a
    session that goes on in the background; None for others.
    """

    folder: Path | None = None
    schema: str = ""
    detach: Callable[[str], None] | None = None


class TerminalQuestions:
    """Asks the questions of a session on this terminal until somebody has answered them. Fulfils
    app/request_queue.QueueListener.
    """

    def __init__(self, screen: TerminalOutput) -> None:
        self.work = RequestQueue(self)
        self.ask_user: headless.AskApproval | None = None
        """Asks on the terminal; None where nobody reads there."""
        self._screen = screen
        self._asking: dict[int, asyncio.Task[None]] = {}

    def replayed(self, records: Sequence[Recorded]) -> None:
        """Do nothing: the run has a reader of its own."""

    def handle_item(self, item: Recorded | Live) -> None:
        """Do nothing: the run has a reader of its own."""

    def failed(self, error: FuguError) -> None:
        """Do nothing: requests are run elsewhere."""

    def changed(self) -> None:
        """Ask the questions that were not asked yet."""
        for question in self.work.approvals.questions:
            if self.ask_user is not None and question.number not in self._asking:
                asking = asyncio.create_task(self._ask_on_terminal(question, self.ask_user))
                self._asking[question.number] = asking
                question.answer.add_done_callback(partial(_cancel, asking))

    async def _ask_on_terminal(
        self, question: ApprovalQuestion, ask_user: headless.AskApproval
    ) -> None:
        try:
            permission = await ask_user(*question.asked)
        except asyncio.CancelledError:
            if question.answer.done() and not question.answer.cancelled():
                headless.forget_typed_line()
                self._screen.show("fugu: answered in another terminal")
            raise
        if not question.answer.done():
            question.answer.set_result(permission)


def _cancel(asking: asyncio.Task[None], _answer: object) -> None:
    asking.cancel()


class RequestRun:
    """One `fugu run`."""

    def __init__(
        self, flags: RunFlags, request: RequestInput, environ: Mapping[str, str], parts: RunParts
    ) -> None:
        self._flags = flags
        self._text = request.text
        self._piped = request.piped
        self._typed_request = TypedRequest("")
        self._environ = environ
        self._screen = TerminalOutput()
        self._leaving = RunOutput(flags.output_format, parts.folder, self._screen)
        self._schema = parts.schema
        self._session: Session | None = None
        self._since = 0
        self._signals = 0
        self._questions = TerminalQuestions(self._screen)
        self._detach = parts.detach
        self._is_unanswered = False
        self._working: asyncio.Task[Any] | None = None
        self._is_closing = False

    async def to_its_end(self) -> int:
        """Run the request and return the exit code. A run that cannot begin is reported to programs
        here and raised for people.
        """
        refusal: FuguError | None = FuguError("fugu itself failed", hint="this is a bug in fugu")
        reason = "failed"
        try:
            signals.raise_on_signals(signal.SIGINT)
            self._session = await self._open()
            loop = asyncio.get_running_loop()
            signals.call_on_signals(loop, self._stop)
            descriptor = self._screen.out.descriptor()
            if self._flags.output_format == OutputFormat.stream and descriptor is not None:
                from fugu_cli.system.reader_watch import call_when_reader_leaves

                call_when_reader_leaves(loop, descriptor, self._reader_left)
            refusal = None
        except FuguError as error:
            refusal = error
            raise
        except KeyboardInterrupt:
            refusal, reason = FuguError("interrupted before the session was open"), "interrupted"
            return ABORTED
        finally:
            signals.unticking()
            if refusal is not None:
                self._leaving.refuse(refusal, reason)
        code = await self._follow(self._session)
        signals.exit_on_signals(asyncio.get_running_loop(), code)
        return code

    async def _follow(self, session: Session) -> int:
        """Run the open session until its request ends, then report the end."""
        workspace, folder = session.environment.workspace, self._leaving.folder
        if folder is None or workspace.in_git:
            return await self._reported(session, None)
        # Most runs need neither: they are in git.
        from fugu_cli.snapshots.plain_folder import PlainFolder
        from fugu_cli.system.temp_dirs import temp_dir

        with temp_dir("patch") as temporary:
            plain_folder = None
            try:
                plain_folder = await PlainFolder.begin(
                    workspace.root, temporary, (folder, session.config.data)
                )
            except StorageError as error:
                self._screen.show(
                    f"fugu: {error}: changes.patch will hold only what fugu's own tools change"
                )
            return await self._reported(session, plain_folder)

    async def _reported(self, session: Session, plain_folder: PlainFolder | None) -> int:
        self._since = len(session.log.records) if self._flags.go_on or self._flags.resume else 0
        end: RunEnding | None = CRASHED
        patch = b""
        shown_notes = session.notes()
        try:
            end = await self._ask_and_follow(session)
            if self._was_recorded(session):
                patch = await _patch(session, self._screen, plain_folder)
        except FuguError as error:
            end = RunEnding("failed", str(error))
            raise
        finally:
            self._working = None
            self._is_closing = True
            await session.close()
            for note in session.notes():
                # a hook that failed meanwhile, a collector that did not answer
                if note not in shown_notes:
                    self._screen.show(f"fugu: {note}")
            if session.log.state.open_plan is not None:
                self._screen.show("to carry this plan out: fugu run --continue --accept-plan")
            run_end = self._run_end(session, end)
            self._leaving.close(run_end, patch)
        if lost := self._screen.out.failure:
            self._screen.show(
                f"fugu: cannot write to standard output: {lost}; the answer is in the session"
            )
            return exit_code(run_end.end.reason) or exit_code("failed")
        return exit_code(run_end.end.reason)

    def _run_end(self, session: Session, end: RunEnding | None) -> RunEnd:
        is_recorded, state = self._was_recorded(session), session.log.state
        if not is_recorded:
            state = SessionState(state.events[self._since :])
            end = NOT_RECORDED if end is INTERRUPTED else end
        ending = run_ending(state, end)
        return RunEnd(session.log, self._since, ending, is_recorded, session.ignored)

    def _was_recorded(self, session: Session) -> bool:
        """Return whether the request was recorded, that is, not interrupted earlier or refused by a
        hook.
        """
        if self._text is None and not self._flags.accept_plan:
            return True
        return any(
            isinstance(event, Asked | Steered) for event in session.log.events[self._since :]
        )

    async def _open(self) -> Session:
        """Open the session with its request. Raises FuguError if that is impossible or there is
        nothing to do.
        """
        settings = dict(self._flags.settings())
        if self._flags.script is not None:
            from fugu_cli.providers.scripted import load_script

            load_script(self._flags.script)  # a faulty one is refused before a session is begun
            entry = AgentEntry(
                name="scripted", provider="scripted", model=str(self._flags.script), slot="strong"
            )
            settings |= {"agents": (entry,), "coordinator": "single:scripted"}
        flags = self._flags
        loaded = current_config(
            settings,
            trust=flags.trust,
            appended=flags.append_system_prompt,
            mcp_config=flags.mcp_config,
        )
        loaded = replace(loaded, answer_schema=self._schema)
        if self._text is not None:
            self._typed_request, loaded = resolve_request(
                self._text, self._flags, loaded, self._environ
            )
        for note in check_embedded(loaded.config, self._environ):
            self._screen.show(f"fugu: {note}")
        resumed = self._find_resumed(loaded)
        if resumed is not None and self._text is None and self._flags.tier is None:
            loaded = _with_request_tier(loaded, resumed)
        read_line = headless.read_typed_line
        ask_permission = headless.deny_headless
        if self._is_watched:
            ask_user = headless.ask_on_terminal(self._screen, read_line, loaded.root)
            self._questions.ask_user = ask_user
            ask_permission = self._questions.work.ask
        elif self._detach is not None:
            ask_permission = partial(self._ask_followers, loaded.config.time)
        session = wiring.build_session(
            loaded,
            self._environ,
            ask_permission,
            resumed,
            somebody_to_ask=self._is_watched or self._detach is not None,
        )
        if self._is_watched and session.servers is not None:
            session.servers.ask_line = headless.ask_line_on_terminal(self._screen, read_line)
        for message in session.log.state.request.left_unread:
            self._screen.show(
                "fugu: the earlier request ended before an agent had read this message, and it is "
                f"not part of this request: {flatten(message.said, 200)}"
            )
        if self._text is None and not self._flags.accept_plan:
            session.go_on()
        for note in session.notes():
            self._screen.show(f"fugu: {note}")
        return session

    def _find_resumed(self, loaded: LoadedConfig) -> Path | None:
        """Return the session to resume, for a fork a copy of it."""
        if not (self._flags.go_on or self._flags.resume):
            return None
        data = loaded.config.data
        path = store.find_session(data, loaded.root, self._flags.resume or "latest")
        if self._flags.accept_plan:
            resuming: Resuming = "accepts plan"
        else:
            resuming = "goes on" if self._text is None else "asks"
        moved = _check_resumed(path, loaded.root, resuming)
        if moved:
            self._screen.show(f"fugu: {moved}")
        return store.fork_session(data, loaded.root, path) if self._flags.fork_session else path

    @property
    def _is_watched(self) -> bool:
        """True if somebody reads along and can type."""
        watched = self._flags.output_format == OutputFormat.text and self._screen.err.terminal
        watched = watched and self._detach is None
        return watched and sys.stdin is not None and sys.stdin.isatty()

    async def _ask_followers(
        self, limits: TimeLimit, call: Call, judgement: Judgement
    ) -> Permission:
        """Wait until a follower answers. If the request has no time limit, the run ends when nobody
        answers in time.
        """
        seconds = None
        if limits.request is None:
            seconds = limits.answer or UNANSWERED_SECONDS
        try:
            async with asyncio.timeout(seconds):
                return await self._questions.work.ask(call, judgement)
        except TimeoutError:
            self._is_unanswered = True
            if self._working is not None:
                self._working.cancel()
            return "headless"

    async def _ask_and_follow(self, session: Session) -> RunEnding | None:
        """Record the request, run it and follow the log. Return an ending that the log does not
        hold, or None.
        """
        queue = self._questions.work
        unreachable = await queue.adopt(session)
        if self._detach is not None:
            if unreachable:
                raise InfrastructureError(
                    f"nobody could answer questions of a background session: {unreachable}",
                    hint="run it in a terminal, or set XDG_RUNTIME_DIR to a folder of your own",
                )
            self._detach(session_name(session.log))
        reader = asyncio.create_task(self._reader(session))
        work = self._working = asyncio.create_task(self._work(session))
        queue.run_elsewhere(work)
        if self._signals:  # the first signal came before there was work to interrupt
            work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            if self._is_unanswered:
                session.log.append(UNANSWERED)
                return None
            if not (self._signals or queue.stopping):
                raise
            return INTERRUPTED
        finally:
            await queue.stop_answering()
            try:
                await session.environment.workspace.jobs.close()
            finally:
                session.log.close()
                await reader
        return None

    async def _work(self, session: Session) -> None:
        session.warm()
        if self._flags.accept_plan:
            from fugu_cli.app.plans import carrying_mode

            request = QueuedRequest("", carries_out=carrying_mode(session.environment))
        elif self._text is None:
            request = None
        else:
            typed = self._typed_request
            request = QueuedRequest(
                typed.text, typed=typed.typed, skill=typed.skill, piped=self._piped
            )
        if request is not None:
            await record_request(session, request, request.text)
        await session.run()
        await session.finish_reading_kinds()

    def _reader(self, session: Session) -> Coroutine[Any, Any, None]:
        name = session_name(session.log)
        if self._flags.output_format == OutputFormat.json or self._detach is not None:
            return headless.follow_quietly(session.log)
        if self._flags.output_format == OutputFormat.stream:
            self._screen.data(json_output.json_line(init_of(session)))
            return headless.follow_stream_json(
                session.log, self._screen, name, self._since, self._reader_left
            )
        self._screen.show(f"session {name} in {session.root}")
        return headless.follow_text(session.log, self._screen, self._since)

    def _reader_left(self) -> None:
        """Cut the turn, as the first signal does: nobody reads the stream any more."""
        if not self._signals and self._working is not None:
            self._signals = 1
            self._working.cancel()

    def _stop(self) -> None:
        """Handle Ctrl-C, SIGTERM or SIGHUP: interrupt the turn, at the second signal leave at once."""
        self._signals += 1
        if self._signals > 1:
            if self._session is not None:
                self._leaving.write(self._run_end(self._session, INTERRUPTED))
            os._exit(ABORTED)
        activity = "ending" if self._is_closing else "interrupting"
        self._screen.show(f"{activity}; once more to leave at once")
        if self._working is not None:
            self._working.cancel()


Resuming = Literal["asks", "goes on", "accepts plan"]
"""The use of a resumed session: a new request, its unfinished request, or its plan."""


def _check_resumed(path: Path, root: Path, resuming: Resuming) -> str:
    """Check that a session can be resumed here, and return a note if it belongs to another folder.
    Raises UsageError.

    A session of another folder needs a new request here; its unfinished request has to be finished
    there.
    """
    events = [record.event for record in log.read(path)]
    state = SessionState(events)
    if resuming == "accepts plan" and state.open_plan is None:
        from fugu_cli.app.plans import NO_PLAN, NO_PLAN_HINT

        raise UsageError(NO_PLAN, hint=NO_PLAN_HINT)
    if resuming == "goes on" and not store.unfinished(events):
        hint = "give a prompt to ask for something new"
        if state.open_plan is not None:
            hint = f"carry its plan out with --accept-plan, or {hint}"
        raise UsageError("the session has no unfinished request", hint=hint)
    opened = state.opened
    if opened is None or opened.repo == store.recorded_root(root):
        return ""
    if resuming != "asks":
        raise UsageError(
            f"the session {path.stem} worked in {opened.repo}, not in {root}",
            hint=(
                "finish its request in that folder, or give a prompt to ask for something new here"
            ),
        )
    return f"the session {path.stem} worked in {opened.repo}; it goes on in {root}"


async def _patch(
    session: Session, screen: TerminalOutput, plain_folder: PlainFolder | None
) -> bytes:
    from fugu_cli.tools.diff import request_patch

    try:
        return await request_patch(session.environment.workspace, session.log.state, plain_folder)
    except StorageError as error:
        screen.show(f"fugu: the diff cannot be made: {error}")
        return b""


def _with_request_tier(loaded: LoadedConfig, path: Path) -> LoadedConfig:
    """Keep the tier in which an unfinished request was asked."""
    request = SessionState.of_records(log.read(path)).request.asked
    if request is None or not request.tier:
        return loaded
    return replace(loaded, config=loaded.config.model_copy(update={"tier": request.tier}))
