"""Sums up a request for its last block: who accepted it, tests, files and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fugu_cli.coordinators.action_space import blended_price
from fugu_cli.formatting import compact_number, flatten, known_cost, money, plural
from fugu_cli.session import costs
from fugu_cli.session.costs import paid_for_checking
from fugu_cli.session.events import (
    Assigned,
    Event,
    Failed,
    Finished,
    Member,
    Opened,
    OutcomesKnown,
)
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.verdicts import UNREACHABLE_HINT, EndLine, end_line, verified_by
from fugu_cli.ui.blocks import RequestSummary


def summarize_request(
    finished: Finished,
    events: Sequence[Event],
    opened: Opened | None,
    outcomes: OutcomesKnown,
) -> RequestSummary:
    """Return the summary of a request.

    `events` are its events up to its end, `opened` holds the prices, and `outcomes` is what the
    session knew of its agents when the user asked.
    """
    request = RequestState(events)
    usage = costs.usage(events).values()
    members = {member.name: member for member in opened.pool} if opened is not None else {}
    line = end_line(request)
    why = finished.message
    failures = [failure for failure in events if isinstance(failure, Failed)]
    if finished.reason == "failed" and failures:
        # the line of the failure ends with its hint
        why = "" if failures[-1].hint else "`fugu pool check` tries each agent"
    if finished.unreachable:
        line = EndLine((f"no connection to {', '.join(finished.unreachable)}",), "bad")
        why = UNREACHABLE_HINT
    turns = [event for event in events if isinstance(event, Assigned)]
    subtasks = sum(turn.subtask is not None for turn in turns)
    return RequestSummary(
        line,
        turns=len(turns) - subtasks,
        subtasks=subtasks,
        tokens=sum(used.input + used.output for used in usage),
        cost=_cost(events, members),
        by_other=verified_by(request) is not None,
        files=len(request.changes),
        why=why,
        checking=_checking_cost(events, members),
        alone=_cost_alone(request, members, outcomes),
    )


def _cost(events: Sequence[Event], members: Mapping[str, Member]) -> str:
    return known_cost(
        costs.cost(events, members),
        unpriced=bool(costs.unpriced(events, members)),
        estimated=costs.is_estimated(events, members),
    )


def _checking_cost(events: Sequence[Event], members: Mapping[str, Member]) -> str:
    """Return the tokens and cost of the request's Verifiers, "" if there was none."""
    calls = paid_for_checking(events)
    if not calls:
        return ""
    tokens = sum(call.usage.input + call.usage.output for call in calls)
    return f"{compact_number(tokens)} tokens, {_cost(calls, members)}"


LEAST_REQUESTS = 5
"""The smallest number of an agent's requests from which the cost of one is estimated."""


def _cost_alone(
    request: RequestState, members: Mapping[str, Member], outcomes: OutcomesKnown
) -> str:
    """Return the mean cost of the requests that the dearest agent has worked on alone, for
    comparison with this one.

    Return "" if there are too few, if it is the only agent at work now, or if this request changed
    no file: the others did.
    """
    priced = [member for member in members.values() if member.price is not None]
    if not priced or not request.changes:
        return ""
    dearest = max(priced, key=lambda member: blended_price(member.price))
    counts = [count for count in outcomes.counts if count.agent == dearest.name]
    requests = sum(count.solo_requests for count in counts)
    others_worked = bool(costs.usage(request.events).keys() - {dearest.name})
    if round(requests) < LEAST_REQUESTS or not others_worked:
        return ""
    mean = money(sum(count.solo_cost for count in counts) / requests)
    basis = f"mean of {plural(round(requests), 'request')}"
    return f"{flatten(dearest.name)} alone ~{mean} ({basis})"
