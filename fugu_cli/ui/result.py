"""How a request ended, for programs: the exit code and the one object that says it all.

The object has the shape of Claude Code's `result` line, so that scripts can be ported; what is fugu's own is under
`fugu`. Built from the facts alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli import views
from fugu_cli.events import Assigned, Compacted, Event, Member, Permitted, Planned, Recorded, Replied
from fugu_cli.messages import Call, Usage
from fugu_cli.views.spending import Paid

SUBTYPES = {
    "accepted": "success",
    "answered": "success",
    "unaccepted": "error_unaccepted",
    "turn_limit": "error_max_turns",
    "budget": "error_max_budget_usd",
    "time_limit": "error_time_limit",
    "interrupted": "interrupted",
    "denied": "error_permission_denied",
    "failed": "error_during_execution",
}
EXIT_CODES = {
    "accepted": 0,
    "answered": 0,
    "unaccepted": 3,
    "turn_limit": 3,
    "budget": 3,
    "time_limit": 3,
    "interrupted": 4,
    "denied": 4,
    "failed": 2,
}
"""`fugu help exit-codes`: 0 finished, 2 infrastructure, 3 a limit or not accepted, 4 aborted. 1 is usage."""


@dataclass(frozen=True)
class Ending:
    """How a run ended where the log may not say so: `reason` is a Finished reason, or what ended it instead."""

    reason: str
    message: str = ""


def ending(events: Sequence[Event], fallback: Ending | None = None) -> Ending:
    """The newest request's end; `fallback` (a crash, Ctrl-C) where it is not finished."""
    end = views.finished(events)
    if end is not None:
        return Ending(end.reason, end.message)
    return fallback or Ending("interrupted", "the request is not finished; `fugu run --continue` goes on with it")


def exit_code(reason: str) -> int:
    """The process's exit code for a Finished reason."""
    return EXIT_CODES[reason]


def result(
    records: Sequence[Recorded], session: str, end: Ending, *, since: int = 0, milliseconds: int | None = None
) -> dict[str, object]:
    """The final object. Counts what happened from line `since` on: this run, not the whole session.

    `milliseconds` is the run's own duration; without it the lines' times say it.
    """
    every = [record.event for record in records]
    members = views.pool(every)
    mine = [record.event for record in records if record.seq >= since]
    used = sum(views.usage(mine).values(), Usage())
    times = [record.at for record in records if record.seq >= since]
    span = int((times[-1] - times[0]) * 1000) if times else 0
    return {
        "type": "result",
        "subtype": SUBTYPES[end.reason],
        "is_error": EXIT_CODES[end.reason] != 0,
        "duration_ms": span if milliseconds is None else milliseconds,
        "duration_api_ms": int(sum(map(_seconds, mine)) * 1000),
        "num_turns": len(views.turns(every)),
        "result": views.answer(every),
        "session_id": session,
        "total_cost_usd": views.cost(mine, members),
        "usage": usage_object(used),
        "modelUsage": _by_model(mine, members),
        "permission_denials": [
            _denial(event.call) for event in mine if isinstance(event, Permitted) and not event.allowed
        ],
        "fugu": _own(every, end) | {"unpriced": list(views.unpriced(mine, members))},
    }


def usage_object(used: Usage) -> dict[str, int]:
    """Tokens in the names of the Messages API: `input_tokens` counts what no cache held."""
    return {
        "input_tokens": max(used.input - used.cached - used.written, 0),
        "cache_creation_input_tokens": used.written,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
    }


def _by_model(events: Sequence[Event], members: dict[str, Member]) -> dict[str, dict[str, object]]:
    """Every call that was paid for, by the model that served; where a fact names none, by the one its agent has
    answered with, or is to. The costs add up to `total_cost_usd`."""
    served: dict[str, str] = {}
    for event in events:
        if isinstance(event, Replied | Planned):
            served.setdefault(event.agent, event.model)
    models: dict[str, list[Paid]] = {}
    for event in events:
        if isinstance(event, Paid) and event.agent:
            member = members.get(event.agent)
            named = event.model if isinstance(event, Replied | Planned) else served.get(event.agent)
            models.setdefault(named or (member.model if member else event.agent), []).append(event)
    return {name: _model(calls, members) for name, calls in models.items()}


def _seconds(event: Event) -> float:
    return event.seconds if isinstance(event, Replied | Planned | Compacted) else 0.0


def _model(replies: Sequence[Paid], members: dict[str, Member]) -> dict[str, object]:
    used = sum((reply.usage for reply in replies), Usage())
    member = members.get(replies[0].agent)
    return {
        "inputTokens": max(used.input - used.cached - used.written, 0),
        "outputTokens": used.output,
        "cacheReadInputTokens": used.cached,
        "cacheCreationInputTokens": used.written,
        "costUSD": sum(views.price(reply, members.get(reply.agent)) for reply in replies),
        "contextWindow": member.context if member else 0,
    }


def _denial(call: Call) -> dict[str, object]:
    return {"tool_name": call.tool, "tool_use_id": call.id, "tool_input": arguments(call)}


def arguments(call: Call) -> dict[str, object]:
    """A call's arguments as an object; what does not parse as one is kept as text under `text`."""
    try:
        parsed = json.loads(call.arguments)
    except ValueError:
        return {"text": call.arguments}
    return parsed if isinstance(parsed, dict) else {"text": call.arguments}


def _orchestration(used: Usage) -> dict[str, int]:
    """What deciding and planning took themselves."""
    return {
        "orchestration_input_tokens": used.input,
        "orchestration_input_cached_tokens": used.cached,
        "orchestration_output_tokens": used.output,
    }


def _own(events: Sequence[Event], end: Ending) -> dict[str, object]:
    return {
        "reason": end.reason,
        "message": end.message,
        "end": views.end_line(events).text,
        "tests": views.test_facts(events),
        "changed": sorted(views.changes(events)),
        "failed_agents": views.failed_agents(events),
        "orchestration": _orchestration(views.orchestration(views.request(events))),
        "routing": [routing(turn.assigned) for turn in views.turns(events)],
    }


def routing(event: Assigned) -> dict[str, object]:
    """A decision as an object: who, in which role, by which rule, against whom, in how many milliseconds."""
    scores = event.scores
    return {
        "turn": event.turn,
        "agent": event.agent,
        "role": event.role,
        "by": event.by,
        "reason": event.reason,
        "override": event.override,
        "agents": dict(zip(scores.rows, scores.row_probabilities, strict=False)) if scores else {},
        "roles": dict(zip(("worker", "thinker", "verifier"), scores.role_probabilities, strict=False))
        if scores
        else {},
        "masked": dict(scores.masked) if scores else {},
        "milliseconds": round(event.milliseconds.total, 1),
    }
