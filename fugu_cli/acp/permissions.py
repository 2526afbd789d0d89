"""Questions to the user in the editor: permission for a call, with its change and the terminal's
answers as options; and the form or address of an MCP server.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from fugu_cli.app.approval_options import (
    ACCEPT_PLAN,
    CHOICES,
    ApprovalScope,
    approval_options,
    question_heading,
)
from fugu_cli.formatting import escape_for_approval
from fugu_cli.session.tool_facts import ASK_USER
from fugu_cli.ui.json_output import arguments_object

if TYPE_CHECKING:
    from acp.interfaces import Client
    from mcp_types import ElicitRequestParams, ElicitResult

    from fugu_cli.app.approval_questions import ApprovalQuestion
    from fugu_cli.app.session_protocol import SessionProtocol
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call
    from fugu_cli.safety.policy import Judgement

OPTION_KINDS: dict[ApprovalScope, PermissionOptionKind] = {
    **dict.fromkeys(CHOICES, "allow_once"),
    "once": "allow_once",
    "session": "allow_always",
    "always": "allow_always",
    "no": "reject_once",
}
PLAN_KINDS: dict[ApprovalScope, PermissionOptionKind] = {
    "session": "allow_always",
    "once": "allow_once",
    "feedback": "reject_once",
}
"""The answers to a plan. A user who wants it changed says how in the next prompt."""


async def ask_permission_in_editor(
    client: Client, session: SessionProtocol, call_id: str, question: ApprovalQuestion
) -> ApprovalScope | None:
    """Return the user's answer about the call that the editor knows as `call_id`, or None if the
    editor cannot ask.
    """
    call, judgement = question.asked
    labels = {option.scope: option.words for option in approval_options(call, judgement)}
    kinds = PLAN_KINDS if call.tool == ACCEPT_PLAN else OPTION_KINDS
    scopes = [scope for scope in kinds if scope in labels]
    options = [
        PermissionOption(option_id=scope, name=labels[scope], kind=kinds[scope]) for scope in scopes
    ]
    if call.tool == ACCEPT_PLAN:
        arguments = arguments_object(call)
        tool_call = ToolCallUpdate(
            tool_call_id=call_id,
            title=question_heading(call),
            kind="switch_mode",
            status="pending",
            content=[text_content(str(arguments["plan"]))],
            raw_input=arguments,
        )
    else:
        tool_call = await asyncio.to_thread(_asked_call, call, judgement, call_id, session)
    assert session.log.path is not None
    try:
        reply = await client.request_permission(
            session_id=session.log.path.stem, tool_call=tool_call, options=options
        )
    except (RequestError, ConnectionError, ValidationError):
        return None
    if isinstance(reply.outcome, AllowedOutcome):
        for scope in scopes:
            if scope == reply.outcome.option_id:
                return scope
    return "no"


def _asked_call(
    call: Call, judgement: Judgement, call_id: str, session: SessionProtocol
) -> ToolCallUpdate:
    """Return the call as the editor shows it, with the reason of the question and the proposed
    change. Reads files.
    """
    root = session.environment.workspace.root
    target = escape_for_approval(event_text.approval_target(call, judgement.target)).strip()
    asker = f" by the subtask {escape_for_approval(judgement.subtask)}" if judgement.subtask else ""
    reason = f"asked{asker} because {escape_for_approval(judgement.reason)}"
    if call.tool == ASK_USER.name:
        reason, target = target, question_heading(call)
    return ToolCallUpdate(
        tool_call_id=call_id,
        title=target or escape_for_approval(call.tool),
        kind=kind_of(call),
        status="pending",
        content=[text_content(reason), *proposed_change(call, root)],
        locations=locations_of(call, root) or None,
        raw_input=arguments_object(call),
    )


@dataclass(frozen=True)
class EditorForm:
    """The place where questions of MCP servers are shown: a session of the editor."""

    client: Client
    session: str
    capabilities: ElicitationCapabilities | None
    """The kinds of questions that the editor can show."""
    before: Callable[[], Awaitable[None]]
    """Called before a question, to send everything that precedes it."""


async def ask_for_words_in_editor(form: EditorForm, call: Call) -> Permission:
    """Return the user's answer to an agent's question without choices, for which ACP's questions
    for permission have no field.
    """
    from mcp_types import ElicitRequestFormParams

    from fugu_cli.engine.environment import Refusal

    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "title": "Your answer"}},
        "required": ["answer"],
    }
    question = escape_for_approval(str(arguments_object(call).get("question", "")))
    params = ElicitRequestFormParams(message=question, requested_schema=schema)
    result = await elicit_in_editor(form, "An agent", params)
    if result is None:
        return "headless"
    words = str((result.content or {}).get("answer", "")).strip()
    return Refusal(feedback=words) if words else "no"


async def elicit_in_editor(
    form: EditorForm, server: str, params: ElicitRequestParams
) -> ElicitResult | None:
    """Return the user's answer to a question of an MCP server, or None if the editor cannot show
    it.
    """
    from mcp_types import ElicitResult

    if form.capabilities is None:
        return None
    supported = form.capabilities.url if params.mode == "url" else form.capabilities.form
    if supported is None:
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
    if isinstance(reply, DeclineElicitationResponse):
        return ElicitResult(action="decline")
    return ElicitResult(action="cancel")
