"""todo: the list of what is to be done, replaced with each call. It is a view of the log (views/todo.py)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from fugu_cli import views
from fugu_cli.tools import Tool
from fugu_cli.tools.files import Given
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.workspace import Workspace
from fugu_cli.views.todo import TODO, Status

MOST = 50
LONGEST = 300
"""Items of a list, and characters of one."""


class Item(BaseModel):
    """One thing to do."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    text: Annotated[str, Field(min_length=1, max_length=LONGEST, validation_alias=AliasChoices("text", "content"))]
    status: Status


class Todo(Given):
    """Arguments of todo."""

    items: Annotated[tuple[Item, ...], Field(max_length=MOST, description="the whole list, in order")]


async def todo(given: Todo, workspace: Workspace, say: Say) -> Result:
    """The call is the list; the answer says how it stands."""
    stands = [views.Item(item.text, item.status) for item in given.items]
    return Result(text=f"The list stands: {views.summed(stands)}.")


TODO_LIST = Tool(name=TODO, effect="reads", arguments=Todo, run=todo, native=True, worker=True)
