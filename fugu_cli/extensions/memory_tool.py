"""remember: an agent proposes a line for the memory, and the user says whether it is kept.

Wiring makes the tool where somebody can be asked.
"""

from __future__ import annotations

import asyncio
import json
from typing import Literal

from pydantic import Field

from fugu_cli.errors import FuguError
from fugu_cli.extensions.memory import Memory, Scope
from fugu_cli.messages import Call
from fugu_cli.session import tool_facts
from fugu_cli.tools.ask_user import NOBODY
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace

NOT_KEPT = "The user does not want this kept. Do not propose it again."


class RememberArguments(ToolArguments):
    """Arguments of remember."""

    line: str = Field(min_length=1, description="one sentence")
    scope: Literal["repository", "user"] = Field(
        default="repository", description="user: it holds in every repository"
    )


def remember_tool(memory: Memory) -> Tool[RememberArguments]:
    """Return the tool that adds to this memory."""

    async def propose(arguments: RememberArguments, workspace: Workspace, say: Say) -> ToolResult:
        if workspace.ask_user is None:
            return ToolResult(text=NOBODY, ok=False)
        scope: Scope = arguments.scope if arguments.scope in memory.scopes else "user"
        shown = memory.shown_path(scope)
        try:
            line = memory.line(arguments.line)  # the arguments hold secrets in full again
            proposal = json.dumps({"line": line, "file": shown}, ensure_ascii=False)
            call = Call(id="remember", tool=tool_facts.REMEMBER.name, arguments=proposal)
            answer = await workspace.ask_user(call)
            if answer is None:
                return ToolResult(text=NOBODY, ok=False)
            if answer != "yes":
                why = f" They say: {answer}" if answer else ""
                return ToolResult(text=f"{NOT_KEPT}{why}", ok=False)
            await asyncio.to_thread(memory.add, line, scope)
        except FuguError as error:
            return ToolResult(text=f"Nothing was kept: {error}.", ok=False)
        return ToolResult(text=f"Kept in {shown}: {line}")

    return Tool.of(tool_facts.REMEMBER, RememberArguments, propose)
