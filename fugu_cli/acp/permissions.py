"""What the user is asked in the editor: a call that policy asks about, with its change and the
terminal's answers as options; and the form or address of an MCP server.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from acp.exceptions import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    DeclineElicitationResponse,
    ElicitationCapabilities,
    ElicitationFormSessionMode,
    ElicitationUrlSessionMode,
    PermissionOption,
    PermissionOptionKind,
    ToolCallUpdate,
)
from pydantic import ValidationError

from fugu_cli.acp.tool_content import kind_of, locations_of, proposed_change, text_content
from fugu_cli.app import event_text
from fugu_cli.app.approval_options import approval_options
from fugu_cli.formatting import escape_for_approval
from fugu_cli.ui.json_output import arguments_object

if TYPE_CHECKING:
    from acp.interfaces import Client
    from mcp_types import ElicitRequestParams, ElicitResult

    from fugu_cli.app.approval_questions import ApprovalQuestion
    from fugu_cli.app.session_protocol import SessionProtocol

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
    """The user's answer about the call that the editor knows as `shown`; None where nobody can be
    asked.
    """
    call, judgement = question.asked
    root = session.environment.workspace.root
    target = escape_for_approval(event_text.approval_target(call, judgement.target)).strip()
    change = await asyncio.to_thread(proposed_change, call, root)
    whose = f" by the subtask {escape_for_approval(judgement.subtask)}" if judgement.subtask else ""
    reason = text_content(f"asked{whose} because {escape_for_approval(judgement.reason)}")
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
    options = [
        PermissionOption(option_id=one, name=words[one], kind=OPTION_KINDS[one]) for one in offered
    ]
    assert session.log.path is not None
    try:
        reply = await client.request_permission(
            session_id=session.log.path.stem, tool_call=asked, options=options
        )
    except (RequestError, ConnectionError, ValidationError):
        return None
    outcome = reply.outcome
    chosen = outcome.option_id if isinstance(outcome, AllowedOutcome) else "no"
    return next((scope for scope in offered if scope == chosen), "no")


@dataclass(frozen=True)
class EditorForm:
    """Where an MCP server's question is shown: in which session of the editor, which of them it
    `can` show, and what is sent `before`."""

    client: Client
    session: str
    can: ElicitationCapabilities | None
    before: Callable[[], Awaitable[None]]


async def elicited_by_editor(
    form: EditorForm, server: str, params: ElicitRequestParams
) -> ElicitResult | None:
    """The user's answer to what an MCP server asks; None where the editor shows no such
    question.
    """
    from mcp_types import ElicitResult

    if form.can is None or (form.can.url if params.mode == "url" else form.can.form) is None:
        return None
    await form.before()
    mode: ElicitationUrlSessionMode | ElicitationFormSessionMode
    try:
        if params.mode == "url":
            mode = ElicitationUrlSessionMode.model_validate(
                {"sessionId": form.session, "elicitationId": uuid.uuid4().hex, "url": params.url}
            )
        else:
            mode = ElicitationFormSessionMode.model_validate(
                {"sessionId": form.session, "requestedSchema": params.requested_schema}
            )
        reply = await form.client.create_elicitation(f"{server} asks: {params.message}", mode)
    except (RequestError, ConnectionError, ValidationError):
        return ElicitResult(action="cancel")
    if isinstance(reply, AcceptElicitationResponse):
        return ElicitResult(action="accept", content=reply.content or {})
    return ElicitResult(
        action="decline" if isinstance(reply, DeclineElicitationResponse) else "cancel"
    )
