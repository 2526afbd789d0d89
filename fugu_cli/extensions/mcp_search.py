"""find_tools: MCP servers' tools by words, where there are too many to be offered with every call.

Below mcp_servers.py. Which tools an agent may call then follows from the log (session/views.py): those that a result of
find_tools names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fugu_cli import prompts
from fugu_cli.session.views import FIND_TOOLS
from fugu_cli.tools.result import Say, ToolResult, truncate
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace

MOST_SHOWN = 40
"""Tools of all servers together that are offered with every call. With more all of them have to be found."""
MOST_FOUND = 8
LONGEST_LINE = 200
"""Characters of a description that a result shows; the whole one is offered from then on."""
SCHEMA = '{"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}'


def deferred(tools: Sequence[Tool[RawArguments]]) -> tuple[Tool[RawArguments], ...]:
    """The tools, offered only once they were found, behind the one that finds them. As they are where they are few."""
    if len(tools) <= MOST_SHOWN:
        return tuple(tools)
    counts = Counter(tool.name.split("__")[1] for tool in tools)
    servers = ", ".join(f"{name} ({count})" for name, count in counts.items())
    found = Tool(
        name=FIND_TOOLS,
        effect="reads",
        arguments=RawArguments,
        run=partial(_find, tools),
        foreign=ForeignSpec(prompts.fill(prompts.load(f"tools/{FIND_TOOLS}"), servers=servers), SCHEMA),
        worker=True,
    )
    hidden = (replace(one, foreign=replace(one.foreign, deferred=True)) for one in tools if one.foreign is not None)
    return (found, *hidden)


async def _find(
    tools: Sequence[Tool[RawArguments]], arguments: RawArguments, workspace: Workspace, say: Say
) -> ToolResult:
    """The tools that fit best, each with what it does. Whole words of a name count most."""
    del workspace, say
    words = re.findall(r"[^\W_]+", str(arguments.values.get("query", "")).casefold())
    weights = {tool.name: _weight(tool, words) for tool in tools}
    best = sorted((tool for tool in tools if weights[tool.name]), key=lambda tool: -weights[tool.name])[:MOST_FOUND]
    if not best:
        return ToolResult(text="No tool fits. Try other words, or the name of a server.")
    return ToolResult(text="\n".join(_line(tool) for tool in best))


def _weight(tool: Tool[RawArguments], words: Sequence[str]) -> int:
    name, about = tool.name.casefold(), tool.foreign.description.casefold() if tool.foreign is not None else ""
    parts = set(re.findall(r"[^\W_]+", name))
    return sum(8 if word in parts else 4 if word in name else 1 if word in about else 0 for word in words)


def _line(tool: Tool[RawArguments]) -> str:
    about = " ".join(tool.foreign.description.split()) if tool.foreign is not None else ""
    return f"{tool.name}: {truncate(about, LONGEST_LINE)}"
