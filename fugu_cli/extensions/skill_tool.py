"""skill: the text of a skill, when an agent asks for it by name.

Made by wiring for the skills that count in a session; where there are none there is no such tool.
Their descriptions are a part of its description.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from pydantic import Field

from fugu_cli.extensions.skills import DocumentError, Skill
from fugu_cli.safety.policy import SKILL
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import Tool, Workspace


class SkillArguments(ToolArguments):
    """Arguments of skill."""

    name: str = Field(description="which one")


def skill_tool(skills: Sequence[Skill]) -> Tool[SkillArguments]:
    """The tool for these skills."""
    known = {skill.name: skill for skill in skills}

    async def load(given: SkillArguments, workspace: Workspace, say: Say) -> ToolResult:
        skill = known.get(given.name.strip())
        if skill is None:
            near = difflib.get_close_matches(given.name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
            return ToolResult(text=f"There is no skill {given.name}. {hint}", ok=False)
        try:
            return ToolResult(text=skill.text())
        except DocumentError as fault:
            return ToolResult(text=f"{skill.shown} cannot be used: {fault}.", ok=False)

    return Tool(
        name=SKILL, effect="reads", arguments=SkillArguments, run=load, native=True, instructs=True
    )
