"""A subagent as its file says it: Markdown with YAML front matter, in `.agents/agents` or
`.claude/agents`.

Below skill_library.py, which finds the files. A subagent is described to agents, and does tasks in
a context of its own: the file's text is told to whoever does one. Its tools are named as hooks name
them. Here nothing is run, and nobody is chosen: `model` is a wish that engine/subtasks.py reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from fugu_cli.extensions.hook_protocol import CLAUDE_CODE_NAMES, UNSUPPORTED_TOOLS
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

SUBAGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
SLOT_WISHES = {
    **{slot: slot for slot in ("cheap", "middle", "strong")},
    **{"haiku": "cheap", "sonnet": "middle", "opus": "strong"},
}
"""What a `model` may say instead of an agent's name: a slot, in fugu's words or in Claude
Code's.
"""
INHERIT = "inherit"
"""As `model`: the agent that asks for the task."""
BUILT_IN_AGENTS = frozenset({"", "general", "general-purpose"})
"""Names by which an agent asks for a task that no file describes."""


@dataclass(frozen=True)
class Subagent:
    """`tools`: those it may use, None for all. `model`: who is wanted for its tasks, "" for nobody
    in particular. `own`: it is the user's, not the repository's."""

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None
    model: str
    effort: Effort
    file: Path
    own: bool


def subagent_at(file: Path, *, own: bool) -> Subagent:
    """The subagent in a file; its name is the file's where the front matter has none. Raises
    DocumentError.
    """
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


def _effort(said: str) -> Effort:
    effort: Effort | None = next((known for known in get_args(Effort) if known == said), None)
    if effort is None:
        raise DocumentError(
            f"its `effort` is {said!r}: one of {', '.join(filter(None, get_args(Effort)))}"
        )
    return effort


def _tools(document: FrontMatterDocument) -> tuple[str, ...] | None:
    """The tools by fugu's names; None where all are meant. What fugu does not have is left out."""
    given, without = (_listed(document, key) for key in ("tools", "disallowedTools"))
    if given in ([], ["*"]):
        if without:
            raise DocumentError(
                "it has `disallowedTools` alone: name the tools it may use in `tools`"
            )
        return None
    found = dict.fromkeys(tool for name in given for tool in _tools_called(name))
    if {"edit", "write"} <= found.keys():
        found["apply_patch"] = None
    out = {tool for name in without for tool in _tools_called(name)}
    return tuple(tool for tool in found if tool not in out)


def _listed(document: FrontMatterDocument, key: str) -> list[str]:
    """A field that is a list, or a text of words with commas between them."""
    found = (document.fields or {}).get(key) or ""
    names = found if isinstance(found, list) else re.split(r"[\s,]+", str(found))
    return [name for one in names if (name := str(one).strip())]


def _tools_called(name: str) -> Collection[str]:
    ours = [tool for tool, theirs in CLAUDE_CODE_NAMES.items() if name in theirs]
    if ours or name in UNSUPPORTED_TOOLS:
        return ours
    if name in rule_matching.known_tools() or name.startswith(rule_matching.MCP):
        return (name,)
    if "(" in name:
        raise DocumentError(
            f"its `tools` hold {printable(name)!r}: name a tool alone; rules stand in permissions"
        )
    raise DocumentError(
        f"its `tools` name one that is not there: {rule_matching.unknown_tool(name)}"
    )


def named_agents(model: str, members: Collection[Member]) -> list[str]:
    """The agents of a pool that a `model` means: those of this name, else those of this model."""
    by_name = [member.name for member in members if member.name == model]
    return by_name or [member.name for member in members if member.model == model]


def unknown_models(subagents: Sequence[Subagent], members: Collection[Member]) -> list[str]:
    """A sentence for each subagent whose `model` is nobody in the pool."""
    return [
        f"{one.file}: no agent of the pool is called {one.model}; the coordinator chooses who "
        f"does its tasks"
        for one in subagents
        if one.model not in ("", INHERIT, *SLOT_WISHES) and not named_agents(one.model, members)
    ]
