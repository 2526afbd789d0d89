"""Digest: what the tools of one turn did, in one short line, the same every time. Pure; part of the transcript."""

from __future__ import annotations

import json
from collections import Counter

from fugu_cli import views

TARGET_LIMIT = 60
ROWS = 8
"""Different (tool, target, outcome) entries of a digest; the newest stay."""

_TARGETS = ("path", "file", "command", "pattern", "query", "target")


def digest(turn: views.Turn) -> str:
    """`[read a.py ok; edit a.py failed x2; tests failed 1; 4 calls]`, "" for a turn without tools.

    The agent's own calls, then how the tests that fugu ran itself stand, and draws that were rolled back.
    """
    own = [run for run in turn.runs if not run.evidence]
    parts = _entries(own)
    checks = [run for run in turn.runs if run.evidence and run.permitted.call.tool == views.RUN_TESTS]
    if checks:
        parts.append(tests_state(checks[-1]))
    if turn.draws:
        parts.append(f"{_plural(len(turn.draws), 'try', 'tries')} rolled back")
    if len(own) > 1:
        parts.append(_plural(len(own), "call", "calls"))
    return f"[{'; '.join(parts)}]" if parts else ""


def tests_state(run: views.Run) -> str:
    """`tests passed 5`, `tests failed 2`: with the count where the output says it."""
    if run.result is None:
        return "tests interrupted"
    count = views.passing(run.result.output) if run.result.ok else views.failing(run.result.output)
    state = "passed" if run.result.ok else "failed"
    return f"tests {state} {count}" if count else f"tests {state}"


def _entries(runs: list[views.Run]) -> list[str]:
    """One entry per tool, target and outcome, in order of first appearance, with how often it came."""
    times = Counter(_entry(run) for run in runs)
    entries = [f"{entry} x{count}" if count > 1 else entry for entry, count in times.items()]
    return entries if len(entries) <= ROWS else ["...", *entries[-ROWS:]]


def _entry(run: views.Run) -> str:
    call = run.permitted.call
    if call.tool == views.RUN_TESTS and run.permitted.allowed:
        return tests_state(run)
    return " ".join(part for part in (call.tool, _target(call.arguments), _outcome(run)) if part)


def _outcome(run: views.Run) -> str:
    if not run.permitted.allowed:
        return "denied"
    if run.result is None:
        return "interrupted"
    return "ok" if run.result.ok else "failed"


def _target(arguments: str) -> str:
    try:
        given = json.loads(arguments)
    except ValueError:
        return ""
    if not isinstance(given, dict):
        return ""
    found = next((given[name] for name in _TARGETS if isinstance(given.get(name), str)), "")
    line = " ".join(found.split())
    return line if len(line) <= TARGET_LIMIT else line[: TARGET_LIMIT - 3] + "..."


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
