"""Estimates the cost of an agent's next turn in a role, as people are told it.

The mean of the agent's own turns in that role is used where it has any: of earlier requests, as
`OutcomesKnown` has them, and of the running one. Otherwise the tokens that other agents needed here
are taken at the agent's price. Without any turn the cost is that of a usual number of model calls,
of which each reads the prompt of the one before from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.coordinators.action_space import blended_price
from fugu_cli.formatting import money
from fugu_cli.messages import Usage
from fugu_cli.session.costs import cost, usd
from fugu_cli.session.events import Asked, Member, OutcomeCount, Replied, Role
from fugu_cli.session.open_work import BYTES, byte_size
from fugu_cli.session.state import SessionState

USUAL_CALLS: Mapping[Role, int] = {"worker": 10, "thinker": 5, "verifier": 2}
"""Model calls of a turn, where no turn was seen yet."""
STANDING_TOKENS = 4_000
"""Tokens of the system prompt and the tools, where no prompt was counted yet."""
RESULT_TOKENS, REPLY_TOKENS = 1_200, 250
"""Tokens that a model call adds to the next prompt by its tools' results, and that it writes."""


@dataclass(frozen=True)
class ExpectedCost:
    """The expected cost of a turn (USD). `turns` are the agent's own turns that it is the mean of; 0
    for an estimate. `call` is the estimated cost of the turn's first model call.
    """

    dollars: float
    call: float
    turns: float = 0.0

    @property
    def text(self) -> str:
        """The cost in words: `$0.0149 a turn`, or `about $0.03 a turn` for an estimate."""
        return f"{turn_cost_text(self.dollars, self.turns)} a turn"


def turn_cost_text(dollars: float, turns: float) -> str:
    """Return a turn's cost in words. An estimate is rounded to two digits."""
    if turns > 0 or dollars <= 0:
        return money(dollars)
    return f"about {rounded_money(dollars)}"


def rounded_money(dollars: float) -> str:
    """Return an amount rounded to two digits."""
    if dollars <= 0:
        return money(dollars)
    digits = 1 - math.floor(math.log10(dollars))
    rounded = round(dollars, digits)
    return f"${rounded:.{max(digits, 2)}f}" if rounded < 0.1 else money(rounded)


@dataclass(frozen=True)
class _Spent:
    """The turns of an agent in the role, and their cost (USD) together."""

    agent: str
    turns: float
    dollars: float


def expected_turn_costs(
    state: SessionState,
    members: Sequence[Member],
    role: Role,
    counts: Sequence[OutcomeCount],
    kinds: Mapping[str, float],
) -> dict[str, ExpectedCost]:
    """Return the expected cost of the next turn of each agent with a price. `kinds` are the
    probabilities of the request's kind, empty where it was not read.
    """
    priced = {member.name: member for member in members if member.price is not None}
    spent = [*_earlier_turns(counts, role, kinds), *_turns_of_session(state, priced, role)]
    guess = _guessed_usage(state, role)
    costs = {}
    for name, member in priced.items():
        call = usd(_first_call(state, name), member.price)
        own = [item for item in spent if item.agent == name]
        own_turns = sum(item.turns for item in own)
        if own_turns > 0:
            dollars = sum(item.dollars for item in own) / own_turns
            costs[name] = ExpectedCost(dollars, call, own_turns)
            continue
        others = _tokens_of_others(spent, priced)
        if others:
            costs[name] = ExpectedCost(others * blended_price(member.price) / 1e6, call)
        else:
            costs[name] = ExpectedCost(usd(guess, member.price), call)
    return costs


def _earlier_turns(
    counts: Sequence[OutcomeCount], role: Role, kinds: Mapping[str, float]
) -> list[_Spent]:
    """Return the Workers' turns of earlier requests; those of the request's kind where an agent has
    some.
    """
    if role != "worker":
        return []
    spent = []
    for agent in dict.fromkeys(count.agent for count in counts):
        own = [count for count in counts if count.agent == agent and count.turns > 0]
        of_kind = sum(count.turns * kinds.get(count.kind, 0.0) for count in own)
        for count in own:
            turns = count.turns
            if of_kind >= 1:
                turns *= kinds.get(count.kind, 0.0)
            spent.append(_Spent(agent, turns, turns * count.mean_cost))
    return spent


def _turns_of_session(
    state: SessionState, members: Mapping[str, Member], role: Role
) -> list[_Spent]:
    """Return the session's turns in the role that ended with a reply. Workers' turns of earlier
    requests are among the outcomes.
    """
    requests = [state.request] if role == "worker" else state.requests
    spent = []
    for request in requests:
        for turn in request.turns:
            agent = turn.assigned.agent
            if turn.assigned.role != role or turn.assigned.subtask or not turn.replies:
                continue
            dollars = cost(turn.events, members)
            if agent in members and not turn.failed and not turn.interrupted and dollars:
                spent.append(_Spent(agent, 1.0, dollars))
    return spent


def _tokens_of_others(spent: Sequence[_Spent], members: Mapping[str, Member]) -> float:
    """Return the tokens of a turn at the blended price, the mean of all turns; 0 without any."""
    tokens = turns = 0.0
    for item in spent:
        price = blended_price(members[item.agent].price) if item.agent in members else 0.0
        if price:
            tokens += item.dollars / price * 1e6
            turns += item.turns
    return tokens / turns if turns else 0.0


def _guessed_usage(state: SessionState, role: Role) -> Usage:
    """Return the usage of a turn with the usual number of calls, by the size of the prompt."""
    prompt, calls = _prompt_tokens(state), USUAL_CALLS[role]
    added = RESULT_TOKENS + REPLY_TOKENS
    cached = sum(prompt + added * index for index in range(calls - 1))
    fresh = prompt + added * (calls - 1)
    return Usage(input=cached + fresh, cached=cached, output=REPLY_TOKENS * calls)


def _first_call(state: SessionState, agent: str) -> Usage:
    """Return the expected usage of the agent's next model call. What its newest reply found in the
    provider's cache is expected there again.
    """
    prompt = _prompt_tokens(state)
    cached = 0
    for event in reversed(state.events):
        if isinstance(event, Replied) and event.agent == agent:
            cached = min(event.usage.cached, prompt)
            break
    return Usage(input=prompt, cached=cached, output=REPLY_TOKENS)


def _prompt_tokens(state: SessionState) -> int:
    """Return the tokens of the newest prompt and its reply, or a guess from the request's texts."""
    for event in reversed(state.events):
        if isinstance(event, Replied) and event.usage.input:
            return event.usage.input + event.usage.output
    asked = state.request.asked or Asked(text="")
    texts = [asked.text, asked.skill, asked.piped, asked.repository_map]
    texts += [memory.text for memory in asked.memory]
    return STANDING_TOKENS + round(sum(byte_size(text) for text in texts) / BYTES)
