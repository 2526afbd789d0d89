"""Which changes stand although tests fail since, and which tests that were to follow are gone."""

import pytest

from fugu_cli import views
from fugu_cli.events import Event
from fugu_cli.loop import outdated
from fugu_cli.messages import Call
from tests.facts import asked, assigned, checked, opened, ran, replied, write

ASKED = "change the rate to 7 and update the tests"
WRONG = "E  AssertionError: assert 7 == 19\ntest_a.py:2: AssertionError\ntest_b.py:5: AssertionError\n"


def suite(turn: int, output: str) -> list[Event]:
    return ran(turn, Call(id=f"t{turn}", tool="run_tests"), output, ok="failed" not in output, by="evidence")


def worked(turn: int, path: str, output: str) -> list[Event]:
    call = write(f"c{turn}", path)
    return [
        assigned(turn, "small"),
        replied(turn, "small", "", call),
        *ran(turn, call, path=path),
        *suite(turn, output),
    ]


def found(*events: Event, text: str = ASKED) -> tuple[bool, bool, tuple[str, str] | None]:
    log = [opened(), asked(text), *checked(0, ok=True), *events]
    turn = views.turns(log)[-1]
    return outdated.stands(log, turn), outdated.fewer(log, turn), outdated.target(log)


CODE = worked(1, "a.py", f"{WRONG}2 failed, 1 passed")


@pytest.mark.parametrize(
    ("path", "output", "text", "stands"),
    [
        ("a.py", f"{WRONG}2 failed, 1 passed", ASKED, True),
        ("a.py", f"{WRONG}2 failed, 1 passed", "change the rate to 7", False),
        ("a.py", "NameError: rate\ntest_a.py:2: NameError\n1 failed, 2 passed", ASKED, False),
        ("a.py", "2 failed, 1 passed", ASKED, False),
        ("test_a.py", f"{WRONG}2 failed, 1 passed", ASKED, False),
    ],
)
def test_code_stands_that_tests_contradict_by_what_they_expect(path: str, output: str, text: str, stands: bool) -> None:
    now = found(*worked(1, path, output), text=text)
    assert now == (stands, False, ("test_b.py", "5") if stands else None)


def test_a_test_stands_after_which_fewer_fail_unless_it_is_gone() -> None:
    one_left = "assert 7 == 19\ntest_a.py:2: AssertionError\n1 failed, "
    assert found(*CODE, *worked(2, "test_b.py", f"{one_left}2 passed")) == (True, False, ("test_a.py", "2"))
    assert found(*CODE, *worked(2, "test_b.py", f"{one_left}1 passed"))[1]
    assert found(*CODE, *worked(2, "test_b.py", "2 passed"))[1]
    assert found(*CODE, *worked(2, "test_b.py", "3 passed")) == (False, False, None)
