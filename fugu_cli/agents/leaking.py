"""A tool call that came as text: the model made it, and its server has no parser for the form it is trained on.

Under openai.py. Nothing is read out of such a text: what it says has no ids and no end. Taken for an answer it would be
the last word of every turn, and nobody would know why nothing happens.
"""

from __future__ import annotations

import re

from fugu_cli.agents.access import Access
from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply

MARK = re.compile(
    r"^[ \t]*(?:<tool_call>|<function=|\[TOOL_CALLS\]|<\|tool_calls_section_begin\|>|<\|python_tag\|>"
    r"|<｜tool▁calls▁begin｜>)",
    re.MULTILINE,
)
"""What a call begins with for the models of Qwen, Z.ai, Mistral, Moonshot, Meta and DeepSeek."""
NEAR = 100
"""Characters behind a mark that name the tool."""


def checked(reply: Reply, prompt: Prompt, access: Access) -> Reply:
    """The reply. Raises AgentError where its text ends in a call of a tool that was offered, and it makes none."""
    if not reply.calls and reply.stop == "end" and _calls(reply.text, {tool.name for tool in prompt.tools}):
        error = AgentError(
            f"{access.name}: {access.host} sent a tool call of {access.model} as text",
            kind="protocol",
            retry=True,
            hint=f"Start the server with the tool-call parser of its model, or give the entry {access.name} in .fugurc"
            ' `protocol = "text"`.',
        )
        error.tries = 2
        raise error
    return reply


def _calls(text: str, tools: set[str]) -> bool:
    """Quoted in a fence, or with words below it, it is an example."""
    found = MARK.search(text)
    if found is None or text[: found.start()].count("```") % 2 or text.rstrip()[-1:] not in (">", "]", "}"):
        return False
    return not tools.isdisjoint(re.findall(r"[\w-]+", text[found.end() : found.end() + NEAR]))
