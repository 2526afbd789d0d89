"""Acceptance checks: commands of the user's or of an agent's that must pass in the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli.session.events import EVIDENCE, Event, Merged, Permitted, ToolRan, Undone
from fugu_cli.session.turns import TASK
from fugu_cli.system.bounded_json import parse_json

ACCEPTANCE_CHECK, RUN_CHECK = "acceptance_check", "run_check"
"""An agent's call that sets a check, which is ok where the check fails before the work; and fugu's
runs of it after that, which are ok where it passes."""


@dataclass(frozen=True)
class CheckStatus:
    """The state of an acceptance check of the newest request. `arguments` are those of the tool, as
    JSON text. `ok`: its newest run passed. `stale`: it has not run since files changed last.
    `suite`: it is the project's test suite.
    """

    arguments: str
    by: Literal["user", "agent"]
    output: str = ""
    ok: bool = False
    stale: bool = True
    suite: bool = False

    @property
    def passes(self) -> bool:
        """True if the check passes on the files as they are now."""
        return self.ok and not self.stale

    @property
    def command(self) -> str:
        """The command line; "" if the arguments cannot be read."""
        return command_of(self.arguments)


def command_of(arguments: str) -> str:
    """Return the command line in a check's arguments; "" if they cannot be read."""
    try:
        values = parse_json(arguments)
    except ValueError:
        return ""
    return str(values.get("command", "")) if isinstance(values, dict) else ""


class CheckFold:
    """Folds a request's events into its acceptance checks, the user's first."""

    def __init__(self, until: Sequence[str]) -> None:
        arguments = [json.dumps({"command": command}) for command in until]
        self._checks = {text: CheckStatus(text, "user") for text in arguments}
        self._files_changed = False
        self._open_calls: set[str] = set()
        self._evidence: set[str] = set()

    def add(self, event: Event) -> None:
        """Add the next event that led to the present working tree."""
        match event:
            case Permitted() if event.allowed and event.call.tool != TASK:
                calls = self._evidence if event.by == EVIDENCE else self._open_calls
                calls.add(event.call.id)
            case ToolRan() if event.call.tool == RUN_CHECK:
                check = self._checks.get(event.call.arguments)
                if check is not None:
                    self._checks[event.call.arguments] = replace(
                        check, output=event.output, ok=event.ok, stale=False
                    )
            case ToolRan():
                self._open_calls.discard(event.call.id)
                if event.changes and event.call.id not in self._evidence:
                    self._mark_stale()
                arguments = event.call.arguments
                is_check = event.call.tool == ACCEPTANCE_CHECK and event.ok
                if is_check and arguments not in self._checks:
                    self._checks[arguments] = CheckStatus(
                        arguments, "agent", event.output, stale=self._files_changed
                    )
            case Merged() if event.changes:
                self._mark_stale()
            case Undone():
                self._mark_stale()
            case _:
                pass

    def _mark_stale(self) -> None:
        self._files_changed = True
        self._checks = {
            arguments: replace(check, stale=True) for arguments, check in self._checks.items()
        }

    def checks(self) -> tuple[CheckStatus, ...]:
        """Return the checks. While a call runs, or was killed in the middle, all are stale."""
        checks = tuple(self._checks.values())
        if not self._open_calls:
            return checks
        return tuple(replace(check, stale=True) for check in checks)
