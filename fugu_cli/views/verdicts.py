"""What a Verifier said, what speaks against the work, and whose work counts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from fugu_cli.events import Event, Role
from fugu_cli.views.acceptance import checks, unmet
from fugu_cli.views.outcome import regressed
from fugu_cli.views.turns import Turn, interrupted_calls, turns

Verdict = Literal["ACCEPT", "REVISE"]
_MARKS = r"[\s*_#>`\"'“”‘’(\[•–—✅✔☑\uFE0F-]*"
_LEADING = re.compile(
    rf"{_MARKS}(?:verdict\s*[:=]?{_MARKS})?(accept|revise|reject)(?:ed)?(?:\b|(?=_+(?:\W|$)))", re.IGNORECASE
)
_SUGGESTED = re.compile(r"<suggested_role>\s*(worker|verifier|solver)\s*</suggested_role>", re.IGNORECASE)


def verdict_of(text: str) -> Verdict:
    """By the leading word, else the only one of the words anywhere, else REVISE. REJECT counts as REVISE.

    Case-insensitive, `ACCEPTED` too; marks of emphasis, headings, lists, quotes, and a `Verdict:` label before the
    leading word do not count.
    """
    lead = _LEADING.match(text)
    if lead:
        return "ACCEPT" if lead.group(1).lower() == "accept" else "REVISE"
    words = {word.lower() for word in re.findall(r"\b(accept|revise|reject)\b", text, re.IGNORECASE)}
    return "ACCEPT" if words == {"accept"} else "REVISE"


def leads_with_accept(text: str) -> bool:
    """The beginning of a text, which may be in the middle of a word, leads with ACCEPT, whatever follows."""
    lead = _LEADING.match(text)
    return lead is not None and lead.end() < len(text) and lead.group(1).lower() == "accept"


def verdict(events: Sequence[Event], turn: Turn) -> Verdict | None:
    """A closed Verifier turn's verdict; None for other turns. What speaks against the work turns ACCEPT into REVISE."""
    if turn.assigned.role != "verifier" or not turn.replies:
        return None
    return "REVISE" if against(events) else verdict_of(turn.text)


def suggested_role(turn: Turn) -> Role | None:
    """A Thinker's valid suggestion for the next turn's role, which overrides the head's (arXiv 2512.04695)."""
    if turn.assigned.role != "thinker":
        return None
    found = _SUGGESTED.findall(turn.text)
    if not found:
        return None
    return "verifier" if found[-1].lower() == "verifier" else "worker"


def against(events: Sequence[Event]) -> str:
    """Why no verdict can accept the work as it is; "" where a Verifier decides."""
    if regressed(events):
        return "tests that passed before fail now"
    failing = unmet(events)
    if not failing:
        return ""
    if failing[0].suite:
        return "the tests must pass and do not"
    return f"an acceptance check fails: {failing[0].command}"


def taken(events: Sequence[Event]) -> list[Turn]:
    """The turns whose work counts: those that neither failed nor were interrupted, and of a Worker's cut turns those
    that changed something, where there are acceptance checks and all of them pass."""
    done = bool(checks(events)) and not unmet(events)

    def counts(turn: Turn) -> bool:
        if not (turn.failed or turn.interrupted):
            return True
        return done and turn.assigned.role == "worker" and bool(turn.changes or interrupted_calls(turn))

    return [turn for turn in turns(events) if counts(turn)]


def has_worker_answer(events: Sequence[Event]) -> bool:
    """A Worker of the request came to its last word, or changed something, as a killed call may have."""
    worked = (turn for turn in taken(events) if turn.assigned.role == "worker")
    return any(turn.concluded or turn.changes or interrupted_calls(turn) for turn in worked)
