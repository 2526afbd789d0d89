"""Finds out the state of stored sessions: running, waiting, idle, killed, or how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.app.event_text import describe_call
from fugu_cli.errors import InfrastructureError
from fugu_cli.session import log
from fugu_cli.session.store import SessionSummary


@dataclass(frozen=True)
class SessionStanding:
    """`state` is one or two words. `waits_for` says what the user can do about it, "" for nothing."""

    state: str
    waits_for: str = ""


def session_standings(summaries: Sequence[SessionSummary]) -> list[SessionStanding]:
    """Return the state of each session. Running sessions are asked over their sockets."""
    running = [summary.path for summary in summaries if log.is_open(summary.path)]
    standings = asyncio.run(_ask_sessions(running)) if running else {}
    for summary in summaries:
        if summary.path not in standings:
            standings[summary.path] = _standing_of_closed(summary)
    return [standings[summary.path] for summary in summaries]


def _standing_of_closed(summary: SessionSummary) -> SessionStanding:
    if summary.state == "unfinished":
        state = "killed" if log.socket_name(summary.path) else "interrupted"
        return SessionStanding(state, f"`fugu --resume {summary.id}` goes on with it")
    return SessionStanding(summary.ended)


async def _ask_sessions(paths: Sequence[Path]) -> dict[Path, SessionStanding]:
    standings = await asyncio.gather(*[_ask_session(path) for path in paths])
    return dict(zip(paths, standings, strict=True))


async def _ask_session(path: Path) -> SessionStanding:
    """Return the state that a running session reports."""
    from fugu_cli.app.attached_session import Connection

    try:
        connection = await Connection.open(path)
    except InfrastructureError:
        return SessionStanding("running", f"it does not answer: `fugu attach {path.stem}` says why")
    connection.close()
    status = connection.status
    if status.questions:
        waits_for = f"waits for an answer: {describe_call(status.questions[0].asked.call)}"
        if len(status.questions) > 1:
            waits_for += f" and {len(status.questions) - 1} more"
        return SessionStanding("waiting", waits_for)
    if status.running:
        return SessionStanding("running")
    return SessionStanding("idle", "waits for a request")
