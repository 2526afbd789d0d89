"""A decision's numbers in words: how often each agent is right, what it costs, which kind of request
it is, and which agent the cascade would have asked.
"""

from __future__ import annotations

from fugu_cli.coordinators.turn_costs import turn_cost_text
from fugu_cli.formatting import flatten, plural
from fugu_cli.session.events import AgentEstimate, Scores

SMALLEST_SHARE = 0.05
"""Kinds that are less likely than that are not named."""


def estimate_text(estimate: AgentEstimate, *, source: bool = True) -> str:
    """Return one agent's numbers; with `source` also where its success rate comes from."""
    own_outcomes = round(estimate.own_outcomes)
    basis = [estimate.source] if source else []
    if own_outcomes:
        basis.append(plural(own_outcomes, "outcome"))
    solves = f"solves {estimate.success_rate:.0%}"
    parts = [f"{solves} ({', '.join(basis)})" if basis else solves]
    if estimate.run_cost is not None:
        parts.append(f"{turn_cost_text(estimate.run_cost, estimate.run_turns)} a turn")
    if estimate.value is not None:
        parts.append(f"value {estimate.value:+.2f}")
    return f"{flatten(estimate.agent)}: {', '.join(parts)}"


def kind_text(scores: Scores) -> str:
    """Return the likeliest kinds of the request and how they are known, or why none was read."""
    if not scores.kinds:
        return scores.kinds_from
    likeliest, *others = sorted(scores.kinds, key=lambda pair: pair[1], reverse=True)
    shown = [likeliest, *(pair for pair in others if pair[1] >= SMALLEST_SHARE)]
    named = ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in shown)
    return f"kind: {named} ({scores.kinds_from})"


def cascade_text(scores: Scores) -> str:
    """Return which agent the cascade would have asked, "" where that is not recorded."""
    return f"the rule cascade would have asked {flatten(scores.rule)}" if scores.rule else ""
