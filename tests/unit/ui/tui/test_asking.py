"""Which question is shown, and which one an answer is for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from fugu_cli.app.approval_options import Pending, PendingCall
from fugu_cli.app.approval_questions import ApprovalQuestion, ApprovalQueue
from fugu_cli.messages import Call
from fugu_cli.safety import policy

Asked = tuple[str, int, str]


class Told:
    """What a front was told: each question's call, how many wait with it, its patch."""

    def __init__(self) -> None:
        self.asked: list[Asked | None] = []

    def question(self, question: ApprovalQuestion | None, pending: Pending, patch: str) -> None:
        self.asked.append(
            (question.call.id, pending.total, patch) if question is not None else None
        )

    async def enter_text(self, heading: str) -> str:
        raise AssertionError("nobody said no")

    def answer(self, question: ApprovalQuestion, text: str) -> None:
        raise AssertionError("nobody answered in words")


def question(call: Call) -> ApprovalQuestion:
    return ApprovalQuestion(
        call,
        policy.Judgement(verdict="ask", reason="it writes"),
        asyncio.get_running_loop().create_future(),
    )


def asking(root: Path, what: Callable[[ApprovalQueue], Awaitable[None]]) -> list[Asked | None]:
    async def whole() -> list[Asked | None]:
        told = Told()
        await what(ApprovalQueue(root, told.question, told.enter_text, told.answer))
        return told.asked

    return asyncio.run(whole())


def edit(id: str, old: str, new: str) -> Call:
    return Call.make(id, "edit", path="a.txt", old=old, new=new)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


PATCH = "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-{0}\n+{1}"


def test_questions_are_shown_one_after_the_other_with_the_file_as_it_is_then(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    async def what(asking: ApprovalQueue) -> None:
        first, second = question(edit("1", "two", "three")), question(edit("2", "three", "four"))
        asking.ask([first, second], Pending(1, 2, (PendingCall(second.call, second.judgement),)))
        assert asking.question is None
        await until(lambda: asking.question is first)
        (tmp_path / "a.txt").write_text("one\nthree\n")
        asking.ask([second])
        assert asking.question is None
        await until(lambda: asking.question is second)
        asking.ask([])
        assert asking.question is None

    assert asking(tmp_path, what) == [
        ("1", 2, PATCH.format("two", "three")),
        ("2", 1, PATCH.format("three", "four")),
        None,
    ]


def test_a_question_that_is_taken_back_before_it_is_shown_is_never_shown(tmp_path: Path) -> None:
    async def what(asking: ApprovalQueue) -> None:
        asking.ask([question(edit("1", "a", "b"))])
        asking.ask([])
        other = question(edit("2", "a", "b"))
        asking.ask([other])
        await until(lambda: asking.question is other)

    assert [told and told[0] for told in asking(tmp_path, what)] == [None, "2"]
