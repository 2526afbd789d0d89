"""The one question: asked on a terminal, answered by the user, never guessed."""

import asyncio
import io
import os
from pathlib import Path

import pytest

from fugu_cli.app.approval_options import Pending, PendingCall, approval_options
from fugu_cli.engine.environment import Refusal
from fugu_cli.messages import Call
from fugu_cli.safety.policy import Judgement
from fugu_cli.ui import headless
from fugu_cli.ui.terminal_output import TerminalOutput

ASKED = Judgement(verdict="ask", reason="it runs a command", target="make \x1b[2Jall")


def answered(*lines: str, judgement: Judgement = ASKED) -> tuple[object, str]:
    err = io.StringIO()
    waiting = list(lines)

    async def read() -> str:
        return waiting.pop(0)

    question = headless.ask_on_terminal(TerminalOutput(io.StringIO(), err, {}), read, Path())
    answer = asyncio.run(question(Call.make("1", "bash", command="make all"), judgement))
    assert waiting == []
    return answer, err.getvalue()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y\n", "once"),
        ("YES\n", "once"),
        ("s\n", "session"),
        ("n\n", "no"),
        ("\n", "no"),
        ("", "no"),
        ("what", "no"),
    ],
)
def test_the_answer_is_what_was_typed_and_no_otherwise(line: str, answer: str) -> None:
    assert answered(line)[0] == answer


def test_the_question_shows_the_resolved_target_and_the_reason_and_leaves_nothing_out() -> None:
    _, shown = answered("n\n")
    assert shown == (
        "Allow bash?\nneeds approval: it runs a command\nmake \\x1b[2Jall\n"
        "  y      yes, once\n  s      yes, and exactly this for this session\n  n      no\n"
        "  n TEXT no, and tell it what to do instead\ny, s or n (Enter: no): "
    )


def test_a_question_is_short_and_shows_all_of_a_long_command_when_asked() -> None:
    command = f"echo {'a' * 200_000}; rm -rf build"
    asked = ASKED.model_copy(update={"target": command})
    answer, shown = answered("n\n", judgement=asked)
    assert answer == "no"
    assert len(shown) < 20_000
    assert "characters are left out here; d shows all of it" in shown
    assert "rm -rf build" in shown
    answer, shown = answered("d\n", "y\n", judgement=asked)
    assert answer == "once"
    assert "a" * 200_000 in shown.replace("\n", "").replace(" ", "")


def test_an_answer_that_is_none_is_asked_again() -> None:
    answer, shown = answered("maybe\n", "y\n")
    assert (answer, shown.count("y, s or n (Enter: no): ")) == ("once", 2)


def test_a_no_may_say_what_to_do_instead() -> None:
    assert answered("n use the parser we have\n")[0] == Refusal(feedback="use the parser we have")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("bash(pytest *)", "yes, and `pytest *` for this session"),
        ("edit(src/**)", "yes, and edits in src/ for this session"),
        ("edit(a.py)", "yes, and edits of a.py for this session"),
    ],
)
def test_a_yes_for_the_session_says_what_it_covers(rule: str, words: str) -> None:
    assert words in answered("n\n", judgement=ASKED.model_copy(update={"rule": rule}))[1]


@pytest.mark.parametrize(
    ("others", "offered"),
    [
        (("ls", "make all"), True),
        (("ls", "make " + "x" * 200), False),
        (("make\nrm -rf x",), False),
        (tuple(f"make {number}" for number in range(7)), False),
    ],
)
def test_a_yes_to_several_calls_is_offered_only_where_all_of_them_are_listed_whole(
    others: tuple[str, ...], offered: bool
) -> None:
    calls = [PendingCall(Call.make("1", "bash", command=line), ASKED) for line in others]
    options = approval_options(
        Call.make("0", "bash", command="x"), ASKED, Pending(1, len(calls) + 1, tuple(calls))
    )
    assert ["all" in [one.scope for one in options], "none" in [one.scope for one in options]] == [
        offered,
        True,
    ]


def test_questions_that_come_at_the_same_time_are_asked_one_after_the_other() -> None:
    err, waiting = io.StringIO(), ["y\n", "n\n"]

    async def read() -> str:
        await asyncio.sleep(0)
        return waiting.pop(0)

    async def both() -> list[object]:
        ask = headless.ask_on_terminal(TerminalOutput(io.StringIO(), err, {}), read, Path())
        calls = [Call.make(name, "bash", command=name) for name in ("one", "two")]
        return list(
            await asyncio.gather(
                *(ask(call, ASKED.model_copy(update={"target": call.id})) for call in calls)
            )
        )

    assert asyncio.run(both()) == ["once", "no"]
    shown = err.getvalue()
    assert shown.index("one") < shown.index("y, s or n") < shown.index("two")


def test_what_needs_a_yes_every_time_cannot_be_allowed_for_the_session() -> None:
    answer, shown = answered("s\n", "y\n", judgement=ASKED.model_copy(update={"every_time": True}))
    assert answer == "once" and "session" not in shown


def test_without_a_terminal_the_answer_is_no() -> None:
    assert asyncio.run(headless.deny_headless(Call(id="1", tool="bash"), ASKED)) == "headless"


def test_a_line_is_read_without_blocking_and_waiting_for_it_can_be_cancelled() -> None:
    read, write = os.pipe()

    async def go() -> str:
        with os.fdopen(read) as stream:
            waiting = asyncio.create_task(headless.read_typed_line(stream))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            os.write(write, b"yes\n")
            return await headless.read_typed_line(stream)

    assert asyncio.run(go()) == "yes\n"
    os.close(write)
