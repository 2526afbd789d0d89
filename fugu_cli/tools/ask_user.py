"""ask_user: a question to the user with choices, in whichever front end is open.

The question goes the way of questions for permission, so that every front end can show it.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field

from fugu_cli.messages import Call
from fugu_cli.session import tool_facts
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace

MOST_CHOICES = 6
LONGEST_QUESTION, LONGEST_CHOICE = 1_000, 200
"""Characters of a question, and of one choice."""
NOBODY = (
    "Nobody can be asked in this session. Decide what fits the request best, and say in your last "
    "message what you have assumed."
)
NO_ANSWER = "The user gives no answer. Decide yourself, and say what you have assumed."


class AskUserArguments(ToolArguments):
    """Arguments of ask_user."""

    question: str = Field(min_length=1, max_length=LONGEST_QUESTION)
    choices: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=LONGEST_CHOICE)], ...],
        Field(max_length=MOST_CHOICES, description="possible answers; the user may write another"),
    ] = ()


async def ask_user(arguments: AskUserArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Wait for the user's answer."""
    if workspace.ask_user is None:
        return ToolResult(text=NOBODY, ok=False)
    answers = {"question": arguments.question, "choices": list(arguments.choices)}
    call = Call(id="question", tool=tool_facts.ASK_USER.name, arguments=json.dumps(answers))
    answer = await workspace.ask_user(call)
    if answer is None:
        return ToolResult(text=NOBODY, ok=False)
    return ToolResult(text=f"{tool_facts.USER_ANSWERS}{answer}" if answer else NO_ANSWER)


ASK_USER = Tool.of(tool_facts.ASK_USER, AskUserArguments, ask_user)
