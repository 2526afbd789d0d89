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
from fugu_cli.session.events import Asked, Assigned, Event, Member, Replied
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
    """The size of the next prompt of an agent. `parts` are tokens by name, in the order of PARTS,
    without empty ones. `cached` are the tokens that its provider has seen before. `dollars` is the
    price of reading the prompt, None if unknown. `counted`: the provider counted the tokens, they
    are not a guess.
    """

    agent: str
    parts: dict[str, int]
    window: int
    cached: int
    dollars: float | None
    counted: bool

    @property
    def tokens(self) -> int:
        """Of the whole prompt."""
        return sum(self.parts.values())


def context_use(
    state: SessionState, team: Team, environment: Environment, only: str = ""
) -> tuple[ContextUse, ...]:
    """Return the context use of each agent in the pool's order, or of the agent `only`."""
    members = [member for member in team.members.values() if only in ("", member.name)]
    return tuple(_use(state, member, team, environment) for member in members)


def _use(state: SessionState, member: Member, team: Team, environment: Environment) -> ContextUse:
    sizes = _sizes(_next_prompt(state, member, team, environment), environment)
    rate, cached = 1 / BYTES, 0
    inside = state.lines_of_subtasks  # their prompts are others
    places = (at for at in range(len(state.events) - 1, -1, -1) if at not in inside)
    index = next((at for at in places if _answered(state.events[at], member)), None)
    newest = None if index is None else state.events[index]
    if index is not None and isinstance(newest, Replied):
        before = _sizes(
            _prompt(SessionState(state.events[:index]), member, team, environment), environment
        )
        text = sum(before.values()) - before["pictures"]
        rate = max(newest.usage.input - before["pictures"] / BYTES, 0) / text if text else rate
        cached = newest.usage.input if newest.usage.cached or newest.usage.written else 0
    parts = {
        name: round(size * (1 / BYTES if name == "pictures" else rate))
        for name, size in sizes.items()
    }
    parts = {name: parts[name] for name in PARTS if parts.get(name)}
    total = sum(parts.values())
    cached = min(cached, total)
    dollars = (
        usd(Usage(input=total, cached=cached), member.price) if member.price is not None else None
    )
    return ContextUse(member.name, parts, member.context, cached, dollars, index is not None)


def _answered(event: Event, member: Member) -> bool:
    return isinstance(event, Replied) and event.agent == member.name and event.usage.input > 0


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


def _sizes(prompt: Prompt, environment: Environment) -> Counter[str]:
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
