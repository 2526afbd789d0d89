"""The progress of a small model's turn, read from its own calls and their results.

The conversation is the only memory, so after a crash the agent continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message
from fugu_cli.providers.history import arguments_object
from fugu_cli.session.recognized_tests import failed_count, passed_count

TRIED = "Tried "
"""The beginning of the line that a reply says for each candidate."""


@dataclass
class TurnProgress:
    """The files that were read, how they were changed, and how the tests stand."""

    original: dict[str, str] = field(default_factory=dict)
    """Path to content of each file, as it was read."""
    kept: dict[str, str] = field(default_factory=dict)
    """The same with the changes after which fewer tests fail."""
    present: dict[str, str] = field(default_factory=dict)
    """The same as it stands now, with the change that was tried last."""
    unreadable: set[str] = field(default_factory=set)
    searches: list[tuple[str, str]] = field(default_factory=list)
    """The tool (glob or grep) and what it printed, in order."""
    test_output: str | None = None
    """The output of the tests on `kept`; None before they ran."""
    tests_pass: bool = False
    failing: int | None = None
    """The number of tests that fail on `kept`, None where it is not known."""
    replies: int = 0
    runs: int = 0
    """Runs of the tests after the first one."""
    tried: int = 0
    """The candidates that were tried on `kept`, those without a change included."""
    tested: set[tuple[str, str]] = field(default_factory=set)
    """Path and content of every change that was tried."""
    refused: str = ""
    """Why the newest change or run was not made."""
    is_stuck: bool = False
    """More than one change was refused: nothing is tried any more, nor taken back."""
    wrote: list[str] = field(default_factory=list)
    """Paths that were written whole."""


def progress_of(messages: Sequence[Message]) -> TurnProgress:
    """Return the progress of the turn at the end of `messages`: of the calls after the last message
    of the user.
    """
    progress = TurnProgress()
    calls: dict[str, Call] = {}
    begun = [index for index, message in enumerate(messages) if isinstance(message, FromUser)]
    for message in messages[begun[-1] + 1 if begun else 0 :]:
        if isinstance(message, FromAgent):
            progress.tried += sum(line.startswith(TRIED) for line in message.text.split("\n"))
            progress.replies += 1
            calls.update({call.id: call for call in message.calls})
        elif isinstance(message, FromTool) and message.call in calls:
            _add(progress, calls[message.call], message)
    return progress


def _add(progress: TurnProgress, call: Call, result: FromTool) -> None:
    arguments = arguments_object(call.arguments) or {}
    path = str(arguments.get("path", ""))
    match call.tool:
        case "read" if path in progress.original:
            pass  # read again
        case "read" if result.ok:
            for files in (progress.original, progress.kept, progress.present):
                files[path] = result.text
        case "read":
            progress.unreadable.add(path)
        case "glob" | "grep":
            progress.searches.append((call.tool, result.text))
        case "edit" if result.ok:
            old, new = str(arguments.get("old")), str(arguments.get("new"))
            progress.present[path] = progress.present[path].replace(old, new, 1)
            progress.tested.add((path, progress.present[path]))
        case "write" if result.ok:
            progress.wrote.append(path)
        case "edit" | "write":
            progress.is_stuck = bool(progress.refused)
            progress.refused = result.text
        case "run_tests":
            if result.text.startswith("Not allowed"):
                progress.refused = result.text
            else:
                failing, passing = failed_count(result.text), passed_count(result.text) or 0
                is_first = progress.test_output is None
                before = progress.failing
                is_better = failing is not None and before is not None and failing < before
                # what most tests refuse is not built on
                if is_first or result.ok or (is_better and passing >= (failing or 0)):
                    progress.test_output, progress.tests_pass = result.text, result.ok
                    progress.failing = failing
                    progress.kept = dict(progress.present)
                    progress.tried = 0
                if not is_first:
                    progress.runs += 1


def call(number: int, tool: str, **arguments: object) -> Call:
    """Return a call of the reply; the log gives it another id."""
    return Call(id=f"call_{number}", tool=tool, arguments=json.dumps(arguments, ensure_ascii=False))
