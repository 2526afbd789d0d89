"""The entries of `GET /v1/models`: what a client has to know of a model before it calls it.

Each entry has the fields of OpenAI's and of Anthropic's API (anthropic 2.14), and for the size also
the names that OpenRouter uses (`context_length`), which other clients read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from fugu_cli.server.single_agent import FUGU, ULTRA
from fugu_cli.session.events import Member
from fugu_cli.wires.client_requests import Json


def served_models(
    agents: Mapping[str, Member], limits: Mapping[str, int], created: int
) -> list[Json]:
    """Return an entry for each tier of the pool, then for each of its agents. `limits` are the
    longest replies that the configuration allows, in tokens, for agents that have such a limit.
    """
    bounded = {
        name: agent.model_copy(update={"max_tokens": limits.get(name, agent.max_tokens)})
        for name, agent in agents.items()
    }
    entries = [_entry(name, "fugu", [*bounded.values()], created) for name in (FUGU, ULTRA)]
    for name, agent in bounded.items():
        entries.append(_entry(name, agent.provider, [agent], created))
    return entries


def _entry(name: str, owner: str, agents: Sequence[Member], created: int) -> Json:
    """Return the entry of the model `name`, for which one of `agents` answers.

    Sizes are in tokens and abilities such that each of the agents has them: nobody knows which one
    will answer. Agents that can call no tools do not count where others can, since clients that
    look at sizes bring tools. `created` is in seconds since the epoch.
    """
    answering = [agent for agent in agents if agent.protocol != "text"] or list(agents)
    window = min(agent.context for agent in answering)
    output_limit = min(agent.max_tokens or agent.reply_room for agent in answering)
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": owner,
        "type": "model",
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created)),
        "display_name": name,
        "lifecycle": "active",
        "max_input_tokens": window,
        "max_tokens": output_limit,
        "context_length": window,
        "max_output_tokens": output_limit,
        "capabilities": _capabilities(
            pictures=all(agent.vision for agent in answering),
            effort=all(agent.reasoning for agent in answering),
        ),
    }


def _capabilities(pictures: bool, effort: bool) -> Json:
    """Return Anthropic's `capabilities`. PDFs are always readable, as text at least."""
    return {
        "batch": _supported(False),
        "citations": _supported(False),
        "code_execution": _supported(False),
        "context_management": _supported(False),
        "effort": {
            **_supported(effort),
            **{level: _supported(effort) for level in ("low", "medium", "high", "xhigh", "max")},
        },
        "image_input": _supported(pictures),
        "pdf_input": _supported(True),
        "server_tools": {
            **_supported(False),
            "web_search": _supported(False),
            "code_execution": _supported(False),
        },
        "structured_outputs": _supported(True),
        "thinking": {
            **_supported(effort),
            "types": {
                thinking_type: _supported(True)
                for thinking_type in ("adaptive", "between_tools", "disabled", "enabled")
            },
        },
    }


def _supported(value: bool) -> Json:
    return {"supported": value}
