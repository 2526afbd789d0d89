"""The parts of an agent's next prompt and their cost, for `/context`.

Builds the prompt as a turn would, and measures it. Tokens are scaled by what the agent's provider
counted for its newest call in this session; without a call they are a guess.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fugu_cli.coordinators import action_space
from fugu_cli.engine import harness
from fugu_cli.engine.environment import Environment, Team
from fugu_cli.engine.message_history import MAP_HEADING, MEMORY_HEADING
from fugu_cli.messages import FromAgent, FromTool, FromUser, Prompt, Usage
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Asked, Assigned, Member, Replied
from fugu_cli.session.open_work import BYTES, byte_size
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import MCP, facts_of

PARTS = (
    "system prompt",
    "instructions",
    "tools",
    "MCP tools",
    "repository map",
    "memory",
    "files read",
    "tool results",
    "conversation",
    "pictures",
)


@dataclass(frozen=True)
class ContextUse:
    """The size of an agent's next prompt.

    `parts` are tokens by name, in the order of PARTS, without empty ones. `cached` are the tokens
    that the provider has in its cache. `dollars` is the price of reading the prompt, None if
    unknown. `counted`: the numbers are based on the provider's own count, not on a guess.
    """

    agent: str
    parts: dict[str, int]
    window: int
    cached: int
    dollars: float | None
    counted: bool

    @property
    def tokens(self) -> int:
        """The tokens of the whole prompt."""
        return sum(self.parts.values())


def context_use(
    state: SessionState, team: Team, environment: Environment, only: str = ""
) -> tuple[ContextUse, ...]:
    """Return the context use of each agent in the pool's order, or of the agent `only`."""
    members = [member for member in team.members.values() if only in ("", member.name)]
    return tuple(_use(state, member, team, environment) for member in members)


def _use(state: SessionState, member: Member, team: Team, environment: Environment) -> ContextUse:
    """Return the agent's context use. Its newest reply tells how many tokens a byte of text takes,
    and whether the provider has a cache.
    """
    tokens_per_byte = 1 / BYTES
    cached = 0
    index = _newest_counted_reply(state, member)
    if index is not None:
        reply = state.events[index]
        assert isinstance(reply, Replied)
        earlier = SessionState(state.events[:index])
        sizes = _part_sizes(_prompt(earlier, member, team, environment), environment)
        text_tokens = max(reply.usage.input - sizes["pictures"] / BYTES, 0)
        text_bytes = sum(sizes.values()) - sizes["pictures"]
        if text_bytes:
            tokens_per_byte = text_tokens / text_bytes
        if reply.usage.cached or reply.usage.written:
            cached = reply.usage.input
    sizes = _part_sizes(_next_prompt(state, member, team, environment), environment)
    parts = {}
    for name in PARTS:
        rate = 1 / BYTES if name == "pictures" else tokens_per_byte
        tokens = round(sizes[name] * rate)
        if tokens:
            parts[name] = tokens
    total = sum(parts.values())
    cached = min(cached, total)
    dollars = None
    if member.price is not None:
        dollars = usd(Usage(input=total, cached=cached), member.price)
    return ContextUse(member.name, parts, member.context, cached, dollars, index is not None)


def _newest_counted_reply(state: SessionState, member: Member) -> int | None:
    """Return the index of the agent's newest reply whose tokens the provider counted, None for
    none. Subtasks are left out, because their prompts are different.
    """
    for index in range(len(state.events) - 1, -1, -1):
        event = state.events[index]
        if index in state.lines_of_subtasks or not isinstance(event, Replied):
            continue
        if event.agent == member.name and event.usage.input > 0:
            return index
    return None


def _next_prompt(
    state: SessionState, member: Member, team: Team, environment: Environment
) -> Prompt:
    """Return the agent's prompt as if the user asked something now."""
    events = state.events
    is_running = state.request.asked is not None and state.request.finished is None
    if not is_running:
        events = [*events, Asked(text="")]
    turn = Assigned(
        turn=action_space.next_turn_number(SessionState(events)),
        agent=member.name,
        role="worker",
        by="user",
    )
    return _prompt(SessionState((*events, turn)), member, team, environment)


def _prompt(state: SessionState, member: Member, team: Team, environment: Environment) -> Prompt:
    offered = harness.offered_tools(state, environment)
    return harness.build_prompt(state, member, offered, environment.instructions)


def _part_sizes(prompt: Prompt, environment: Environment) -> Counter[str]:
    """Count the prompt's bytes by part."""
    instructions = byte_size(environment.instructions.strip())
    sizes = Counter(
        {
            "system prompt": max(byte_size(prompt.system) - instructions, 0),
            "instructions": instructions,
        }
    )
    for tool in prompt.tools:
        part = "MCP tools" if tool.name.startswith(MCP) else "tools"
        sizes[part] += byte_size(tool.name + tool.description + tool.parameters)
    for message in prompt.messages:
        match message:
            case FromTool():
                part = "files read" if facts_of(message.tool).reads_files else "tool results"
                sizes[part] += byte_size(message.text)
            case FromUser():
                before, heading, memory = message.text.partition(MEMORY_HEADING)
                sizes["memory"] += byte_size(heading + memory)
                text, heading, repository_map = before.partition(MAP_HEADING)
                sizes["repository map"] += byte_size(heading + repository_map)
                sizes["conversation"] += byte_size(text)
            case FromAgent():
                calls = sum(byte_size(call.tool + call.arguments) for call in message.calls)
                sizes["conversation"] += byte_size(message.text) + calls
    sizes["pictures"] = int(sum(item.tokens for item in prompt.media) * BYTES)
    return sizes
