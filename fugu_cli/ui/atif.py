"""A session as an ATIF trajectory (Agent Trajectory Interchange Format, v1.8), which benchmark harnesses read. Pure.

One step a fact that says something: requests are `user`, replies `agent` with the model that served and what it cost,
decisions and fugu's own test runs `system`. Results of an agent's calls stand in the step that made them. What ATIF has
no field for (probabilities, roles, masks) is under `extra`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fugu_cli import views
from fugu_cli.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    Member,
    Permitted,
    Recorded,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.messages import Usage
from fugu_cli.ui.render import describe, job_ended
from fugu_cli.ui.result import arguments, routing

VERSION = "ATIF-v1.8"
Object = dict[str, object]


def trajectory(records: Sequence[Recorded], session: str) -> Object:
    """The whole document; every session with an Opened line has at least one step."""
    events = [record.event for record in records]
    opened = views.opened(events)
    members = views.pool(events)
    steps: list[Object] = []
    for record in records:
        body = _step(record.event, events, members)
        if body is not None:
            at = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds")
            steps.append({"step_id": len(steps) + 1, "timestamp": at, **body})
    used = sum(views.usage(events).values(), Usage())
    return {
        "schema_version": VERSION,
        "session_id": session,
        "trajectory_id": session,
        "agent": {
            "name": "fugu",
            "version": opened.version if opened else "",
            "extra": {
                "coordinator": opened.coordinator if opened else "",
                "pool": [member.model_dump(mode="json") for member in members.values()],
            },
        },
        "steps": steps or [{"step_id": 1, "source": "system", "message": "nothing was asked"}],
        "final_metrics": {
            "total_prompt_tokens": used.input,
            "total_completion_tokens": used.output,
            "total_cached_tokens": used.cached,
            "total_cost_usd": views.cost(events),
            "total_steps": max(len(steps), 1),
        },
    }


def _step(event: Event, events: Sequence[Event], members: dict[str, Member]) -> Object | None:
    match event:
        case Asked():
            return {"source": "user", "message": event.whole}
        case Assigned():
            message = f"turn {event.turn}: {event.agent} as {event.role}"
            return {"source": "system", "message": message, "extra": {"routing": routing(event)}}
        case Replied():
            return _reply(event, events, members.get(event.agent))
        case ToolRan() if _by_fugu(event, events):
            result = {"content": event.output, "extra": {"ok": event.ok, "seconds": event.seconds}}
            message = f"fugu ran {describe(event.call)}"
            return {"source": "system", "message": message, "observation": {"results": [result]}}
        case Failed() | Undone() | Interrupted() | Finished() | JobEnded():
            return {"source": "system", "message": _notice(event)}
        case _:
            return None


def _notice(event: Failed | Undone | Interrupted | Finished | JobEnded) -> str:
    match event:
        case Failed():
            return f"{event.what} failed: {event.message}"
        case Undone():
            return f"files were put back: {event.reason}"
        case Interrupted():
            return "interrupted"
        case Finished():
            return f"finished: {event.reason} {event.message}".strip()
        case JobEnded():
            return job_ended(event)


def _by_fugu(event: ToolRan, events: Sequence[Event]) -> bool:
    return any(isinstance(e, Permitted) and e.by == EVIDENCE and e.call.id == event.call.id for e in events)


def _reply(event: Replied, events: Sequence[Event], member: Member | None) -> Object:
    step: Object = {
        "source": "agent",
        "model_name": event.model or (member.model if member else event.agent),
        "message": event.text,
        "metrics": {
            "prompt_tokens": event.usage.input,
            "completion_tokens": event.usage.output,
            "cached_tokens": event.usage.cached,
            "cost_usd": views.price(event, member),
        },
        "llm_call_count": 1,
        "extra": {"agent": event.agent, "turn": event.turn, "seconds": event.seconds, "stop": event.stop},
    }
    thinking = "\n".join(block.text for block in event.thinking if block.text)
    if thinking:
        step["reasoning_content"] = thinking
    if event.calls:
        step["tool_calls"] = [
            {"tool_call_id": call.id, "function_name": call.tool, "arguments": arguments(call)} for call in event.calls
        ]
        step["observation"] = {"results": _results(event, events)}
    return step


def _results(event: Replied, events: Sequence[Event]) -> list[Object]:
    """One result a call; a call that was refused or never came back says so."""
    start = next(index for index, fact in enumerate(events) if fact is event)
    after = events[start:]
    found: list[Object] = []
    for call in event.calls:
        ran = next((fact for fact in after if isinstance(fact, ToolRan) and fact.call.id == call.id), None)
        asked = next((fact for fact in after if isinstance(fact, Permitted) and fact.call.id == call.id), None)
        if ran is not None:
            text, extra = ran.output, {"ok": ran.ok, "seconds": ran.seconds}
        elif asked is not None and not asked.allowed:
            text, extra = f"Not allowed: {asked.reason}", {"ok": False, "seconds": 0.0}
        else:
            text, extra = "No result: the run was cut off.", {"ok": False, "seconds": 0.0}
        found.append({"source_call_id": call.id, "content": text, "extra": extra})
    return found
