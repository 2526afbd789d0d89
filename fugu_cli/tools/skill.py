"""skill: what a skill says, when an agent asks for it by its name.

Made by wiring for the skills that count in a session; where there are none there is no such tool. Their descriptions
are a part of what agents are told of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from pydantic import Field

from fugu_cli import prompts
from fugu_cli.policy import SKILL
from fugu_cli.skills.frontmatter import Fault
from fugu_cli.skills.skill import Skill, told
from fugu_cli.tools import Tool
from fugu_cli.tools.files import Given
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.toolbox import from_prompts
from fugu_cli.tools.workspace import Workspace


class Named(Given):
    """Arguments of skill."""

    name: str = Field(description="which one")


def skill_tool(skills: Sequence[Skill]) -> Tool[Named]:
    """The tool for these skills."""
    known = {skill.name: skill for skill in skills}

    async def load(given: Named, workspace: Workspace, say: Say) -> Result:
        skill = known.get(given.name.strip())
        if skill is None:
            near = difflib.get_close_matches(given.name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
            return Result(text=f"There is no skill {given.name}. {hint}", ok=False)
        try:
            return Result(text=skill.text())
        except Fault as fault:
            return Result(text=f"{skill.shown} cannot be used: {fault}.", ok=False)

    return Tool(name=SKILL, effect="reads", arguments=Named, run=load, native=True, instructs=True)


def describing(skills: Sequence[Skill]) -> Callable[[str], str]:
    """What agents are told of every tool, these skills among it."""

    def describe(name: str) -> str:
        text = from_prompts(name)
        return prompts.fill(text, skills=told(skills)) if name == SKILL else text

    return describe
