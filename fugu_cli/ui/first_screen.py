"""Reads what a new session shows: the folder's state, its recent sessions, requests that suit it,
the course of a request, and the budget.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.engine.session_rules import git_state
from fugu_cli.formatting import flatten, money
from fugu_cli.safety.paths import inside, is_file, real_path
from fugu_cli.session.spending import Limit, budgets_of
from fugu_cli.system.bounded_json import parse_json

if TYPE_CHECKING:
    from fugu_cli.session.store import RecentSession

MOST_EXAMPLES, MOST_SESSIONS = 3, 3
MOST_FILES_READ, LARGEST_READ, READING_SECONDS = 2000, 100_000, 0.5
"""Limits of the search for a TODO: files, bytes of each file, and time."""
_TODO = re.compile(r"\b(TODO|FIXME)\b[\s:()\[\]]*([^\n]*)")


@dataclass(frozen=True)
class FirstScreen:
    """The texts that a new session shows."""

    git: str
    """The branch, and the number of files that are not committed."""
    budget: str
    """A sentence about the limits on cost."""
    turn: str
    """A sentence about the course of a request."""
    examples: tuple[str, ...]
    """Requests that suit the folder."""
    sessions: tuple[str, ...]
    """Titles of recent sessions, each with its end and its time."""


def read_first_screen(
    root: Path,
    paths: Sequence[str],
    test_command: str | None,
    limit: Limit,
    agents: int,
    sessions: Sequence[RecentSession],
) -> FirstScreen:
    """Return what to show for the folder, whose files are `paths`. Blocking."""
    return FirstScreen(
        git=git_state(root),
        budget=_budget_sentence(limit),
        turn=_turn_sentence(agents, has_tests=test_command is not None),
        examples=_example_requests(root, paths, test_command),
        sessions=_session_titles(sessions),
    )


def _budget_sentence(limit: Limit) -> str:
    budgets = budgets_of(limit)
    limits = {
        "request": budgets.request,
        "session": budgets.session,
        "day": budgets.day,
        "project": budgets.project,
    }
    parts = [f"{money(value)} a {name}" for name, value in limits.items() if value is not None]
    if not parts:
        return "There is no budget."
    return f"At most {', '.join(parts)}."


def _turn_sentence(agents: int, *, has_tests: bool) -> str:
    checks = "fugu runs the tests" if has_tests else "fugu shows the diff"
    verifier = "another agent verifies" if agents > 1 else "it verifies its own work"
    return f"In turns: an agent works, {checks}, {verifier}."


def _session_titles(sessions: Sequence[RecentSession]) -> tuple[str, ...]:
    titles = []
    for session in sessions:
        changed_at = time.strftime("%d %b %H:%M", time.localtime(session.newest))
        ended = f"{session.ended}, " if session.ended else ""
        titles.append(f"{flatten(session.title, 60)} ({ended}{changed_at})")
    return tuple(titles)


def _example_requests(
    root: Path, paths: Sequence[str], test_command: str | None
) -> tuple[str, ...]:
    """Return requests that suit the folder: about a failing test, a TODO, its README, its code."""
    examples = []
    failing = _failing_test(root)
    if failing:
        examples.append(f"fix the failing test {failing}")
    elif test_command is not None:
        examples.append("run the tests and fix what fails")
    todo = _first_todo(root, paths)
    if todo:
        examples.append(todo)
    readme = next((path for path in paths if path.lower().startswith("readme")), "")
    if readme:
        examples.append(f"where does {flatten(readme, 60)} no longer fit the code?")
    code_path = next((path for path in paths if "/" in path and not path.startswith(".")), "")
    if code_path:
        folder = code_path.partition("/")[0]
        examples.append(f"how does {flatten(folder, 60)}/ work?")
    return tuple(examples[:MOST_EXAMPLES])


def _failing_test(root: Path) -> str:
    """Return a test that failed in the last run of pytest, "" if none is known."""
    try:
        failed = parse_json(_read_beginning(root, ".pytest_cache/v/cache/lastfailed"))
    except (OSError, ValueError):
        return ""
    if not isinstance(failed, dict) or not failed:
        return ""
    test = next(iter(failed))
    path, _, _ = test.partition("::")
    return flatten(test, 100) if is_file(root / path) else ""


def _first_todo(root: Path, paths: Sequence[str]) -> str:
    """Return a request to do what the first TODO comment says, "" if none is found in time."""
    deadline = time.monotonic() + READING_SECONDS
    for path in paths[:MOST_FILES_READ]:
        if time.monotonic() > deadline:
            break
        try:
            text = _read_beginning(root, path).decode("utf-8", "replace")
        except OSError:
            continue
        match = _TODO.search(text)
        if match is not None and "\0" not in text:
            line = text.count("\n", 0, match.start()) + 1
            task = flatten(match[2], 60)
            request = f"do the {match[1]} in {flatten(path, 60)}:{line}"
            return f"{request}: {task}" if task else request
    return ""


def _read_beginning(root: Path, path: str) -> bytes:
    """Return the first LARGEST_READ bytes of a file in the folder. Return b"" for a file outside it,
    and for a pipe or a terminal to which a link leads.
    """
    file = real_path(root / path)
    if not inside(file, real_path(root)) or not is_file(file):
        return b""
    with file.open("rb") as opened:
        return opened.read(LARGEST_READ)
