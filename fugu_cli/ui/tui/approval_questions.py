"""Questions of a session that wait for its user, oldest first, and answers given before their question."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fugu_cli.session.events import Replied
from fugu_cli.ui.approval_options import ALONE, Pending, PendingCall

if TYPE_CHECKING:
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call
    from fugu_cli.safety import policy
    from fugu_cli.ui.tui.session_protocol import SessionProtocol


@dataclass(frozen=True)
class ApprovalQuestion:
    """May this call run? The answer goes into `answer`. Calls of the same reply were asked about `before` it, and will
    be asked about `after` it."""

    call: Call
    judgement: policy.Judgement
    answer: asyncio.Future[Permission] = field(compare=False)
    before: int = 0
    after: tuple[PendingCall, ...] = ()

    @property
    def asked(self) -> tuple[Call, policy.Judgement]:
        """What people read."""
        return self.call, self.judgement


class ApprovalQuestions:
    """What is asked about the calls of one request."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called when a question comes or goes."""
        self.questions: deque[ApprovalQuestion] = deque()
        self._changed = changed
        self._asked: list[Call] = []
        """Calls of this request that were asked about."""
        self._answered: dict[Call, tuple[Permission, policy.Judgement]] = {}
        """Answers that were given before the call was asked about, to several at once, and what was known then."""

    async def ask(self, session: SessionProtocol, call: Call, judgement: policy.Judgement) -> Permission:
        """Wait for the user's answer; questions queue."""
        early, shown = self._answered.pop(call, (None, None))
        if early is not None and (early == "no" or _is_the_same(judgement, shown)):
            return early
        before, after = _same_reply(session, call, self._asked)
        self._asked.append(call)
        question = ApprovalQuestion(call, judgement, asyncio.get_running_loop().create_future(), before, after)
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
        """What waits beside the oldest question."""
        if not self.questions:
            return ALONE
        first, *more = self.questions
        others = [*first.after]
        for one in more:
            others += [PendingCall(one.call, one.judgement), *one.after]
        return Pending(first.before + 1, first.before + 1 + len(others), tuple(others))

    def answer(self, permission: Permission) -> None:
        """Answer the oldest question."""
        if self.questions and not self.questions[0].answer.done():
            self.questions[0].answer.set_result(permission)

    def answer_all(self, permission: Permission) -> None:
        """Answer every question, and those that later calls of the same replies will ask."""
        for question in self.questions:
            self._answered |= {one.call: (permission, one.judgement) for one in question.after}
            if not question.answer.done():
                question.answer.set_result(permission)

    def withdraw(self) -> None:
        """Take every question back: what asked is cut."""
        for question in self.questions:
            question.answer.cancel()
        self.questions.clear()

    def clear(self) -> None:
        """A new request begins: nothing of it was asked or answered."""
        self._asked.clear()
        self._answered.clear()


def _is_the_same(judgement: policy.Judgement, shown: policy.Judgement | None) -> bool:
    """A yes that was given early still fits: what is touched, and why it is asked, are what they were then."""
    if shown is None or judgement.every_time:
        return False
    return (judgement.target, judgement.reason) == (shown.target, shown.reason)


def _same_reply(session: SessionProtocol, call: Call, asked: Sequence[Call]) -> tuple[int, tuple[PendingCall, ...]]:
    """How many calls of the call's reply were asked about, and those after it that will be."""
    from fugu_cli.engine.tool_calls import asks_about

    reply = next((e for e in reversed(session.log.events) if isinstance(e, Replied) and call in e.calls), None)
    if reply is None:
        return 0, ()
    at = reply.calls.index(call)
    before = sum(one in asked for one in reply.calls[:at])
    judged = [(one, asks_about(session.log, session.environment, reply.turn, one)) for one in reply.calls[at + 1 :]]
    return before, tuple(PendingCall(one, found) for one, found in judged if found)
