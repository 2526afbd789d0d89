"""Questions of a session that wait for its user, oldest first; answers given before their question;
and the one that is shown, with the change it is about.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.app.approval_options import (
    ACCEPT_PLAN,
    ALONE,
    ApprovalOption,
    Pending,
    PendingCall,
    approval_options,
)
from fugu_cli.session.events import Replied
from fugu_cli.session.tool_facts import ASK_USER

if TYPE_CHECKING:
    from fugu_cli.app.session_protocol import SessionProtocol
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call
    from fugu_cli.safety import policy


@dataclass(frozen=True)
class ApprovalQuestion:
    """The question whether a call may run, and the future of its `answer`. `before` counts the calls of
    the same reply that were asked about earlier, `after` holds those that come later. Each question
    of a session has its own `number`.
    """

    call: Call
    judgement: policy.Judgement
    answer: asyncio.Future[Permission] = field(compare=False)
    before: int = 0
    after: tuple[PendingCall, ...] = ()
    number: int = 0

    @property
    def asked(self) -> tuple[Call, policy.Judgement]:
        """The call and judgement that people read."""
        return self.call, self.judgement


class ApprovalQuestions:
    """The questions about the calls of one request."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """Create the questions. `changed` is called when a question comes or goes."""
        self.questions: deque[ApprovalQuestion] = deque()
        self._changed = changed
        self._count = 0
        self._asked_calls: list[Call] = []
        """Calls of this request that were asked about."""
        self._answered: dict[Call, tuple[Permission, policy.Judgement]] = {}
        """Answers that were given before the call was asked about, to several at once, and what was
        known then.
        """

    async def ask(
        self, session: SessionProtocol, call: Call, judgement: policy.Judgement
    ) -> Permission:
        """Wait for the user's answer; questions queue."""
        early, shown = self._answered.pop(call, (None, None))
        if early is not None and (early == "no" or _is_the_same(judgement, shown)):
            return early
        before, after = _same_reply(session, call, self._asked_calls)
        self._asked_calls.append(call)
        self._count += 1
        answer: asyncio.Future[Permission] = asyncio.get_running_loop().create_future()
        question = ApprovalQuestion(call, judgement, answer, before, after, self._count)
        self.questions.append(question)
        self._changed()
        try:
            return await question.answer
        finally:
            if question in self.questions:
                self.questions.remove(question)
            self._changed()

    @property
    def pending(self) -> Pending:
        """The calls that wait besides the oldest question."""
        if not self.questions:
            return ALONE
        first, *more = self.questions
        others = [*first.after]
        for question in more:
            others += [PendingCall(question.call, question.judgement), *question.after]
        return Pending(first.before + 1, first.before + 1 + len(others), tuple(others))

    def options(self, question: ApprovalQuestion) -> tuple[ApprovalOption, ...]:
        """Return the possible answers to a question. Only the oldest may be answered with others."""
        is_oldest = bool(self.questions) and self.questions[0] is question
        return approval_options(*question.asked, self.pending if is_oldest else ALONE)

    def answer_all(self, permission: Permission) -> None:
        """Answer every question, and those that later calls of the same replies will ask."""
        for question in self.questions:
            self._answered |= {
                pending_call.call: (permission, pending_call.judgement)
                for pending_call in question.after
            }
            if not question.answer.done():
                question.answer.set_result(permission)

    def withdraw(self) -> None:
        """Take every question back: what asked is cut."""
        for question in self.questions:
            question.answer.cancel()
        self.questions.clear()

    def clear(self) -> None:
        """Forget the questions and answers of the last request."""
        self._asked_calls.clear()
        self._answered.clear()


def _is_the_same(judgement: policy.Judgement, shown: policy.Judgement | None) -> bool:
    """Return whether an early yes still fits: target and reason are unchanged."""
    if shown is None or judgement.every_time:
        return False
    return (judgement.target, judgement.reason) == (shown.target, shown.reason)


def _same_reply(
    session: SessionProtocol, call: Call, asked_calls: Sequence[Call]
) -> tuple[int, tuple[PendingCall, ...]]:
    """Return how many calls of the same reply were asked about, and the later ones that will be."""
    from fugu_cli.engine.tool_calls import asks_about

    reply = next(
        (e for e in reversed(session.log.events) if isinstance(e, Replied) and call in e.calls),
        None,
    )
    if reply is None:
        return 0, ()
    at = reply.calls.index(call)
    before = sum(earlier in asked_calls for earlier in reply.calls[:at])
    after = []
    for later in reply.calls[at + 1 :]:
        judgement = asks_about(session.log, session.environment, reply.turn, later)
        if judgement:
            after.append(PendingCall(later, judgement))
    return before, tuple(after)


ShowQuestion = Callable[[ApprovalQuestion | None, Pending, str], None]
"""Shows a question with what waits beside it and the change it is about; None: nothing is asked."""


class ApprovalQueue:
    """Questions that wait for an answer. `question` is the one that people see, None if there is
    none.
    """

    def __init__(
        self,
        root: Path,
        show: ShowQuestion,
        enter_text: Callable[[str], Awaitable[str]],
        answer: Callable[[ApprovalQuestion, str], None],
    ) -> None:
        """Create it without questions. `answer` is called with the user's own words to a question."""
        self._shown: ApprovalQuestion | None = None
        self._show, self._enter_text, self._answer = show, enter_text, answer
        self._root = root
        self._questions: Sequence[ApprovalQuestion] = ()
        self._pending = ALONE
        self._patch = ""
        self._looking: asyncio.Task[None] | None = None
        self._typing: asyncio.Task[None] | None = None

    @property
    def question(self) -> ApprovalQuestion | None:
        """The question an answer is for."""
        return self._shown if self._questions and self._questions[0] is self._shown else None

    @property
    def pending(self) -> Pending:
        """The calls that wait behind this question."""
        return self._pending

    def ask(self, questions: Sequence[ApprovalQuestion], pending: Pending = ALONE) -> None:
        """Show the waiting questions, the oldest first."""
        self._questions, self._pending = tuple(questions), pending
        if not self._questions:
            self.close()
            self._shown = None
            self._show(None, ALONE, "")
        elif self._questions[0] is self._shown:
            self._show(self._shown, self._pending, self._patch)
        elif self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._prepare_patch())

    async def _prepare_patch(self) -> None:
        """Prepare the patch of the oldest question. Another one may be the oldest afterwards."""
        from fugu_cli.app.patches import approval_patch  # not in runs that ask nobody

        question = self._questions[0]
        self._patch = await asyncio.to_thread(approval_patch, question.call, self._root)
        self._shown, self._looking = question, None
        self.ask(self._questions, self._pending)

    def deny_with_feedback(self, question: ApprovalQuestion) -> None:
        """Let the user type a message for the agent and deny the call with it. Without a message
        the question stays.
        """
        self._typing = asyncio.get_running_loop().create_task(self._take_feedback(question))

    async def _take_feedback(self, question: ApprovalQuestion) -> None:
        headings = {ASK_USER.name: "Your answer", ACCEPT_PLAN: "Change the plan: say what and how"}
        heading = headings.get(question.call.tool, "No. Tell it what to do instead")
        text = (await self._enter_text(heading)).strip()
        if text and not question.answer.done():
            self._answer(question, text)
        self.ask(self._questions, self._pending)

    def close(self) -> None:
        """Close the questions."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
