"""The status of an open session: status line, input of the user's status command, exit message.

Between session_controller.py and status_line.py, which draws it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fugu_cli import __version__
from fugu_cli.formatting import flatten
from fugu_cli.session.events import Assigned, Replied
from fugu_cli.session.state import SessionState
from fugu_cli.ui.session_totals import RUNNING_TESTS
from fugu_cli.ui.tui import project_folder
from fugu_cli.ui.tui.screen_protocol import StatusLine

if TYPE_CHECKING:
    from fugu_cli.app.request_queue import RequestQueue
    from fugu_cli.app.session_protocol import InterfaceOptions, SessionOpener
    from fugu_cli.ui.tui.model_download import ModelDownload
    from fugu_cli.ui.tui.screen_protocol import FeedProtocol
    from fugu_cli.ui.tui.user_programs import StatusCommand, UserShell


class StatusSources(Protocol):
    """The parts of the session controller that the status needs."""

    opener: SessionOpener
    options: InterfaceOptions
    work: RequestQueue
    shell: UserShell
    download: ModelDownload
    status: StatusCommand
    branch: str
    tier: str
    vi_mode: str
    feed: FeedProtocol


def status_line(controller: StatusSources) -> StatusLine:
    """Return the present status line."""
    tally, work, root = controller.feed.folded.totals, controller.work, controller.opener.root
    activity = controller.feed.folded.activity
    aside = controller.shell if controller.shell.running else controller.download
    running = work.running or aside.running
    at_work = "stopping" if work.stopping else activity.doing or "starting"
    likely = activity.first_agent(_able(work))
    if likely and not work.stopping and not aside.doing:
        at_work = f"{at_work}, then probably {flatten(likely, 40)}"
    doing = "needs approval" if work.approvals.questions else aside.doing or at_work
    if doing.startswith(RUNNING_TESTS):
        doing += " (F2 skips)"
    begun = 0.0
    if aside.running:
        begun = aside.began
    elif activity.doing:
        begun = activity.since
    spent = tally.tokens
    return StatusLine(
        folder=project_folder.short_path(root),
        branch=controller.branch,
        tier=controller.tier,
        mode=permission_mode(work),
        pinned=work.pinned or "",
        context=tally.context,
        tokens=spent.input + spent.output,
        cost=tally.cost,
        unpriced=bool(tally.unpriced),
        estimated=spent.is_estimated or bool(tally.estimated),
        doing=doing if running else "",
        since=(begun or time.time()) if running else 0.0,
        until=activity.until if activity.doing and doing.startswith(activity.doing) else 0.0,
        written=tally.writing if work.running else 0,
        unavailable=_unavailable(work),
        queued=len(work.queued_texts),
        messages=len(work.waiting_messages),
        vi=controller.vi_mode,
        own=controller.status.lines,
        jobs=len(work.session.environment.workspace.jobs.running)
        if work.session is not None
        else 0,
    )


def permission_mode(work: RequestQueue) -> str:
    """Return the permission mode, "" before there is a session."""
    return work.session.environment.rules.mode if work.session is not None else ""


def _able(work: RequestQueue) -> Sequence[str]:
    """Return the agents that may take a turn now."""
    session = work.session
    if session is None or work.pinned:
        return (work.pinned,) if work.pinned else ()
    team = session.team
    unavailable = {
        *session.excluded,
        *(team.breaker.unavailable() if team.breaker is not None else ()),
    }
    return [name for name in team.members if name not in unavailable]


def _unavailable(work: RequestQueue) -> tuple[tuple[str, float], ...]:
    """Return the unavailable agents and when each may be tried again (epoch seconds)."""
    team = work.session.team if work.session is not None else None
    if team is None or team.breaker is None:
        return ()
    breaker, clock = team.breaker, time.time()
    return tuple(
        (name, float(math.floor(clock + breaker.seconds(name)))) for name in breaker.unavailable()
    )


def parting_words(controller: StatusSources) -> str:
    """Return the exit message with the session's id, "" if nothing was asked."""
    session = controller.work.session
    if session is None or session.log.path is None or session.log.state.request.asked is None:
        return ""
    id = session.log.path.stem
    if controller.options.attached:
        return f"session {id} goes on without you: `fugu attach {id}` comes back to it"
    return (
        f"session {id}: `fugu trace {id}` shows who did what, `/resume` in `fugu` goes on with it"
    )


def status_input(controller: StatusSources) -> dict[str, object]:
    """Return the input of the status command: Claude Code's fields as far as fugu has them, without
    the time.
    """
    session, tally, root = (
        controller.work.session,
        controller.feed.folded.totals,
        str(controller.opener.root),
    )
    log = session.log if session is not None else None
    state = log.state if log is not None else SessionState()
    replies = [event for event in state.events if isinstance(event, Replied)]
    turns = [event.agent for event in state.request.events if isinstance(event, Assigned)]
    members = session.team.members if session is not None else {}
    agent = next(
        (name for name in (*reversed(turns), controller.work.pinned, *members) if name in members),
        "",
    )
    member = members.get(agent or "")
    spent = tally.tokens
    current_usage = None
    if replies:
        usage = replies[-1].usage
        current_usage = {
            "input_tokens": usage.input - usage.cached,
            "output_tokens": usage.output,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
        }
    size = member.context if member is not None else 0
    used = round((tally.context or 0.0) * 100)
    added = [str(path) for path in controller.options.added]
    path = str(log.path) if log is not None and log.path is not None else ""
    return {
        "hook_event_name": "Status",
        "session_id": Path(path).stem,
        "transcript_path": path,
        "cwd": root,
        "model": {"id": member.model if member is not None else "", "display_name": agent},
        "workspace": {"current_dir": root, "project_dir": root, "added_dirs": added},
        "version": __version__,
        "output_style": {"name": "default"},
        "permission_mode": permission_mode(controller.work),
        "cost": {
            "total_cost_usd": tally.cost,
            "total_api_duration_ms": round(sum(reply.seconds for reply in replies) * 1000),
        },
        "context_window": {
            "context_window_size": size,
            "used_percentage": used,
            "remaining_percentage": 100 - used,
            "total_input_tokens": spent.input,
            "total_output_tokens": spent.output,
            "current_usage": current_usage,
        },
        "exceeds_200k_tokens": used * size > 20_000_000,
        **({"vim": {"mode": controller.vi_mode}} if controller.vi_mode else {}),
        "_began": log.records[0].at if log is not None and log.records else None,
    }
