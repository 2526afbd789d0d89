"""Background jobs as the log knows them: which call started each, and how it ended. Pure.

A job without an end runs, or ended with the process that had started it: who opened the session says which
(tools/jobs.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fugu_cli.events import Event, JobEnded, ToolRan
from fugu_cli.messages import Call


@dataclass(frozen=True)
class Job:
    """One job: its name, the call of bash that started it, and its end, None while there is none."""

    name: str
    call: Call
    end: JobEnded | None = None


def jobs(events: Sequence[Event]) -> dict[str, Job]:
    """Every job that `events` say was started, by name, the oldest first."""
    found: dict[str, Job] = {}
    for event in events:
        if isinstance(event, ToolRan) and event.job:
            found[event.job] = Job(event.job, event.call)
        elif isinstance(event, JobEnded) and event.job in found:
            found[event.job] = replace(found[event.job], end=event)
    return found


def ended_how(end: JobEnded) -> str:
    """How a job ended, in words."""
    match end.by:
        case "itself" if end.code is not None and end.code < 0:
            return f"signal {-end.code}"
        case "itself":
            return f"exit code {end.code}"
        case "agent":
            return "stopped by the agent"
        case "user":
            return "stopped by the user"
        case "undo":
            return "stopped: the files were put back"
        case "session":
            return "ended with the session"
