"""skill: returns the text of a skill that an agent asks for by name.

Wiring makes the tool for a session's skills; without skills there is no such tool. Their
descriptions are a part of its description.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic import Field

from fugu_cli.extensions.skills import DocumentError, Skill
from fugu_cli.session import tool_facts
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace


class SkillArguments(ToolArguments):
    """Arguments of skill."""

    name: str = Field(description="which one")


def skill_tool(skills: Sequence[Skill]) -> Tool[SkillArguments]:
    """Return the tool for these skills."""
    by_name = {skill.name: skill for skill in skills}

    async def load(arguments: SkillArguments, workspace: Workspace, say: Say) -> ToolResult:
        skill = by_name.get(arguments.name.strip())
        if skill is None:
            similar = difflib.get_close_matches(arguments.name, by_name, 1)
            hint = f"Did you mean {similar[0]}?" if similar else f"There are {', '.join(by_name)}."
            return ToolResult(text=f"There is no skill {arguments.name}. {hint}", ok=False)
        try:
            return ToolResult(text=skill.text())
        except DocumentError as fault:
            return ToolResult(text=f"{skill.shown} cannot be used: {fault}.", ok=False)

    return Tool.of(tool_facts.SKILL, SkillArguments, load)
