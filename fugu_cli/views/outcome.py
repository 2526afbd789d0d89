"""What came of it: how the tests stand, what the Verifier said, what was changed and answered. Pure folds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fugu_cli.events import (
    EVIDENCE,
    Assigned,
    Change,
    Event,
    Made,
    Merged,
    Permitted,
    Replied,
    Role,
    ToolRan,
    Undone,
    net,
)
from fugu_cli.messages import Call
from fugu_cli.views.counts import none_there
from fugu_cli.views.turns import Turn, asked, baseline, effective, interrupted_calls, turns
from fugu_cli.views.workflow import said, speaking

Verdict = Literal["ACCEPT", "REVISE"]
RUN_TESTS = "run_tests"
TRY_ANSWER = "try_answer"
CHECKS = frozenset({RUN_TESTS, TRY_ANSWER})
"""What decides about a request: the project's tests, or the assertions of a question."""
_MARKS = r"[\s*_#>`\"'“”‘’(\[•–—✅✔☑\uFE0F-]*"
_LEADING = re.compile(
    rf"{_MARKS}(?:verdict\s*[:=]?{_MARKS})?(accept|revise|reject)(?:ed)?(?:\b|(?=_+(?:\W|$)))", re.IGNORECASE
)


@dataclass(frozen=True)
class TestRun:
    """The newest result of the project's tests, and whether files changed since."""

    __test__ = False

    ok: bool
    output: str
    stale: bool
    turn: int

    @property
    def passes(self) -> bool:
        """There are tests, they passed, and nothing was changed since."""
        return self.ok and not self.stale and not self.empty

    @property
    def empty(self) -> bool:
        """It found no tests."""
        return none_there(self.output)


def tests(events: Sequence[Event]) -> TestRun | None:
    """The newest finished run of all tests in the newest request, or trial of an answer. `stale`: something was changed
    after it, or answered.

    A call that was started and killed may have changed anything. A run of some tests, or one that was asked for in a
    way the tool does not understand, says nothing of the rest.
    """
    request = asked(events)
    tries = request is not None and bool(request.assertions)
    deciding = TRY_ANSWER if tries else RUN_TESTS
    newest: ToolRan | None = None
    stale = False
    killed: set[str] = set()
    working: set[int] = set()
    for event in effective(events):
        if isinstance(event, Permitted) and event.allowed and event.by != EVIDENCE:
            killed.add(event.call.id)
        elif isinstance(event, ToolRan) and event.call.tool == deciding and (tries or is_whole_run(event.call)):
            newest, stale, killed = event, False, set()
        elif isinstance(event, Assigned) and event.role == "worker":
            working.add(event.turn)
        elif isinstance(event, Replied) and tries:
            stale = stale or event.turn in working
        elif isinstance(event, ToolRan):
            stale = stale or bool(event.changes)
            killed.discard(event.call.id)
        elif isinstance(event, Merged):
            stale = stale or bool(event.changes)
        elif isinstance(event, Undone):
            stale, killed = True, set()
    return TestRun(newest.ok, newest.output, stale or bool(killed), newest.turn) if newest else None


def is_whole_run(call: Call) -> bool:
    """All tests were run: the call named no target."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return False
    return isinstance(arguments, dict) and not any(arguments[name] for name in arguments.keys() - {"seconds"})


def first_tests(events: Sequence[Event]) -> TestRun | None:
    """How the tests stood before the first turn, where they were run."""
    for run in baseline(events):
        if run.result is not None and run.result.call.tool == RUN_TESTS:
            return TestRun(run.result.ok, run.result.output, False, 0)
    return None


def regressed(events: Sequence[Event]) -> bool:
    """The tests passed before the first turn and fail now, whatever the request is about."""
    first, run = first_tests(events), tests(events)
    return first is not None and first.passes and run is not None and not run.ok


def judged_by_tests(events: Sequence[Event]) -> bool:
    """The request is about the tests: they decide. Otherwise those that failed before are shown and decide nothing;
    the ones that passed must go on to (`regressed`).

    Nor do tests decide that were not there and are not: where pytest finds none it fails; unittest before Python 3.12,
    cargo, go and node pass.
    """
    first = asked(events)
    if first is not None and first.assertions:
        return True
    if first is None or not first.judged or first.test_command is None:
        return False
    return not all(run is not None and run.empty for run in (first_tests(events), tests(events)))


def tests_to_tell(events: Sequence[Event]) -> TestRun | None:
    """The newest run, for whoever is told a part of the log only: without it where the request is not about the tests
    and nothing was changed yet. Told of failures that were there before, they would mend those."""
    return tests(events) if judged_by_tests(events) or changes(events) else None


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


_SUGGESTED = re.compile(r"<suggested_role>\s*(worker|verifier|solver)\s*</suggested_role>", re.IGNORECASE)


def suggested_role(turn: Turn) -> Role | None:
    """A Thinker's valid suggestion for the next turn's role, which overrides the head's (arXiv 2512.04695)."""
    if turn.assigned.role != "thinker":
        return None
    found = _SUGGESTED.findall(turn.text)
    if not found:
        return None
    return "verifier" if found[-1].lower() == "verifier" else "worker"


def answer(events: Sequence[Event]) -> str:
    """The newest Worker's last words; where it only wrote files, which ones. Without any Worker, the newest reply."""
    turn = answered_by(events)
    return said(turn) if turn else ""


def answered_by(events: Sequence[Event]) -> Turn | None:
    """The turn whose words are the answer. None before the first reply."""
    spoken = [turn for turn in turns(events) if turn.replies]
    workers = [turn for turn in spoken if turn.assigned.role == "worker"]
    if not spoken:
        return None
    newest = (workers or spoken)[-1]
    planned = speaking(events) if newest.assigned.plan else None
    return planned or newest


def has_worker_answer(events: Sequence[Event]) -> bool:
    """Some Worker turn of the request came to its last word or changed something, as a killed call may have: before
    that there is nothing to verify. Of a turn that was cut what it left behind counts, where the tests that decide
    failed before and pass now."""
    worked = (turn for turn in taken(events) if turn.assigned.role == "worker")
    return any(turn.concluded or turn.changes or interrupted_calls(turn) for turn in worked)


def taken(events: Sequence[Event]) -> list[Turn]:
    """The turns whose work counts: those that neither failed nor were interrupted, and of a Worker's cut turns those
    that left something behind, where the tests that decide failed before and pass now."""
    first, run = first_tests(events), tests(events)
    mended = first is not None and not first.ok and run is not None and run.passes and judged_by_tests(events)

    def stands(turn: Turn) -> bool:
        if not (turn.failed or turn.interrupted):
            return True
        return mended and turn.assigned.role == "worker" and bool(turn.changes or interrupted_calls(turn))

    return [turn for turn in turns(events) if stands(turn)]


def changes(events: Sequence[Event]) -> dict[str, Change]:
    """Net changes of the newest request by path: the first `before` and the last `after`; undone ones are gone."""
    return net(_changes(events))


def beside(events: Sequence[Event]) -> dict[str, Change]:
    """Those of files that no snapshot holds."""
    return net(change for change in _changes(events) if change.beside)


def made(events: Sequence[Event]) -> Made:
    """What the newest request did to files, as one change for each; what was rolled back is gone."""
    attributes = [one for event in effective(events) if isinstance(event, ToolRan) for one in event.attributes]
    return Made(tuple(_changes(events)), tuple(attributes)).net


def _changes(events: Sequence[Event]) -> list[Change]:
    made = [event for event in effective(events) if isinstance(event, ToolRan | Merged)]
    return [change for event in made for change in event.changes]
