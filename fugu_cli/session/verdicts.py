"""Whether work is accepted: acceptance checks, the Verifier's verdict, and how the request
ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli.session.events import (
    EVIDENCE,
    USERS,
    Asked,
    Event,
    Finished,
    Merged,
    Permitted,
    Role,
    ToolRan,
    Undone,
)
from fugu_cli.session.outcome import (
    TestRun,
    changes,
    failing_unknown,
    has_regressions,
    regressions,
    tests,
    tests_before,
    tests_refused,
)
from fugu_cli.session.recognized_tests import passed_count
from fugu_cli.session.turns import (
    TASK,
    Turn,
    Verdict,
    asked,
    effective,
    finished,
    interrupted_calls,
    turns,
    verdict_of,
)
from fugu_cli.system.bounded_json import parse_json

ACCEPTANCE_CHECK, RUN_CHECK = "acceptance_check", "run_check"
"""An agent's call that sets a check, which is ok where the check fails before the work; and fugu's
runs of it after that, which are ok where it passes."""
CHECK_SETTERS = frozenset({ACCEPTANCE_CHECK, "reproduce"})
CHECK_RUNNERS = frozenset({RUN_CHECK, "run_reproduction"})
"""With the names that logs of version 0.1.0 have."""


@dataclass(frozen=True)
class CheckStatus:
    """A check of the newest request. `arguments`: of the tool, as JSON text. `ok`: its newest run
    passed; `stale`: it has not run since files changed last. `suite`: it is the project's test
    suite."""

    arguments: str
    by: Literal["user", "agent"]
    output: str = ""
    ok: bool = False
    stale: bool = True
    suite: bool = False

    @property
    def passes(self) -> bool:
        """It passes on the files as they are."""
        return self.ok and not self.stale

    @property
    def command(self) -> str:
        """The command line, "" for arguments that cannot be read."""
        return command_of(self.arguments)


def command_of(arguments: str) -> str:
    """The command line that the arguments of a check name; "" where they cannot be read."""
    try:
        given = parse_json(arguments)
    except ValueError:
        return ""
    return str(given.get("command", "")) if isinstance(given, dict) else ""


def checks(events: Sequence[Event]) -> tuple[CheckStatus, ...]:
    """The checks of the newest request, the user's first. A check that was killed in the middle is
    stale.
    """
    request = asked(events)
    if request is None:
        return ()
    until = (json.dumps({"command": command}) for command in request.until)
    found = {arguments: CheckStatus(arguments, "user") for arguments in until}
    changed = False
    open_calls: set[str] = set()
    own: set[str] = set()
    for event in effective(events):
        if isinstance(event, Permitted) and event.allowed and event.call.tool != TASK:
            (own if event.by == EVIDENCE else open_calls).add(event.call.id)
        elif isinstance(event, ToolRan) and event.call.tool in CHECK_RUNNERS:
            if (known := found.get(event.call.arguments)) is not None:
                found[event.call.arguments] = replace(
                    known, output=event.output, ok=event.ok, stale=False
                )
        elif isinstance(event, ToolRan):
            open_calls.discard(event.call.id)
            if event.changes and event.call.id not in own:
                found, changed = _aged(found), True
            if event.call.tool in CHECK_SETTERS and event.ok and event.call.arguments not in found:
                found[event.call.arguments] = CheckStatus(
                    event.call.arguments, "agent", event.output, stale=changed
                )
        elif (isinstance(event, Merged) and event.changes) or isinstance(event, Undone):
            found, changed = _aged(found), True
    if open_calls:
        found = _aged(found)
    return tuple(_of_the_suite(events, check, request) for check in found.values())


def _aged(found: dict[str, CheckStatus]) -> dict[str, CheckStatus]:
    return {arguments: replace(check, stale=True) for arguments, check in found.items()}


def _of_the_suite(events: Sequence[Event], check: CheckStatus, request: Asked) -> CheckStatus:
    if request.test_command is None or check.command != request.test_command:
        return check
    run = tests(events)
    if run is None:
        return replace(check, suite=True, ok=False, stale=True)
    return replace(
        check, suite=True, output=run.output, ok=run.ok and not run.empty, stale=run.stale
    )


def unmet_checks(events: Sequence[Event]) -> tuple[CheckStatus, ...]:
    """The checks that do not pass on the files as they are, or have not run on them."""
    return tuple(check for check in checks(events) if not check.passes)


def suite_decides(events: Sequence[Event]) -> bool:
    """The test suite is an acceptance check of the newest request."""
    return any(check.suite for check in checks(events))


_SUGGESTED = re.compile(
    r"<suggested_role>\s*(worker|verifier|solver)\s*</suggested_role>", re.IGNORECASE
)


def verdict(events: Sequence[Event], turn: Turn) -> Verdict | None:
    """A closed Verifier turn's verdict; None for other turns. What speaks against the work turns
    ACCEPT into REVISE.
    """
    if turn.assigned.role != "verifier" or not turn.replies:
        return None
    return "REVISE" if acceptance_blocker(events) else verdict_of(turn.text)


def suggested_role(turn: Turn) -> Role | None:
    """A Thinker's valid suggestion for the next turn's role, which overrides the head's (arXiv
    2512.04695).
    """
    if turn.assigned.role != "thinker":
        return None
    found = _SUGGESTED.findall(turn.text)
    if not found:
        return None
    return "verifier" if found[-1].lower() == "verifier" else "worker"


def acceptance_blocker(events: Sequence[Event]) -> str:
    """Why no verdict can accept the work as it is; "" where a Verifier decides."""
    if has_regressions(events):
        run = tests(events)
        if run is not None and run.unable:
            return "the tests could be run before this request and cannot be run now"
        return "tests that passed before fail now"
    if failing_unknown(events):
        return "tests fail, and it is not known whether they failed before"
    failing = unmet_checks(events)
    if not failing:
        return ""
    if failing[0].suite:
        return "the tests must pass and do not"
    return f"an acceptance check fails: {failing[0].command}"


def counted_turns(events: Sequence[Event]) -> list[Turn]:
    """The turns whose work counts: those that neither failed nor were interrupted, and of a
    Worker's cut turns those that changed something, where there are acceptance checks and all of
    them pass."""
    done = bool(checks(events)) and not unmet_checks(events)

    def counts(turn: Turn) -> bool:
        if not (turn.failed or turn.interrupted):
            return True
        return (
            done
            and turn.assigned.role == "worker"
            and bool(turn.changes or interrupted_calls(turn))
        )

    return [turn for turn in turns(events) if counts(turn)]


def has_worker_answer(events: Sequence[Event]) -> bool:
    """A Worker of the request came to its last word without giving up, or changed something, as a
    killed call may have.
    """
    worked = (turn for turn in counted_turns(events) if turn.assigned.role == "worker")
    return any(
        (turn.concluded and turn.unable is None) or turn.changes or interrupted_calls(turn)
        for turn in worked
    )


STOPPED_BY = {
    "unaccepted": "not accepted",
    "turn_limit": "stopped: turn limit",
    "budget": "stopped: budget",
    "time_limit": "stopped: time limit",
    "interrupted": "interrupted",
    "denied": "stopped: not allowed",
    "failed": "failed",
}


UNREACHABLE_HINT = "Check the network, HTTPS_PROXY, SSL_CERT_FILE and `base_url`."
"""The next step where no host of the pool can be reached."""
END_WORDS = {"accepted": "verified", "answered": "done", **STOPPED_BY}
"""One or two words for each reason of an end."""


@dataclass(frozen=True)
class EndLine:
    """`text` as in `verified by claude · 41 tests pass`. `tone`: warn where something still fails
    or is not known.
    """

    text: str
    tone: Literal["good", "warn", "bad"]


def end_line(events: Sequence[Event], end: Finished | None = None) -> EndLine:
    """One line on the end of the newest request. `end`: where the log does not say it yet."""
    end = end or finished(events)
    done, tone = _done(events, end)
    state, worse = _tests(events)
    parts = [done, state]
    if tone != "bad" and (refused := _refused(events)):
        parts.append(refused)
    if any(not check.suite for check in unmet_checks(events)):
        parts.append("an acceptance check fails")
        worse = True
    return EndLine(
        " · ".join(part for part in parts if part), "warn" if tone == "good" and worse else tone
    )


def _done(
    events: Sequence[Event], end: Finished | None
) -> tuple[str, Literal["good", "warn", "bad"]]:
    if end is None:
        return "not finished", "bad"
    if end.reason == "accepted":
        names = [turn.assigned.agent for turn in turns(events) if verdict(events, turn) == "ACCEPT"]
        return f"verified by {names[-1]}" if names else "verified", "good"
    if end.reason == "answered":
        return ("done, not verified", "warn") if changes(events) else ("done", "good")
    return STOPPED_BY[end.reason], "bad"


def _tests(events: Sequence[Event]) -> tuple[str, bool]:
    """How the tests stand, and whether that is a warning. Nothing where nothing was changed and
    nothing ran.
    """
    run = tests(events)
    if changes(events) and (refusal := tests_refused(events)):
        return refusal, True
    if run is None or run.empty:
        return ("no tests ran", False) if changes(events) else ("", False)
    if run.stale:
        return "the tests ran before the last change", True
    if run.unable:
        return run.unable, True
    if run.ok:
        count = (
            run.report.passed
            if run.report is not None and run.report.passed
            else passed_count(run.output)
        )
        return (
            f"{count} test{'s pass' if count != 1 else ' passes'}" if count else "the tests pass"
        ), False
    return _failing(events, run), True


def _failing(events: Sequence[Event], run: TestRun) -> str:
    """`2 tests fail that passed before`, `1 test still fails (it failed before)`, `3 tests
    fail`.
    """
    ids = regressions(events)
    if ids or has_regressions(events):
        return f"{_fail(len(ids) or None)} that passed before"
    before = tests_before(events)
    known = run.report is not None and run.report.by_id and set(run.report.failing) <= before.failed
    if known or (
        before.count is not None and run.failed is not None and run.failed <= before.count
    ):
        many = run.failed != 1
        return f"{_fail(run.failed, 'still ')} ({'they' if many else 'it'} failed before)"
    return _fail(run.failed)


def _fail(count: int | None, still: str = "") -> str:
    if not count:  # not known, or it is no test that fails: too little is covered
        return f"{'the tests' if still else 'tests'} {still}fail"
    return f"{count} test {still}fails" if count == 1 else f"{count} tests {still}fail"


def _refused(events: Sequence[Event]) -> str:
    """The calls that the user refused."""
    runs = (run.permitted for turn in turns(events) for run in turn.work if not run.evidence)
    count = sum(not judged.allowed and judged.by in USERS for judged in runs)
    return f"{count} call{'s' if count != 1 else ''} refused by you" if count else ""


def test_summary(events: Sequence[Event]) -> dict[str, object]:
    """The tests of the newest request for programs: `before` and `after` as counts, None where not
    known; ids of the tests that the request fixed, broke and removed."""
    run, before = tests(events), tests_before(events)
    after: dict[str, object] | None = None
    if run is not None and not run.stale:
        report = run.report
        passed = (
            report.passed if report is not None and report.passed else passed_count(run.output) or 0
        )
        after = {
            "ok": run.ok,
            "passed": passed,
            "failed": run.failed,
            "skipped": report.skipped if report else 0,
        }
        if run.unable:
            after["could_not_run"] = run.unable
    known = before.ok is not None or before.count is not None or bool(before.looked_up)
    failing = (
        set(run.report.failing)
        if run is not None and run.report is not None and not run.stale
        else None
    )
    return {
        "before": {"ok": before.ok, "failed": before.count} if known else None,
        "after": after,
        "fixed": sorted(before.failed - failing) if failing is not None else [],
        "broken": list(regressions(events)),
        "removed": list(before.removed),
    }
