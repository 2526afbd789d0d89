"""The requests of an open session, run one after the other; what is typed meanwhile waits, and
questions for approval are answered. Knows no screen.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fugu_cli.app.approval_options import permission_for
from fugu_cli.app.approval_questions import ApprovalQuestion, ApprovalQuestions
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.session.events import Recorded
from fugu_cli.session.live_events import Live, Waiting

if TYPE_CHECKING:
    from fugu_cli.app.approval_options import ApprovalScope
    from fugu_cli.app.session_host import SessionHost
    from fugu_cli.app.session_messages import SendHow
    from fugu_cli.app.session_protocol import DrivenSession, SessionProtocol
    from fugu_cli.engine.environment import AskPermission, Permission
    from fugu_cli.messages import Call, Effort, Media
    from fugu_cli.safety import policy
    from fugu_cli.safety.policy import Mode
    from fugu_cli.session.events import Steered
    from fugu_cli.session.log import Log


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Collect nothing inside; after it, leave what is there out of every later collection."""
    gc.unfreeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


Expand = Callable[[str], AbstractContextManager[str]]
"""Yields a request's text with more added to it; an error inside means that it was refused."""


class QueueListener(Protocol):
    """Shows the session."""

    def replayed(self, records: Sequence[Recorded]) -> None:
        """Show a newly opened session with these lines."""

    def handle_item(self, item: Recorded | Live) -> None:
        """Handle a new line or a live item."""

    def changed(self) -> None:
        """Update what depends on running work, queue, questions and mode."""

    def failed(self, error: FuguError) -> None:
        """Report an error of the outside world that is not in the log."""


@dataclass(frozen=True)
class QueuedRequest:
    """A request that is not recorded yet.

    `pin`: only this agent takes its turns. `tier` and `effort` are its own; with "" and None it has
    those of the session. `typed`: the user's words, if `text` was made from them. `skill`: the text
    of a skill that the user named. `piped` and `media` come with the request. `carries_out`: the
    request has no text and carries out the open plan in this mode.
    """

    text: str
    pin: str | None = None
    typed: str = ""
    skill: str = ""
    tier: str = ""
    effort: Effort | None = None
    piped: str = ""
    media: tuple[Media, ...] = ()
    carries_out: Mode | None = None

    @property
    def has_own_settings(self) -> bool:
        """True if it names its own agent, tier or effort."""
        return self.pin is not None or bool(self.tier) or self.effort is not None

    @property
    def shown(self) -> str:
        """The text that the user typed."""
        return self.typed or self.text


def is_unfinished(session: DrivenSession) -> bool:
    """Return whether the newest request has no end."""
    return bool(session.log.state.request.events) and session.log.state.request.finished is None


async def record_request(session: DrivenSession, typed: QueuedRequest, text: str) -> None:
    """Record the request. In plan mode a request that follows a plan is recorded as a message to
    the agent that made the plan. An effort of its own holds for this request alone.
    """
    if typed.carries_out is not None:
        await session.accept_plan(typed.carries_out)
        return
    if session.can_change_plan and not typed.has_own_settings:
        message = _as_message(typed, text)
        await session.change_plan(message.text, message.typed, message.media)
        return
    effort = session.effort
    if typed.effort is not None:
        session.effort = typed.effort
    try:
        await session.ask(text, typed.typed, typed.skill, typed.piped, typed.media)
    finally:
        if typed.effort is not None:
            session.effort = effort


def _as_message(typed: QueuedRequest, text: str) -> QueuedRequest:
    """Return the request as a message: its text, skill and piped text become one text."""
    whole = "\n\n".join(part for part in (text, typed.skill, typed.piped) if part)
    words = typed.typed or typed.text
    return QueuedRequest(text=whole, typed=words if whole != words else "", media=typed.media)


