"""A subagent as described in a file: Markdown with YAML front matter, in `.agents/agents` or
`.claude/agents`.

skill_library.py finds the files. Agents see the description of a subagent and may give it tasks;
each task has a context of its own that begins with the file's text. Tools have the names that hooks
use. Nothing is run or chosen here: engine/subtasks.py reads `model` as a wish.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from fugu_cli.extensions.hook_protocol import UNSUPPORTED_TOOLS
from fugu_cli.extensions.skills import (
    LONGEST_DESCRIPTION,
    LONGEST_NAME,
    DocumentError,
    FrontMatterDocument,
    printable,
    read_document,
)
from fugu_cli.messages import Effort
from fugu_cli.safety.policy import rule_matching
from fugu_cli.session.events import Member
from fugu_cli.session.tool_facts import MCP, TOOLS, tool_names

SUBAGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
SLOT_WISHES = {
    **{slot: slot for slot in ("cheap", "middle", "strong")},
    **{"haiku": "cheap", "sonnet": "middle", "opus": "strong"},
}
"""Values of `model` that name a slot, in fugu's words or in Claude Code's."""
INHERIT = "inherit"
"""The value of `model` for the agent that gives the task."""
BUILT_IN_AGENTS = frozenset({"", "general", "general-purpose"})
"""Names of the subagent that needs no file."""


@dataclass(frozen=True)
class Subagent:
    """`tools` may be used, None for all. `model` is the wanted agent, "" for any. `own`: it is the
    user's, not the repository's. `plugin` names the plugin that brings it.
    """

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None
    model: str
    effort: Effort
    file: Path
    own: bool
    plugin: str = ""


def subagent_at(file: Path, *, own: bool) -> Subagent:
    """Read a subagent; its name is the file's if the front matter has none. Raises DocumentError."""
    document, _ = read_document(file)
    if document.fields is None:
        raise DocumentError("it has no front matter: name and description between two lines `---`")
    name, description = document.text("name") or file.stem, document.text("description")
    if len(name) > LONGEST_NAME or SUBAGENT_NAME.fullmatch(name) is None:
        raise DocumentError(
            f"its name {printable(name[:LONGEST_NAME])!r} is not letters, digits, `-` and `_`"
        )
    if name in BUILT_IN_AGENTS:
        raise DocumentError(f"{name} is the subagent that is always there: give it another name")
    if not description:
        raise DocumentError("its `description` is missing: agents choose by it")
    if not document.body:
        raise DocumentError("it says nothing below its front matter")
    return Subagent(
        name=name,
        description=printable(description)[:LONGEST_DESCRIPTION],
        body=document.body,
        tools=_tools(document),
        model=document.text("model"),
        effort=_effort(document.text("effort")),
        file=file,
        own=own,
    )


def _effort(text: str) -> Effort:
    effort: Effort | None = next((level for level in get_args(Effort) if level == text), None)
    if effort is None:
        raise DocumentError(
            f"its `effort` is {text!r}: one of {', '.join(filter(None, get_args(Effort)))}"
        )
    return effort


def _tools(document: FrontMatterDocument) -> tuple[str, ...] | None:
    """Return the tools by fugu's names, None for all. Tools that fugu lacks are left out."""
    allowed = _listed(document, "tools")
    disallowed = _listed(document, "disallowedTools")
    if allowed in ([], ["*"]):
        if disallowed:
            raise DocumentError(
                "it has `disallowedTools` alone: name the tools it may use in `tools`"
            )
        return None
    tools = dict.fromkeys(tool for name in allowed for tool in _tools_called(name))
    if {"edit", "write"} <= tools.keys():
        tools["apply_patch"] = None
    excluded = {tool for name in disallowed for tool in _tools_called(name)}
    return tuple(tool for tool in tools if tool not in excluded)


def _listed(document: FrontMatterDocument, key: str) -> list[str]:
    """Return a field that is a list, or words separated by spaces or commas."""
    value = (document.fields or {}).get(key) or ""
    names = value if isinstance(value, list) else re.split(r"[\s,]+", str(value))
    stripped = [str(name).strip() for name in names]
    return [name for name in stripped if name]


def _tools_called(name: str) -> Collection[str]:
    ours = [tool.name for tool in TOOLS.values() if name in tool.claude_code]
    if ours or name in UNSUPPORTED_TOOLS:
        return ours
    if name in tool_names() or name.startswith(MCP):
        return (name,)
    if "(" in name:
        raise DocumentError(
            f"its `tools` hold {printable(name)!r}: name a tool alone; rules stand in permissions"
        )
    raise DocumentError(
        f"its `tools` name one that is not there: {rule_matching.unknown_tool(name)}"
    )


def named_agents(model: str, members: Collection[Member]) -> list[str]:
    """Return the agents of the pool with this name, else those with this model."""
    by_name = [member.name for member in members if member.name == model]
    return by_name or [member.name for member in members if member.model == model]


def unknown_models(subagents: Sequence[Subagent], members: Collection[Member]) -> list[str]:
    """Return a sentence for each subagent whose `model` names no agent of the pool."""
    return [
        f"{subagent.file}: no agent of the pool is called {subagent.model}; the coordinator chooses who "
        f"does its tasks"
        for subagent in subagents
        if subagent.model not in ("", INHERIT, *SLOT_WISHES)
        and not named_agents(subagent.model, members)
    ]
