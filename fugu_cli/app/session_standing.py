"""How each stored session stands: at work, waiting for an answer, killed, or how it ended."""

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
    """`state` is one or two words; `waits_for` says what would go on with it, "" for nothing."""

    state: str
    waits_for: str = ""


def session_standings(summaries: Sequence[SessionSummary]) -> list[SessionStanding]:
    """Return how these sessions stand. Those that are running are asked."""
    running = [summary.path for summary in summaries if log.is_open(summary.path)]
    answers = asyncio.run(_ask_all(running)) if running else {}
    return [answers.get(summary.path) or _standing_of_closed(summary) for summary in summaries]


def _standing_of_closed(summary: SessionSummary) -> SessionStanding:
    if summary.state == "unfinished" and log.socket_name(summary.path):
        return SessionStanding("killed", f"`fugu --resume {summary.id}` goes on with it")
    return SessionStanding(summary.ended)


async def _ask_all(paths: Sequence[Path]) -> dict[Path, SessionStanding]:
    return dict(zip(paths, await asyncio.gather(*map(_ask, paths)), strict=True))


async def _ask(path: Path) -> SessionStanding:
    """Return how a running session stands, as it says itself."""
    from fugu_cli.app.attached_session import Connection

    try:
        connection = await Connection.open(path)
    except InfrastructureError:
        return SessionStanding("running", f"it does not answer: `fugu attach {path.stem}` says why")
    connection.close()
    status = connection.status
    if status.questions:
        more = f" and {len(status.questions) - 1} more" if len(status.questions) > 1 else ""
        asked = describe_call(status.questions[0].asked.call)
        return SessionStanding("waiting", f"waits for an answer: {asked}{more}")
    if status.running:
        return SessionStanding("running")
    return SessionStanding("idle", "waits for a request")
