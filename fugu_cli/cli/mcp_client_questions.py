"""The client of `fugu mcp serve` during one call: fugu asks it for permissions and for its folders,
and tells it the progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitResult, ListRootsRequest, ListRootsResult
from pydantic import ValidationError

from fugu_cli.app import event_text
from fugu_cli.app.approval_options import (
    ACCEPT_PLAN,
    ApprovalScope,
    approval_options,
    permission_for,
    question_choices,
    question_heading,
)
from fugu_cli.app.patches import approval_patch
from fugu_cli.errors import UsageError
from fugu_cli.formatting import escape_for_approval, excerpt, first_line
from fugu_cli.session.call_arguments import arguments_of
from fugu_cli.session.events import Assigned, Failed, Permitted, Recorded
from fugu_cli.session.live_events import Live
from fugu_cli.session.tool_facts import ASK_USER

if TYPE_CHECKING:
    from mcp.server.session import ServerSession
    from mcp_types import ElicitRequestParams

    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call
    from fugu_cli.safety.policy import Judgement
    from fugu_cli.session.log import Log

ROOTS_SECONDS = 10.0
"""Seconds a client has to name its folders."""
PROGRESS_SECONDS = 15.0
"""Seconds of silence after which the newest progress is sent again: many clients give up on a call
that says nothing for a minute.
"""
LONGEST_QUESTION = 20_000
"""Characters of a command and of a change that a question shows."""
SCOPES: tuple[ApprovalScope, ...] = ("once", "session", "no")
"""The answers to a question about a call. A rule that lasts is written by the user alone."""


class CallingClient:
    """The client that makes a call. Questions are asked one after the other."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._asking = asyncio.Lock()
        self._sent = 0
        self._line = "fugu works"

    @property
    def can_ask(self) -> bool:
        """True if the client shows forms to its user."""
        capabilities = self._session.client_capabilities
        elicitation = capabilities.elicitation if capabilities is not None else None
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    async def roots(self) -> Sequence[Path] | None:
        """Return the folders that the client has open, None if it names none. Raises UsageError if
        the client does not answer.
        """
        capabilities = self._session.client_capabilities
        if capabilities is None or capabilities.roots is None:
            return None
        try:
            answer = await self._session.send_request(
                ListRootsRequest(), ListRootsResult, request_read_timeout_seconds=ROOTS_SECONDS
            )
        except (MCPError, ValidationError) as error:
            raise UsageError(
                "the client does not say which folders are open (roots/list)",
                hint="without them fugu works nowhere: nothing was done",
            ) from error
        if not answer.roots:
            return None
        addresses = [urlsplit(str(root.uri)) for root in answer.roots]
        return [Path(unquote(address.path)) for address in addresses if address.scheme == "file"]

    async def ask_permission(self, root: Path, call: Call, judgement: Judgement) -> Permission:
        """Ask the user about a call in `root`. A client that shows no forms allows nothing."""
        from fugu_cli.engine.environment import Refusal

        if not self.can_ask:
            return "headless"
        options = {option.scope: option.words for option in approval_options(call, judgement)}
        patch = await asyncio.to_thread(approval_patch, call, root)
        message = _question_text(call, judgement, patch)
        choices = question_choices(call)
        if call.tool == ASK_USER.name:
            schema = _form(list(choices), list(choices), "Your own words")
        else:
            scopes = [scope for scope in SCOPES if scope in options]
            schema = _form(list(scopes), [options[scope] for scope in scopes], "What to do instead")
        answer = await self._elicit(message, schema)
        if answer is None:
            return "headless"
        if answer.action != "accept":
            return "no"
        content = answer.content or {}
        chosen = content.get("answer")
        words = str(content.get("words") or "").strip()
        if call.tool == ASK_USER.name:
            text = words or (str(chosen) if chosen in choices else "")
            return Refusal(feedback=text) if text else "no"
        for scope in SCOPES:
            if scope == chosen and scope in options and scope != "no":
                return permission_for(call, scope)
        return Refusal(feedback=words) if words else "no"

    async def answer_server(self, server: str, params: ElicitRequestParams) -> ElicitResult | None:
        """Pass on the question of an MCP server of the session. None if the client shows no such
        forms.
        """
        if not self.can_ask or not isinstance(params, ElicitRequestFormParams):
            return None
        return await self._elicit(f"{server} asks: {params.message}", params.requested_schema)

    async def _elicit(self, message: str, schema: dict[str, Any]) -> ElicitResult | None:
        """Return the user's answer, None if the client is gone or cannot show the form."""
        import anyio

        async with self._asking:
            try:
                return await self._session.elicit_form(message, schema)
            except (
                MCPError,
                ValidationError,
                anyio.ClosedResourceError,
                anyio.BrokenResourceError,
            ):
                return None

    async def tell_progress(self, log: Log) -> None:
        """Tell the client what happens in a session until its log is closed."""
        first = len(log.records)
        async for item in log.follow():
            if isinstance(item, Recorded) and item.seq < first:
                continue
            line = _progress_text(item)
            if line:
                await self.tell(line)

    async def repeat_progress(self) -> None:
        """Send the newest progress again whenever nothing was sent for a while, without an end."""
        while True:
            sent = self._sent
            await asyncio.sleep(PROGRESS_SECONDS)
            if sent == self._sent:
                await self.tell(self._line)

    async def tell(self, line: str) -> None:
        """Tell the client what happens, if it wants to know."""
        self._line = line
        self._sent += 1
        await self._session.report_progress(self._sent, message=line)


def _form(values: list[str], names: list[str], words_title: str) -> dict[str, Any]:
    """Return a form with a choice, and a line for the user's own words."""
    properties: dict[str, Any] = {"words": {"type": "string", "title": words_title}}
    if values:
        choice = {"type": "string", "title": "Answer", "enum": values, "enumNames": names}
        properties = {"answer": choice, **properties}
    return {"type": "object", "properties": properties}


def _question_text(call: Call, judgement: Judgement, patch: str) -> str:
    """Return the text of a question: the call, why the user is asked, and the change."""
    arguments = arguments_of(call)
    fields = arguments if isinstance(arguments, dict) else {}
    if call.tool == ACCEPT_PLAN:
        body = str(fields.get("plan", ""))
    elif call.tool == ASK_USER.name:
        body = str(fields.get("question", ""))
    else:
        body = event_text.approval_target(call, judgement.target).strip()
    asker = f" for the subtask {judgement.subtask}" if judgement.subtask else ""
    parts = [question_heading(call), body]
    if call.tool not in (ACCEPT_PLAN, ASK_USER.name):
        parts += [f"Asked{asker} because {judgement.reason}", patch]
    hint = "`fugu attach` in a terminal shows all of it"
    shown = [excerpt(escape_for_approval(part), LONGEST_QUESTION, hint) for part in parts]
    return "\n\n".join(part for part in shown if part)


def _progress_text(item: Recorded | Live) -> str:
    """Return an item of the log as a line for people, "" for most items."""
    match item:
        case Recorded(event=Assigned() as event):
            return f"turn {event.turn}: {event.agent} as {event.role}"
        case Recorded(event=Permitted() as event):
            refused = "" if event.allowed else "not allowed: "
            return f"{refused}{event_text.describe_call(event.call)}"
        case Recorded(event=Failed() as event):
            return f"{event.what} failed: {first_line(event.message, 200)}"
        case Recorded():
            return ""
        case _:
            return event_text.pause_text(item)
