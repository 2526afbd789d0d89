"""What policy asks, as the editor's question: the call with its change, and the terminal's answers as options."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from acp.exceptions import RequestError
from acp.schema import AllowedOutcome, PermissionOption, PermissionOptionKind, ToolCallUpdate
from pydantic import ValidationError

from fugu_cli.acp.tool_content import kind_of, locations_of, proposed_change, text_content
from fugu_cli.ui import event_text
from fugu_cli.ui.approval_options import approval_options
from fugu_cli.ui.formatting import escape_for_approval
from fugu_cli.ui.json_output import arguments_object

if TYPE_CHECKING:
    from acp.interfaces import Client

    from fugu_cli.ui.tui.approval_questions import ApprovalQuestion
    from fugu_cli.ui.tui.session_protocol import SessionProtocol

EditorScope = Literal["once", "session", "always", "no"]
OPTION_KINDS: dict[EditorScope, PermissionOptionKind] = {
    "once": "allow_once",
    "session": "allow_always",
    "always": "allow_always",
    "no": "reject_once",
}


async def answer_of_editor(
    client: Client, session: SessionProtocol, shown: str, question: ApprovalQuestion
) -> EditorScope | None:
    """The user's answer about the call that the editor knows as `shown`; None where nobody can be asked."""
    call, judgement = question.asked
    root = session.environment.workspace.root
    target = escape_for_approval(event_text.approval_target(call, judgement.target)).strip()
    change = await asyncio.to_thread(proposed_change, call, root)
    reason = text_content(f"asked because {escape_for_approval(judgement.reason)}")
    words = {one.scope: one.words for one in approval_options(call, judgement)}
    offered = [scope for scope in OPTION_KINDS if scope in words]
    asked = ToolCallUpdate(
        tool_call_id=shown,
        title=target or escape_for_approval(call.tool),
        kind=kind_of(call),
        status="pending",
        content=[reason, *change],
        locations=locations_of(call, root) or None,
        raw_input=arguments_object(call),
    )
    options = [PermissionOption(option_id=one, name=words[one], kind=OPTION_KINDS[one]) for one in offered]
    assert session.log.path is not None
    try:
        reply = await client.request_permission(session_id=session.log.path.stem, tool_call=asked, options=options)
    except (RequestError, ConnectionError, ValidationError):
        return None
    outcome = reply.outcome
    chosen = outcome.option_id if isinstance(outcome, AllowedOutcome) else "no"
    return next((scope for scope in offered if scope == chosen), "no")
