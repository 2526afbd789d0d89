"""Results that answers end with, and the verdict of a Verifier that has worked one out unseen."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fugu_cli import prompts, views
from fugu_cli.coordinators import masks, stopping
from fugu_cli.events import Event
from fugu_cli.loop import context
from fugu_cli.messages import FromUser
from tests.facts import SMALL, asked, assigned, checked, opened, ran, replied, write

START = [opened(), asked("What is 40 + 2?", judged=False, command=None), assigned(1, "coder")]
WORKED = "40 and 2 are 42.\nAnswer: 42"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Answer: 42", "42"),
        ("So the final answer is: **$1,004.00**.", "$1,004.00"),
        ("2 + 2 = 4\n\n**Answer:** 4 apples", "4 apples"),
        ("Answer: 3\nNo, wait.\nAnswer: -4", "-4"),
        ("It is \\boxed{7}.", "7"),
        ("7 apples\n#### 1004\n", "1004"),
        ("Answer: \\[ \\boxed{12} \\]", "12"),
        ("Answer: yes", "yes"),
        ("so 3 x 5 = $15. Answer: 15", "15"),
        ("Answer: The company pays a total of $120000 to its employees.", "$120000"),
        ("Answer: it is on line 3 of calc.py, below the imports", None),
        ("Answer: it takes from 3 to 5 of them to do this", None),
        ("The answer is in the file `a.py`, where it is read from the disk.", None),
        ("That makes 42.", None),
        ("I will answer: it depends on what you want from it", None),
        ("", None),
    ],
)
def test_the_result_that_an_answer_names(answer: str, expected: str | None) -> None:
    assert views.result_of(answer) == expected


def test_results_are_the_same_as_numbers_or_as_words() -> None:
    assert views.same("$1,004.00", "1004 dollars")
    assert views.same("Yes.", "yes")
    assert not views.same("4", "5")
    assert not views.same("yes", "no")
    assert not views.same("4", "four")
    assert not views.same(f"{2**100}", f"{2**100 + 1}")
    assert views.number("between 3 and -4.50") == Decimal("-4.5")
    assert views.number("none") is None


def brief(events: list[Event]) -> str:
    last = context.prompt(events, SMALL, ()).messages[-1]
    assert isinstance(last, FromUser)
    return last.text


@pytest.mark.parametrize(
    ("own", "verdict"), [("It is 42.\nAnswer: 42.0", "ACCEPT"), ("Answer: 41", "REVISE"), ("ACCEPT", "REVISE")]
)
def test_a_small_verifier_works_the_result_out_unseen_and_the_two_are_compared(own: str, verdict: str) -> None:
    events: list[Event] = [*START, replied(1, "coder", WORKED), assigned(2, "small", "verifier")]
    prompt = context.prompt(events, SMALL, ())
    assert "42" not in brief(events)
    assert brief(events).endswith(prompts.load("brief/verifier_unseen"))
    assert (prompt.temperature, prompt.seed) == (0.8, context.UNSEEN + 2)
    events.append(replied(2, "small", own))
    assert views.verdict(events, views.turns(events)[-1]) == verdict
    end = stopping.stop(events, turns=5, verify_answers=True)
    assert (end is not None and end.reason == "accepted") == (verdict == "ACCEPT")
    assert bool(masks.roles_out(events)) == (verdict == "REVISE")
    events.append(assigned(3, "small"))
    assert "colleague" not in brief(events)
    events += [replied(3, "small", "Answer: 41"), assigned(4, "coder", "verifier"), replied(4, "coder", "Answer: 7")]
    assert views.verdict(events, views.turns(events)[-1]) == ("ACCEPT" if own == "Answer: 41" else "REVISE")


def test_what_a_later_verifier_comes_to_does_not_change_an_earlier_verdict() -> None:
    events = [*START, replied(1, "coder", WORKED), assigned(2, "small", "verifier"), replied(2, "small", "Answer: 41")]
    events += [assigned(3, "small", "verifier"), replied(3, "small", "Answer: 42")]
    assert [views.verdict(events, turn) for turn in views.turns(events)] == [None, "REVISE", "ACCEPT"]


def test_what_is_no_result_or_was_tested_is_judged_as_it_stands() -> None:
    words = [*START, replied(1, "coder", "It adds them."), assigned(2, "small", "verifier")]
    assert "It adds them." in brief(words)
    assert views.verdict([*words, replied(2, "small", "ACCEPT")], views.turns(words)[-1]) is None
    native = [*START, replied(1, "coder", WORKED), assigned(2, "strong", "verifier"), replied(2, "strong", "ACCEPT")]
    assert views.verdict(native, views.turns(native)[-1]) == "ACCEPT"
    changed = [*START, replied(1, "coder", WORKED, write("w")), *ran(1, write("w"), path="a.py")]
    changed += [assigned(2, "small", "verifier"), replied(2, "small", "ACCEPT")]
    assert views.verdict(changed, views.turns(changed)[-1]) == "ACCEPT"
    judged = [opened(), asked(), *checked(0, ok=True), assigned(1, "coder"), replied(1, "coder", WORKED)]
    judged += [assigned(2, "small", "verifier"), replied(2, "small", "ACCEPT")]
    assert views.verdict(judged, views.turns(judged)[-1]) == "ACCEPT"