async def _run_request(
    session: DrivenSession,
    typed: QueuedRequest | None,
    expand: Expand,
    pinned: Callable[[], str | None],
) -> None:
    """Run one request with its own tier and agent, then restore the pinned agent."""
    tier = session.tier
    interrupted = session.log.state.request.asked
    chosen_tier = ""
    if typed is not None:
        chosen_tier = typed.tier
    elif interrupted is not None:
        chosen_tier = interrupted.tier
    if chosen_tier and chosen_tier != tier:
        session.set_tier(chosen_tier)  # first: one that cannot be had refuses the request
    try:
        if typed is not None:
            with expand(typed.text) as text:
                await record_request(session, typed, text)
            if typed.pin is not None:
                session.pin(typed.pin)
        await session.run()
    finally:
        if typed is not None and typed.pin is not None:
            session.pin(pinned())
        if session.tier != tier:
            session.set_tier(tier)


class LogFollower:
    """Tells a listener what is in a session's log, and what comes."""

    def __init__(self, listener: QueueListener) -> None:
        self._listener = listener
        self._log: Log | None = None
        self._task: asyncio.Task[None] | None = None
        self._next_seq = 0

    def open(self, log: Log) -> None:
        """Tell of this log from now on."""
        records = tuple(log.records)
        self._log, self._next_seq = log, len(records)
        self._listener.replayed(records)
        self._task = asyncio.create_task(self._tell(log, len(records)))

    async def _tell(self, log: Log, replayed: int) -> None:
        """Pass on what the log tells after the lines that were replayed."""
        async for item in log.follow():
            if isinstance(item, Recorded):
                if item.seq < replayed:
                    continue
                self._next_seq = item.seq + 1
            self._listener.handle_item(item)

    async def wait_for(self, run: asyncio.Task[object]) -> None:
        """Wait for a request. Where what follows the log broke, nothing would be shown any more:
        that is raised.
        """
        task = self._task
        assert task is not None
        await asyncio.wait({run, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not task.cancelled():
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            task.result()
        await run

    async def caught_up(self) -> None:
        """Wait until the listener has heard everything that is in the log."""
        while self._log is not None and self._task is not None and not self._task.done():
            if self._next_seq >= len(self._log.records):
                return
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Tell no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None


ENDING_POLL_SECONDS = 0.02


class RequestQueue:
    """The open session with its running request, its queued requests and its open questions."""

    def __init__(
        self,
        listener: QueueListener,
        expand: Expand = nullcontext,
        ask: AskPermission | None = None,
    ) -> None:
        """Create the queue. `expand` adds text to a request when it starts, since waiting requests
        can be taken back. `ask` asks the user whether a plan is carried out; by default the
        question goes to `approvals`.
        """
        self.session: SessionProtocol | None = None
        self.queue: list[QueuedRequest] = []
        self.approvals = ApprovalQuestions(self.changed)
        self.pinned: str | None = None
        self.takes_requests = True
        """True if further requests can be run after the running one."""
        self._listener = listener
        self.following = LogFollower(listener)
        self._expand = expand
        self._run: asyncio.Task[object] | None = None
        self._ask = ask or self.ask
        self._plan_question: asyncio.Task[Permission] | None = None
        self._cut = False
        self._steer = False
        self._requests_looked_at = 0
        """Number of requests, counted from the first, whose unread messages were dealt with."""
        self._closing = asyncio.Lock()
        self._host: SessionHost | None = None
        self._begun: set[asyncio.Task[object]] = set()
        """Tasks that followers started."""

    def changed(self) -> None:
        """Tell the interface and the followers that running work, queue, questions or mode changed."""
        self._listener.changed()
        if self._host is not None:
            self._host.changed()

    @property
    def running(self) -> bool:
        """A request is being worked on."""
        return self._run is not None

    @property
    def stopping(self) -> bool:
        """True if the running work was interrupted and is still ending its processes."""
        return self.running and self._cut

    async def wait_for_ending(self) -> None:
        """Wait for the end of a run whose request has ended or was interrupted."""
        run = self._run
        while run is not None and self._run is run and self.session is not None:
            if not self._cut and is_unfinished(self.session):
                return
            await asyncio.sleep(ENDING_POLL_SECONDS)

    async def open(self, opening: Callable[[AskPermission], Awaitable[SessionProtocol]]) -> bool:
        """Close the open session and show another. Return False when that could not be opened: then
        the old session stays open.
        """
        with garbage_collection_paused():
            try:
                session = await opening(self.ask)
            except FuguError as error:
                self._listener.failed(error)
                return False
            await self.close()
            self.session = session
            self.pinned = None
            self.following.open(session.log)
        self._requests_looked_at = max(len(session.log.state.requests) - 1, 0)
        self._queue_unread(session)
        await self.answer_followers(session.log)
        self.changed()
        return True

    async def answer_followers(self, log: Log) -> str:
        """Answer on the socket of the session until `stop_answering`. Return "", or the reason why
        there is no socket.
        """
        from fugu_cli.app.session_host import SessionHost

        self._host = SessionHost(self, log)
        return await self._host.open()

    async def stop_answering(self) -> None:
        """Close the socket."""
        if self._host is not None:
            await self._host.close()
            self._host = None

    async def adopt(self, session: SessionProtocol) -> str:
        """Hold a session whose only request the caller runs (`run_elsewhere`), and answer its
        followers until `stop_answering`. Return "", or the reason why nobody can follow it.
        """
        self.session, self.takes_requests = session, False
        return await self.answer_followers(session.log)

    def run_elsewhere(self, run: asyncio.Task[object]) -> None:
        """Take note of a request that the caller runs, so that followers can interrupt it."""
        self._run = run
        self.changed()

    async def submit(self, typed: QueuedRequest) -> None:
        """Run a request and those that are queued meanwhile. While another one runs, or before the
        session is open, queue it and return at once. An open question about a plan is withdrawn:
        the request is the answer to it.
        """
        self._withdraw_plan_question()
        if self.running or self.session is None:
            self.queue.append(typed)
            self.changed()
            return
        await self._drive(typed)

    async def steer(self, message: QueuedRequest) -> QueuedRequest | None:
        """Give a message to the agents at work. Return None then, else the request to submit in its
        place: nothing is being worked on, the work has ended meanwhile, or the message names its
        own agent, tier or effort. Raises UsageError where a hook refuses it.
        """
        session = self.session
        if session is None or not self.running or self._cut or message.has_own_settings:
            return message
        if not is_unfinished(session):
            return message
        with self._expand(message.text) as text:
            steering = _as_message(message, text)
            is_given = await session.steer(steering.text, steering.typed, steering.media)
        return None if is_given else steering

    def _queue_unread(self, session: DrivenSession) -> None:
        """Queue, once, the messages that no agent had read when their request ended. Looks at every
        request that ended since the last time: a hook may have added one.
        """
        unread = []
        requests = session.log.state.requests
        first = self._requests_looked_at
        if requests and requests[-1].asks_for_plan:
            first = min(first, len(requests) - 1)  # a change of its plan has reopened it
        for number in range(first, len(requests)):
            if requests[number].finished is None:
                continue
            self._requests_looked_at = number + 1
            unread += [
                QueuedRequest(text=message.text, typed=message.typed, media=message.media)
                for message in requests[number].left_unread
            ]
        self.queue[:0] = unread
        for message in unread:
            why = f"the request ended before an agent read this, so it is queued: {message.shown}"
            session.log.tell(Waiting(why=why, notice=True))

    async def send_queued(self) -> None:
        """Run the queued requests after an interrupted one. Returns when none is left."""
        if self.queue and not self.running and self.session is not None:
            await self._drive(self.queue.pop(0))

    async def go_on(self) -> bool:
        """Finish the request that was cut off or stopped by a limit, or ask about the plan that it
        ended with. False when there is neither.
        """
        session = self.session
        if session is None or self.running:
            return False
        if session.go_on():
            await self._drive(None)
        elif session.log.state.open_plan is not None:
            await self.answer_open_plan()
        else:
            return False
        return True

    async def _drive(self, typed: QueuedRequest | None) -> None:
        """Run requests until the queue is empty or one was interrupted without a replacement."""
        session = self.session
        assert session is not None
        while True:
            self._cut = False
            self.approvals.clear()
            run = self._run = asyncio.create_task(
                _run_request(session, typed, self._expand, lambda: self.pinned)
            )
            self.changed()
            try:
                await self.following.wait_for(run)
            except asyncio.CancelledError:
                # the screen goes: what runs ends what it started first
                if not self._cut or not run.done():
                    run.cancel()
                    await asyncio.gather(run, return_exceptions=True)
                    raise
            except FuguError as error:
                self._listener.failed(error)
                self._cut = True
            finally:
                self._run = None
            steering, self._steer = self._steer, False
            self._queue_unread(session)
            if self._cut and not steering:
                break
            if self.queue:
                typed = self.queue.pop(0)
            elif self._cut and is_unfinished(session):
                typed = None  # it goes on with what it had not read
            else:
                typed = await self._ask_about_plan(session)
                if typed is None:
                    break
        self.changed()

    async def send(self, text: str, how: SendHow, pin: str = "") -> None:
        """Handle a follower's text like one that was typed in the interface. Does not wait for a
        request to be run. Raises UsageError.
        """
        session = self.session
        if session is None:
            raise UsageError("the session is being closed", hint="nothing was sent")
        request = await asyncio.to_thread(request_from_text, session, text, pin or None)
        if not request.text.strip() and not request.skill:
            raise UsageError("the message is empty", hint="nothing was sent")
        if how == "steer":
            remaining = await self.steer(request)
            if remaining is None:
                return
            request = remaining
        if not self.takes_requests:
            raise UsageError(
                "`fugu run` runs this session and works on one request only",
                hint="send a message while agents are at work, or resume the session later",
            )
        if how == "at_once" and self.running:
            self.send_at_once(request)
        else:
            self._begin(self.submit(request))

    def begin_going_on(self, *, queued: bool) -> None:
        """Finish the request that was cut off, or run those in the queue, in the background."""
        self._begin(self.send_queued() if queued else self.go_on())

    def _begin(self, work: Coroutine[None, None, object]) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._end_begun)

    def _end_begun(self, task: asyncio.Task[object]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.result()  # a bug ends the interface, as one in its own tasks does

    def send_at_once(self, request: QueuedRequest) -> None:
        """Run a request in the place of what runs, before the queue."""
        self.queue.insert(0, request)
        self.interrupt(steering=True)

    def answer(self, question: ApprovalQuestion, scope: ApprovalScope, feedback: str = "") -> str:
        """Answer a question with one of its options. `feedback` is text of the user's. Return a
        sentence about what is remembered, "" if nothing is.

        Raises UsageError if the question was answered before or has no such option, and if no rule
        can allow the call for good; the call is then allowed in this session.
        """
        if self.session is None or question.answer.done():
            raise UsageError(
                "this question has been answered already", hint="the first answer counts"
            )
        options = self.approvals.options(question)
        if scope not in [option.scope for option in options]:
            keys = ", ".join(option.key for option in options)
            raise UsageError(f"{scope!r} is no answer to this question", hint=f"there are {keys}")
        match scope:
            case "all" | "none":
                self.approvals.answer_all("once" if scope == "all" else "no")
            case "always":
                try:
                    rule = self.session.allow_always(*question.asked)
                finally:
                    question.answer.set_result("session")
                return f"from now on allowed in this project: {rule}"
            case "feedback":
                from fugu_cli.engine.environment import Refusal

                question.answer.set_result(Refusal(feedback=feedback))
            case _:
                question.answer.set_result(permission_for(question.call, scope))
        return ""

    @property
    def queued_texts(self) -> list[str]:
        """The requests in the queue, as the user typed them."""
        return [request.shown for request in self.queue]

    async def answer_open_plan(self) -> None:
        """Ask about the plan that an opened session ended with, and do what the user answers."""
        if self.session is None or self.running or self._plan_question is not None:
            return
        request = await self._ask_about_plan(self.session)
        if request is not None:
            await self._drive(request)

    async def _ask_about_plan(self, session: DrivenSession) -> QueuedRequest | None:
        """Ask about the open plan, and return the request that follows from the answer. None: there
        is no plan, or the user leaves it open.
        """
        plan = session.log.state.open_plan
        if plan is None:
            return None
        from fugu_cli.app import plans

        question = plans.plan_question(plan, f"plan-{len(session.log.events)}")
        self._plan_question = task = asyncio.ensure_future(self._ask(*question))
        self._listener.changed()
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            if self._plan_question is task:
                self._plan_question = None
        answer = None if task.cancelled() else plans.plan_answer(task.result())
        if answer is None or self.session is not session:
            return None
        if answer.mode is None:
            session.set_mode("plan")
        return QueuedRequest(text=answer.change, carries_out=answer.mode)

    def _withdraw_plan_question(self) -> None:
        if self._plan_question is not None:
            self._plan_question.cancel()
            self._plan_question = None

    def pin(self, name: str | None) -> None:
        """Let one agent take every turn from now on; None gives the decision back."""
        if self.session is not None:
            self.session.pin(name)
            self.pinned = name
            self.changed()

    def interrupt(self, *, steering: bool = False) -> bool:
        """Cut what is running; `steering`: to go on at once with the queue, or with the messages
        that nobody has read. False when nothing runs, or there are none.
        """
        if self._plan_question is not None and not steering:
            self._withdraw_plan_question()
            return True
        if self._run is None or (steering and not self.queue and not self.has_unread):
            return False
        self._cut, self._steer = True, self._steer or steering
        self.approvals.withdraw()
        self._run.cancel()
        self.changed()
        return True

    @property
    def waiting_messages(self) -> tuple[Steered, ...]:
        """The user's messages that the agents at work are given with the next result."""
        if self.session is None or not self.running:
            return ()
        return self.session.log.state.request.ungiven_steering

    @property
    def has_unread(self) -> bool:
        """True if no agent has read some of the user's messages to the running request."""
        session = self.session
        return session is not None and bool(session.log.state.request.unread_steering)

    async def ask(self, call: Call, judgement: policy.Judgement) -> Permission:
        """Wait for the user's answer; questions queue."""
        await self.following.caught_up()  # what led to the question is shown before it
        if self.session is None:
            raise asyncio.CancelledError("the session is being closed")
        return await self.approvals.ask(self.session, call, judgement)

    async def close(self) -> None:
        """End what runs, stop following, close the session. What is sent meanwhile is not run."""
        session, self.session = self.session, None
        self.queue.clear()
        self._withdraw_plan_question()
        async with self._closing:  # whoever closes it a second time waits for the first
            if self._run is not None:
                run = self._run
                self.interrupt()
                await asyncio.gather(run, return_exceptions=True)
            await self.stop_answering()
            await self.following.close()
            if session is not None:
                await session.close()


def request_from_text(session: SessionProtocol, text: str, pin: str | None = None) -> QueuedRequest:
    """Parse a typed text. `pin` has precedence over the agent that a command names. Raises
    UsageError for an agent that is not in the pool.
    """
    from fugu_cli.extensions.skill_library import parse_request

    request = parse_request(text, session.library)
    agent = pin or request.agent
    if agent and agent not in session.team.members:
        message = f"{text.split()[0]} is for the agent {agent!r}, which is not in the pool"
        raise UsageError(message, hint=f"there are {', '.join(session.team.members)}")
    return QueuedRequest(
        text=request.text,
        pin=agent or None,
        typed=request.typed,
        skill=request.skill,
        tier=request.tier,
    )
