"""What an empty session shows: the folder's state, its recent sessions, requests that it suggests,
and what a request will look like.
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
    from fugu_cli.session.store import SessionSummary

MOST_EXAMPLES, MOST_SESSIONS = 3, 3
MOST_FILES_READ, LARGEST_READ, READING_SECONDS = 2000, 100_000, 0.5
"""Files, and bytes of each, that are looked through for a TODO, and for how long."""
_TODO = re.compile(r"\b(TODO|FIXME)\b[\s:()\[\]]*([^\n]*)")


@dataclass(frozen=True)
class FirstScreen:
    """`git`, `budget` and `turn` are sentences, `examples` requests, `sessions` titles with their
    ends.
    """

    git: str
    budget: str
    turn: str
    examples: tuple[str, ...]
    sessions: tuple[str, ...]


def read_first_screen(
    root: Path,
    paths: Sequence[str],
    test_command: str | None,
    limit: Limit,
    agents: int,
    summaries: Sequence[SessionSummary],
) -> FirstScreen:
    """Look at the folder. `paths` are its files. Blocking."""
    return FirstScreen(
        git=git_state(root),
        budget=_budget(limit),
        turn=_turn(agents, has_tests=test_command is not None),
        examples=_examples(root, paths, test_command),
        sessions=tuple(
            _session(summary) for summary in summaries[:MOST_SESSIONS] if summary.requests
        ),
    )


def _budget(limit: Limit) -> str:
    budgets = budgets_of(limit)
    limits = {
        "request": budgets.request,
        "session": budgets.session,
        "day": budgets.day,
        "project": budgets.project,
    }
    parts = [f"{money(value)} a {name}" for name, value in limits.items() if value is not None]
    return f"At most {', '.join(parts)}." if parts else "There is no budget."


def _turn(agents: int, *, has_tests: bool) -> str:
    checks = "fugu runs the tests" if has_tests else "fugu shows the diff"
    judge = "another agent verifies" if agents > 1 else "it verifies its own work"
    return f"In turns: an agent works, {checks}, {judge}."


def _session(summary: SessionSummary) -> str:
    day = time.strftime("%d %b %H:%M", time.localtime(summary.newest))
    return f"{flatten(summary.title, 60)} ({summary.ended}, {day})"


def _examples(root: Path, paths: Sequence[str], test_command: str | None) -> tuple[str, ...]:
    """Return requests that fit the folder: its failing tests, a TODO, its README."""
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
    code = next((path for path in paths if "/" in path and not path.startswith(".")), "")
    if code:
        folder = code.partition("/")[0]
        examples.append(f"how does {flatten(folder, 60)}/ work?")
    return tuple(examples[:MOST_EXAMPLES])


def _failing_test(root: Path) -> str:
    """Return a test that failed when pytest ran last, "" if none is known."""
    try:
        failed = parse_json(_read_beginning(root, ".pytest_cache/v/cache/lastfailed"))
    except (OSError, ValueError):
        return ""
    if not isinstance(failed, dict) or not failed:
        return ""
    test = next(iter(failed))
    return flatten(test, 100) if is_file(root / test.partition("::")[0]) else ""


def _first_todo(root: Path, paths: Sequence[str]) -> str:
    """Return a request to do what a comment leaves to do, "" where none was found in time."""
    until = time.monotonic() + READING_SECONDS
    for path in paths[:MOST_FILES_READ]:
        if time.monotonic() > until:
            break
        try:
            text = _read_beginning(root, path).decode("utf-8", "replace")
        except OSError:
            continue
        match = _TODO.search(text)
        if match is not None and "\0" not in text:
            line = text.count("\n", 0, match.start()) + 1
            what = flatten(match[2], 60)
            request = f"do the {match[1]} in {flatten(path, 60)}:{line}"
            return f"{request}: {what}" if what else request
    return ""


def _read_beginning(root: Path, path: str) -> bytes:
    """Return the first LARGEST_READ bytes of a file of the folder, b"" for anything else: nothing is
    read from a pipe or a terminal that a link of the repository leads to.
    """
    file = real_path(root / path)
    if not inside(file, real_path(root)) or not is_file(file):
        return b""
    with file.open("rb") as opened:
        return opened.read(LARGEST_READ)
