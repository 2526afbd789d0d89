"""Stopping: its rules, one by one."""

import pytest

from fugu_cli.coordinators.action_space import request_end
from fugu_cli.session.events import Event, Failed, Finished, Interrupted
from fugu_cli.session.state import SessionState
from tests.facts import POOL, asked, assigned, checked, opened, ran, replied, rolled_back, write

BROKEN = [opened(), asked(), *checked(0, ok=False)]


def worked(turn: int, *, ok: bool) -> list[Event]:
    """A Worker's turn that changed a file, and the tests after it."""
    call = write(f"c{turn}")
    return [
        assigned(turn, "small"), replied(turn, "small", "", call), *ran(turn, call, path="a.py"),
        *checked(turn, ok=ok),
    ]  # fmt: skip


def verified(turn: int, text: str) -> list[Event]:
    return [assigned(turn, "coder", "verifier"), replied(turn, "coder", text)]


def said(turn: int, text: str) -> list[Event]:
    return [assigned(turn, "small"), replied(turn, "small", text)]


def end(events: list[Event], *, turns: int = 5, verify: bool = False) -> str | None:
    found = request_end(SessionState(events), turns=turns, verify_answers=verify)
    return found.reason if found else None


def test_a_request_nobody_worked_on_goes_on() -> None:
    assert end([opened(), asked()]) is None


def test_an_accept_ends_the_request() -> None:
    events = [*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT: right")]
    found = request_end(SessionState(events), turns=5, verify_answers=False)
    assert found == Finished(
        reason="accepted", message="verified by coder", accepted_by="verifier", judge="coder"
    )


def test_an_accept_of_a_verifier_that_was_cut_or_failed_is_none() -> None:
    accepted = [*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT")]
    assert end([*accepted, Interrupted(turn=2)]) is None
    assert end([*accepted, Failed(turn=2, what="coder", kind="network", message="reset")]) is None


@pytest.mark.parametrize("text", ["REVISE: wrong", "REJECT", "I cannot tell", ""])
def test_any_other_verdict_goes_on(text: str) -> None:
    assert end([*BROKEN, *worked(1, ok=True), *verified(2, text)]) is None


def test_no_accept_stands_while_the_tests_that_decide_fail() -> None:
    assert end([*BROKEN, *worked(1, ok=False), *verified(2, "ACCEPT")]) is None


def test_no_accept_stands_on_tests_that_were_run_before_the_last_change() -> None:
    call = write("late", "b.py")
    late = [
        assigned(2, "coder", "verifier"),
        replied(2, "coder", "", call),
        *ran(2, call, path="b.py"),
    ]
    assert end([*BROKEN, *worked(1, ok=True), *late, replied(2, "coder", "ACCEPT")]) is None


def test_failing_tests_that_the_request_is_not_about_do_not_stop_an_accept() -> None:
    start = [opened(), asked("rename a to b", judged=False)]
    assert end([*start, *worked(1, ok=False), *verified(2, "ACCEPT")]) == "accepted"


def test_failing_tests_that_failed_before_do_not_stop_an_accept_and_those_that_passed_do() -> None:
    start: list[Event] = [opened(), asked("rename a to b", judged=False)]
    broke = [*worked(1, ok=False), *verified(2, "ACCEPT")]
    assert end([*start, *checked(0, ok=False), *broke]) == "accepted"
    assert end([*start, *checked(0, ok=True), *broke]) is None
    found = request_end(
        SessionState([*start, *checked(0, ok=True), *broke]), turns=2, verify_answers=False
    )
    assert (
        found is not None
        and "without an accepted result. Tests that passed before fail now." in found.message
    )


def test_an_accept_without_any_work_is_none() -> None:
    assert end([opened(), asked(judged=False, command=None), *verified(1, "ACCEPT")]) is None


def test_an_answer_that_changed_nothing_ends_the_request() -> None:
    start = [opened(), asked("what does a.py do?", judged=False)]
    assert end([*start, *said(1, "It adds numbers.")]) == "answered"
    assert end([*start, *said(1, "It adds numbers.")], verify=True) is None


def test_an_empty_answer_is_none() -> None:
    assert end([opened(), asked("what?", judged=False), *said(1, "  ")]) is None


def test_an_answer_does_not_end_a_request_while_a_check_of_the_users_fails() -> None:
    assert end([*BROKEN, *said(1, "All is well.")]) is None
    start: list[Event] = [opened(), asked(judged=False), *checked(0, ok=False)]
    assert end([*start, *said(1, "They fail because add() subtracts.")]) == "answered", (
        "no test forbids an answer"
    )


def test_an_answer_ends_a_request_whose_tests_pass_already() -> None:
    assert (
        end([opened(), asked(), *checked(0, ok=True), *said(1, "They pass already.")]) == "answered"
    )


def test_draws_that_were_all_rolled_back_are_no_answer() -> None:
    call = write("c1")
    draw = [
        replied(1, "coder", "", call),
        *ran(1, call, path="a.py"),
        *checked(1, ok=False),
        rolled_back(1),
    ]
    assert end([*BROKEN, assigned(1, "coder"), *draw]) is None


def test_the_turn_limit_is_said_as_such() -> None:
    events = [*BROKEN, *worked(1, ok=False), *worked(2, ok=False)]
    assert request_end(SessionState(events), turns=2, verify_answers=False) == Finished(
        reason="turn_limit",
        message="stopped after 2 turns without an accepted result. The tests must pass and do not. "
        "`fugu run --continue` goes on from here.",
    )


def test_a_request_that_was_opened_again_gets_its_turns_once_more() -> None:
    stopped = [
        *BROKEN,
        *worked(1, ok=False),
        *worked(2, ok=False),
        Finished(reason="turn_limit"),
        opened(),
    ]
    assert end(stopped, turns=2) is None
    assert end([*stopped, *worked(3, ok=False)], turns=2) is None
    assert end([*stopped, *worked(3, ok=False), *worked(4, ok=False)], turns=2) == "turn_limit"


def test_an_accept_in_the_last_turn_still_counts() -> None:
    assert end([*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT")], turns=2) == "accepted"


def test_turns_that_failed_or_were_interrupted_do_not_count() -> None:
    failed = [assigned(1, "small"), Failed(turn=1, what="small", kind="network", message="reset")]
    cut = [assigned(2, "coder"), Interrupted(turn=2)]
    assert end([*BROKEN, *failed, *cut, *worked(3, ok=False)], turns=2) is None


def test_a_pool_that_failed_as_a_whole_ends_the_request() -> None:
    failed: list[Event] = []
    for turn, member in enumerate(POOL, start=1):
        failed += [
            assigned(turn, member.name),
            Failed(turn=turn, what=member.name, kind="refused", message="401"),
        ]
    found = request_end(SessionState([*BROKEN, *failed]), turns=5, verify_answers=False)
    assert found == Finished(
        reason="failed",
        message="all models are unavailable (small: refused: 401; coder: refused: 401; strong: refused: 401). "
        "`fugu login` keeps another key.",
    )
    assert end([*BROKEN, *failed[:4]]) is None
