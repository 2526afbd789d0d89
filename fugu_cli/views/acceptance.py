"""Acceptance checks: commands that must pass before a request is accepted, and how each stands. Pure.

The user gives them (`--until`), or an agent sets one with the tool `acceptance_check`. They are only ever added. A
check whose command is the project's test command is the test suite: its newest whole run says how it stands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli.events import EVIDENCE, Asked, Event, Merged, Permitted, ToolRan, Undone
from fugu_cli.views.outcome import tests
from fugu_cli.views.turns import asked, effective

ACCEPTANCE_CHECK, RUN_CHECK = "acceptance_check", "run_check"
"""An agent's call that sets a check, which is ok where the check fails before the work; and fugu's runs of it after
that, which are ok where it passes."""
SETS = frozenset({ACCEPTANCE_CHECK, "reproduce"})
RUNS = frozenset({RUN_CHECK, "run_reproduction"})
"""With the names that logs of version 0.1.0 have."""


@dataclass(frozen=True)
class Check:
    """A check of the newest request. `arguments`: of the tool, as JSON text. `ok`: its newest run passed; `stale`: it
    has not run since files changed last. `suite`: it is the project's test suite."""

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
        given = json.loads(arguments)
    except ValueError:
        return ""
    return str(given.get("command", "")) if isinstance(given, dict) else ""


def checks(events: Sequence[Event]) -> tuple[Check, ...]:
    """The checks of the newest request, the user's first. A check that was killed in the middle is stale."""
    request = asked(events)
    if request is None:
        return ()
    found = {arguments: Check(arguments, "user") for arguments in map(_arguments, request.until)}
    changed = False
    open_calls: set[str] = set()
    own: set[str] = set()
    for event in effective(events):
        if isinstance(event, Permitted) and event.allowed:
            (own if event.by == EVIDENCE else open_calls).add(event.call.id)
        elif isinstance(event, ToolRan) and event.call.tool in RUNS:
            if (known := found.get(event.call.arguments)) is not None:
                found[event.call.arguments] = replace(known, output=event.output, ok=event.ok, stale=False)
        elif isinstance(event, ToolRan):
            open_calls.discard(event.call.id)
            if event.changes and event.call.id not in own:
                found, changed = _aged(found), True
            if event.call.tool in SETS and event.ok and event.call.arguments not in found:
                found[event.call.arguments] = Check(event.call.arguments, "agent", event.output, stale=changed)
        elif (isinstance(event, Merged) and event.changes) or isinstance(event, Undone):
            found, changed = _aged(found), True
    if open_calls:
        found = _aged(found)
    return tuple(_of_the_suite(events, check, request) for check in found.values())


def _arguments(command: str) -> str:
    return json.dumps({"command": command})


def _aged(found: dict[str, Check]) -> dict[str, Check]:
    return {arguments: replace(check, stale=True) for arguments, check in found.items()}


def _of_the_suite(events: Sequence[Event], check: Check, request: Asked) -> Check:
    if request.test_command is None or check.command != request.test_command:
        return check
    run = tests(events)
    if run is None:
        return replace(check, suite=True, ok=False, stale=True)
    return replace(check, suite=True, output=run.output, ok=run.ok and not run.empty, stale=run.stale)


def unmet(events: Sequence[Event]) -> tuple[Check, ...]:
    """The checks that do not pass on the files as they are, or have not run on them."""
    return tuple(check for check in checks(events) if not check.passes)


def suite_decides(events: Sequence[Event]) -> bool:
    """The test suite is an acceptance check of the newest request."""
    return any(check.suite for check in checks(events))
