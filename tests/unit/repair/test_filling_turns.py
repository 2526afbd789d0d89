"""Turns of a small model that fills in lines: which ones, in which order, and that all of them are
one draw.
"""

from __future__ import annotations

from fugu_cli.engine.environment import RequestReply, RollBackAttempt, TurnClosed
from fugu_cli.messages import Call, Prompt
from fugu_cli.repair import search
from fugu_cli.session.events import Event, Member, Replied, ToolRan
from tests.facts import (
    CODER,
    asked,
    assigned,
    checked,
    opened,
    prompt_of,
    ran,
    replied,
    rolled_back,
    write,
)
from tests.unit.repair.conftest import Next

FILLER = CODER.model_copy(update={"protocol": "text", "infill": True, "attempts": 1})
BODY = "    found = 0\n    for price in prices:\n        found -= price\n    return found"
FILE = f'def total(prices):\n    """What all come to."""\n{BODY}\n'
LINES = [line.strip() for line in BODY.split("\n")]
FAILING = checked(0, ok=False)


def begun(agent: str = "coder", file: str = FILE, number: int = 1) -> list[Event]:
    read = Call.make(f"e{number}-0", "read", path="a.py", plain=True)
    return [assigned(number, agent), *ran(number, read, file, by="evidence")]


def drawn(prompt: Prompt, *, changes: bool = True, number: int = 1) -> list[Event]:
    """The draw that follows the prompt, which is rolled back."""
    place = prompt.gap.place if prompt.gap else ""
    call = write(f"w{number}")
    reply = replied(
        number, "coder", "x" if changes else f"{place}: as it is", *([call] if changes else [])
    )
    facts: list[Event] = [reply.model_copy(update={"filled": place})]
    if changes:
        facts += [*ran(number, call, path="a.py"), *checked(number, ok=False)]
    return [*facts, rolled_back(number)]


def left_out(prompt: Prompt) -> str:
    """The line that is asked for, "" where it is a whole file."""
    return prompt.files["a.py"][prompt.gap.start : prompt.gap.end] if prompt.gap else ""


def asked_for(member: Member, count: int, file: str = FILE) -> list[Prompt]:
    """The prompts of so many draws in one turn, each of which failed."""
    events: list[Event] = [opened(), asked(), *FAILING, *begun(file=file)]
    prompts = []
    for _ in range(count):
        prompts.append(prompt_of(events, member, ()))
        events += drawn(prompts[-1])
    return prompts


def test_few_lines_come_first_then_it_is_written_anew_then_it_is_mended_then_all_by_chance() -> (
    None
):
    built = asked_for(FILLER, 7)
    assert [left_out(prompt) for prompt in built] == [*LINES, "", "", LINES[0]]
    assert [bool(prompt.unwritten) for prompt in built if not prompt.gap] == [True, False]
    assert [prompt.seed for prompt in built] == [None] * 6 + [6]
    assert built[6].temperature == 0.8
    assert built[0].messages != built[1].messages
    assert LINES[1] not in built[1].messages[0].text


def test_another_model_begins_with_the_same_lines() -> None:
    events: list[Event] = [opened(), asked(), *FAILING, *begun("small")]
    events += drawn(prompt_of(events, FILLER.model_copy(update={"name": "small"}), ()))
    events += begun("coder", number=2)
    assert left_out(prompt_of(events, FILLER, ())) == LINES[0]


def test_many_lines_come_after_the_function_was_written_anew() -> None:
    many = FILE.replace(
        "    return found", "    found = found + 1\n" * search.FEW + "    return found"
    )
    built = asked_for(FILLER, 2, many)
    assert bool(built[0].unwritten)
    assert left_out(built[1]) == LINES[0]


def test_a_model_that_cannot_fill_in_is_asked_for_files() -> None:
    assert not any(
        left_out(prompt) for prompt in asked_for(FILLER.model_copy(update={"infill": False}), 4)
    )


def test_where_nothing_can_be_put_back_or_the_tests_take_long_files_are_asked_for() -> None:
    slow = [
        fact.model_copy(update={"seconds": 61.0}) if isinstance(fact, ToolRan) else fact
        for fact in FAILING
    ]
    nowhere = asked().model_copy(update={"snapshot": None})
    for start in ([opened(), nowhere, *FAILING], [opened(), asked(), *slow]):
        assert prompt_of([*start, *begun()], FILLER, ()).gap is None
    assert prompt_of([opened(), asked(), *FAILING, *begun()], FILLER, ()).gap is not None


def test_all_lines_are_one_draw(next_step: Next) -> None:
    events: list[Event] = [opened(), asked(), *FAILING, *begun()]
    for line in LINES:
        assert next_step(events, FILLER) == RequestReply()
        prompt = prompt_of(events, FILLER, ())
        assert left_out(prompt) == line
        draw = drawn(prompt, changes=line != LINES[1])
        assert next_step([*events, *draw[:-1]], FILLER) == RollBackAttempt(
            "the tests failed" if line != LINES[1] else "nothing was changed"
        )
        events += draw
    assert next_step(events, FILLER) == TurnClosed()
    assert next_step(events, FILLER.model_copy(update={"attempts": 2})) == RequestReply()


def test_a_line_that_passes_ends_the_turn(next_step: Next) -> None:
    events: list[Event] = [opened(), asked(), *FAILING, *begun()]
    prompt = prompt_of(events, FILLER, ())
    draw = drawn(prompt)
    events += [draw[0], *ran(1, write("w1"), path="a.py"), *checked(1, ok=True)]
    assert next_step(events, FILLER) == TurnClosed()


def test_what_was_filled_in_is_kept_in_the_log() -> None:
    gap = asked_for(FILLER, 1)[0].gap
    assert gap is not None
    assert Replied(turn=1, agent="coder", filled=gap.place).filled == "a.py:3"


def test_what_was_asked_for_before_something_else_was_mended_is_not_asked_for_again() -> None:
    events: list[Event] = [opened(), asked(), *FAILING, *begun()]
    for _ in LINES:
        events += drawn(prompt_of(events, FILLER, ()))
    elsewhere = write("w9", "b.py")
    other = replied(1, "coder", "", elsewhere).model_copy(update={"aimed": "b.py"})
    events += [other, *ran(1, elsewhere, path="b.py"), *FAILING, *begun(number=2)]
    prompt = prompt_of(events, FILLER, ())
    assert prompt.unwritten, "its lines were all tried, and the file is as it was"
    events = [*events[: -len(begun())], *begun(number=2, file=FILE.replace("total", "sum_of"))]
    assert left_out(prompt_of(events, FILLER, ())) == LINES[0], "now it is another file"
