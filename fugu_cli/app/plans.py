"""Plans of plan mode: the question whether a plan is carried out, its answers, and the request that
carries it out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.app.approval_options import ACCEPT_PLAN
from fugu_cli.coordinators.conductor.step_context import escape_frames
from fugu_cli.errors import UsageError
from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.session.events import AcceptedPlan, Asked
from fugu_cli.snapshots.repository_files import walk_files

if TYPE_CHECKING:
    from fugu_cli.engine.environment import Environment, Permission
    from fugu_cli.safety.policy import Mode
    from fugu_cli.session.log import Log
    from fugu_cli.session.request_state import Plan
    from fugu_cli.tools.workspace import Workspace

NO_PLAN = "there is no plan to accept"
NO_PLAN_HINT = 'ask for one in plan mode: `fugu run --permission-mode plan "..."`, or /mode plan'
MOST_NAMED = 50
"""Names of changed files that the Worker is given."""


@dataclass(frozen=True)
class PlanAnswer:
    """The user's answer to a plan: the mode in which it is carried out, or the change that the user
    wants (`mode` is None then).
    """

    mode: Mode | None = None
    change: str = ""


def plan_question(plan: Plan, id: str) -> tuple[Call, policy.Judgement]:
    """Return the question whether the plan is carried out, as a call with the id `id` and a
    judgement.
    """
    call = Call.make(id, ACCEPT_PLAN, agent=plan.agent, plan=plan.text)
    return call, policy.Judgement(verdict="ask", reason="nothing has been changed yet")


def plan_answer(permission: Permission) -> PlanAnswer | None:
    """Return what the answer to `plan_question` means. A yes for the session carries the plan out in
    edit mode, a yes for once in ask mode. None: the plan stays as it is.
    """
    match permission:
        case "session":
            return PlanAnswer(mode="edit")
        case "once":
            return PlanAnswer(mode="ask")
        case "no" | "headless":
            return None
        case _:
            return PlanAnswer(change=permission.feedback) if permission.feedback else None


def carrying_mode(environment: Environment) -> Mode:
    """Return the mode in which a plan is carried out if the user chooses none: the present mode,
    edit where that is plan.
    """
    mode = environment.rules.mode
    return "edit" if mode == "plan" else mode


async def accepted_request(log: Log, workspace: Workspace, mode: Mode) -> Asked:
    """Return the request that carries out the open plan in this mode. Raises UsageError where there
    is no plan.
    """
    plan, request = log.state.open_plan, log.state.request
    if plan is None or request.asked is None:
        raise UsageError(NO_PLAN, hint=NO_PLAN_HINT)
    changed = await _changed_since_plan(log, workspace)
    if len(changed) > MOST_NAMED:
        changed = [*changed[:MOST_NAMED], f"and {len(changed) - MOST_NAMED} more"]
    texts = [text for text in (request.asked.text, request.steering_text) if text]
    media = list(request.asked.media)
    for message in request.steering:
        media += message.media
    return Asked(
        text="\n\n".join(texts),
        typed=f"Carry out the plan of {plan.agent}, in {mode} mode.",
        skill=request.asked.skill,
        piped=request.asked.piped,
        media=tuple(media),
        plan=AcceptedPlan(agent=plan.agent, text=escape_frames(plan.text), changed=tuple(changed)),
    )


async def _changed_since_plan(log: Log, workspace: Workspace) -> list[str]:
    """Return the files that changed since the open plan was asked for. Without a snapshot those are
    the files with a later modification time.
    """
    if snapshot := log.state.request.start_snapshot:
        effects = await workspace.history.since(snapshot)
        return sorted({change.path for change in effects.changes})
    asked_at = next(
        record.at for record in reversed(log.records) if record.event is log.state.request.asked
    )
    return await asyncio.to_thread(_files_modified_after, workspace.root, asked_at)


def _files_modified_after(root: Path, time: float) -> list[str]:
    names = []
    for path in walk_files(root):
        try:
            if path.stat().st_mtime > time:
                names.append(path.relative_to(root).as_posix())
        except OSError:
            continue
    return sorted(names)
