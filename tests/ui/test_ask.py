"""The one question: asked on a terminal, answered by the user, never guessed."""

import asyncio
import io
import os
from dataclasses import dataclass

import pytest

from fugu_cli.messages import Call
from fugu_cli.ui import headless
from fugu_cli.ui.terminal_output import TerminalOutput


@dataclass(frozen=True)
class Said:
    reason: str = "it runs a command"
    target: str = "make \x1b[2Jall"
    every_time: bool = False


def answered(*lines: str, judgement: Said | None = None) -> tuple[str, str]:
    err = io.StringIO()
    waiting = list(lines)

    async def read() -> str:
        return waiting.pop(0)

    question = headless.ask_on_terminal(TerminalOutput(io.StringIO(), err, {}), read)
    answer = asyncio.run(question(Call.make("1", "bash", command="make all"), judgement or Said()))
    assert waiting == []
    return answer, err.getvalue()


@pytest.mark.parametrize(
    ("line", "answer"),
    [("y\n", "once"), ("YES\n", "once"), ("s\n", "session"), ("n\n", "no"), ("\n", "no"), ("", "no"), ("what", "no")],
)
def test_the_answer_is_what_was_typed_and_no_otherwise(line: str, answer: str) -> None:
    assert answered(line)[0] == answer


def test_the_question_shows_the_resolved_target_and_the_reason_and_leaves_nothing_out() -> None:
    _, shown = answered("n\n")
    assert shown == (
        "allow bash make all?\n  make \\x1b[2Jall\n  asked because it runs a command\n"
        "  [y] once  [s] for this session  [N] no: "
    )


def test_an_answer_that_is_none_is_asked_again() -> None:
    answer, shown = answered("maybe\n", "y\n")
    assert (answer, shown.count("[y] once")) == ("once", 2)


def test_what_needs_a_yes_every_time_cannot_be_allowed_for_the_session() -> None:
    answer, shown = answered("s\n", "y\n", judgement=Said(every_time=True))
    assert answer == "once" and "session" not in shown


def test_without_a_terminal_the_answer_is_no() -> None:
    assert asyncio.run(headless.deny_headless(Call(id="1", tool="bash"), Said())) == "headless"


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
