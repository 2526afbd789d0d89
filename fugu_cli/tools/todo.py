"""todo: the list of what is to be done, replaced with each call. The list itself is a view of the
log.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from fugu_cli.session import tool_facts
from fugu_cli.session.open_work import Status, TodoItem, status_word, todo_summary
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace

MOST = 50
LONGEST = 300
"""Items of a list, and characters of one."""


class TodoEntry(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    text: Annotated[
        str,
        Field(min_length=1, max_length=LONGEST, validation_alias=AliasChoices("text", "content")),
    ]
    status: Annotated[Status, BeforeValidator(status_word)]


class TodoArguments(ToolArguments):
    """Arguments of todo."""

    items: Annotated[
        tuple[TodoEntry, ...], Field(max_length=MOST, description="the whole list, in order")
    ]


async def todo(arguments: TodoArguments, workspace: Workspace, say: Say) -> ToolResult:
    """Set the list. The result summarises it."""
    items = [TodoItem(item.text, item.status) for item in arguments.items]
    return ToolResult(text=f"The list stands: {todo_summary(items)}.")


TODO_LIST = Tool.of(tool_facts.TODO, TodoArguments, todo)
