"""Functions in which a change has mended some of the tests that broke there."""

from __future__ import annotations

import pytest
from fugu_cli.loop.half_mended import Left

from fugu_cli.events import Event, Replied
from fugu_cli.loop import context, half_mended
from fugu_cli.messages import Call
from tests.facts import CODER, asked, assigned, opened, ran, replied, write

FILE = 'def first(x):\n    return x\n\n\ndef aligned(rows):\n    """Rows as lines."""\n    return rows.add(1)\n'
OTHER = 'def as_text(x):\n    """A text."""\n    return x\n'
TWICE = "a.py:7: AttributeError\ntests/test_a.py:3:\na.py:7: AttributeError\n2 failed, 5 passed"
ONCE = "assert as_text(1) == 2\ntests/test_b.py:6: AssertionError\n1 failed, 6 passed"


def suite(turn: int, output: str, *, ok: bool = False) -> list[Event]:
    return ran(turn, Call(id=f"t{turn}", tool="run_tests"), output, ok=ok, by="evidence")


def reading(turn: int, **files: str) -> list[Event]:
    calls = [
        (Call.make(f"e{turn}-{path}", "read", path=f"{path}.py", plain=True), text) for path, text in files.items()
    ]
    return [fact for call, text in calls for fact in ran(turn, call, text, by="evidence")]


def changed(before: str, after: str, path: str = "a.py", file: str = FILE) -> list[Event]:
    """A request whose first turn changed the file, which was kept."""
    events: list[Event] = [opened(), asked(), *suite(0, before), assigned(1, "coder"), *reading(1, a=file)]
    return [*events, replied(1, "coder", "", write("w")), *ran(1, write("w"), path=path), *suite(1, after)]


def test_where_more_tests_broke_than_pass_since_the_function_is_still_to_blame() -> None:
    assert half_mended.left(changed(TWICE, ONCE)) == (Left(path="a.py", function="aligned"),)


@pytest.mark.parametrize(
    ("before", "after", "path", "file"),
    [
        (TWICE, "other.py:1: TypeError\n0 failed, 7 passed", "a.py", FILE),
        ("a.py:7: AttributeError\n2 failed", ONCE, "a.py", FILE),
        (TWICE, ONCE, "b.py", FILE),
        (TWICE, ONCE, "tests/test_a.py", FILE),
        (TWICE, "it broke", "a.py", FILE),
        (TWICE, ONCE, "a.py", "def aligned(:"),
        (TWICE.replace("a.py:7", "a.py:4"), ONCE, "a.py", FILE),
    ],
    ids=["all pass", "as many fail less", "another file", "a test", "nobody counts", "no Python", "no function"],
)
def test_otherwise_nobody_is(before: str, after: str, path: str, file: str) -> None:
    assert half_mended.left(changed(before, after, path, file)) == ()


def test_nor_where_a_word_was_put_right() -> None:
    events = [
        event.model_copy(update={"filled": "a.py:7:12"}) if isinstance(event, Replied) else event
        for event in changed(TWICE, ONCE)
    ]
    assert half_mended.left(events) == ()


def test_nor_where_nothing_was_changed_or_the_tests_pass() -> None:
    assert half_mended.left([opened(), asked(), *suite(0, TWICE), assigned(1, "coder")]) == ()
    assert half_mended.left(changed(TWICE, "3 passed")[:-1] + suite(1, "7 passed", ok=True)[1:]) == ()


def test_files_and_functions_are_looked_for_in_what_the_tests_print_and_in_what_is_left() -> None:
    events = changed(TWICE, ONCE)
    run = context.views.tests(events)
    assert half_mended.told(run, half_mended.left(events)) == f"{ONCE}\na.py aligned()"
    assert half_mended.told(None, ()) == ""


def test_the_next_turn_writes_it_anew_before_it_looks_elsewhere() -> None:
    events = [*changed(TWICE, ONCE), assigned(2, "coder"), *reading(2, a=FILE.replace("add", "append"), b=OTHER)]
    writer = CODER.model_copy(update={"protocol": "text", "infill": True})
    prompt = context.prompt(events, writer, ())
    assert prompt.unwritten
    assert prompt.target == "a.py"
    assert prompt.aimed == "a.py:5 aligned anew"
