"""What a Verifier said; and the result that an answer in words ends with, which a small one works out unseen. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from fugu_cli.events import Event
from fugu_cli.views.outcome import Verdict, changes, judged_by_tests, regressed, tests, verdict_of
from fugu_cli.views.reproductions import unmended
from fugu_cli.views.turns import Turn, asked, pool, turns

WORDS = 4
"""A result has no more of them."""
_NUMBER = re.compile(r"-?\$?\s?\d[\d,]*(?:\.\d+)?|-?\.\d+")
_MARKED = (
    re.compile(r"\\boxed\{([^{}]*)\}"),
    re.compile(
        r"(?:^|[.!?;)]\s)\W*?(?:(?:so|thus|therefore|hence),?\s+)?(?:the\s+)?(?:final\s+)?answer\s*(?:\bis\b\s*:?|[:=])\W*?(-?[\w$.(\[].*)",
        re.IGNORECASE | re.MULTILINE,
    ),
    re.compile(r"^####\s*(.+)", re.MULTILINE),
)


def number(text: str) -> Decimal | None:
    """The last number in a text; None where there is none."""
    found = _NUMBER.findall(text)
    return Decimal(re.sub(r"[$,\s]", "", found[-1])) if found else None


def result_of(answer: str) -> str | None:
    """The last short result that an answer says is its result ("Answer: 42", a box); None where it says none."""
    marks = [mark for pattern in _MARKED for mark in pattern.finditer(answer)]
    found = [(mark.start(1), _short(mark.group(1).strip("*`_. \t"))) for mark in marks]
    short = [(place, text) for place, text in found if text]
    return max(short)[1] if short else None


def _short(text: str) -> str:
    """A few words, or the one number of a sentence; "" for anything else."""
    if len(text.split()) <= WORDS:
        return text
    numbers = _NUMBER.findall(text)
    return numbers[0].strip() if len(numbers) == 1 and not re.search(r"[`/]|\.\w", text) else ""


def same(one: str, other: str) -> bool:
    """Two results are the same number, or the same words."""
    first, second = number(one), number(other)
    if first is not None and second is not None:
        return first == second
    return re.sub(r"\W+", " ", one).strip().casefold() == re.sub(r"\W+", " ", other).strip().casefold()


def unseen_result(events: Sequence[Event], turn: Turn) -> str | None:
    """What a small Verifier's own result is compared with, where it is to work one out and not to read the answer.

    Small models that are shown an answer accept it. None where the answer names no short result, where something was
    changed, where tests decide, and in a workflow, whose planner says what is to be read.
    """
    member = pool(events).get(turn.assigned.agent)
    if turn.assigned.role != "verifier" or turn.assigned.plan or member is None or member.protocol == "native":
        return None
    request = asked(events)
    if request is None or request.assertions or judged_by_tests(events) or changes(events):
        return None
    answers = [one.text for one in turns(events) if one.number < turn.number and one.assigned.role == "worker"]
    given = [text for text in answers if text.strip()]
    return result_of(given[-1]) if given else None


def verdict(events: Sequence[Event], turn: Turn) -> Verdict | None:
    """A closed Verifier turn's verdict; None for other turns. Failing tests turn an ACCEPT into REVISE where
    they judge the request or passed before it, and so does a failing reproduction; of a result that was to be worked
    out unseen it is whether this Verifier, or one before it, came to the same."""
    if turn.assigned.role != "verifier" or not turn.replies:
        return None
    run = tests(events)
    if unmended(events) or (run is not None and not run.ok and (judged_by_tests(events) or regressed(events))):
        return "REVISE"
    result = unseen_result(events, turn)
    if result is None:
        return verdict_of(turn.text)
    unseen = (one for one in turns(events) if one.number <= turn.number and unseen_result(events, one) is not None)
    own = [found for one in unseen if (found := result_of(one.text)) is not None]
    return "ACCEPT" if any(same(found, result) for found in own) else "REVISE"
