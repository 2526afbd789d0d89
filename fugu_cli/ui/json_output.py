"""The exit code, the result object and the `stream-json` lines of a run, in the format of Claude
Code. Pure functions.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fugu_cli import __version__
from fugu_cli.engine.structured_answer import answer_fault, answer_value
from fugu_cli.errors import FuguError
from fugu_cli.messages import Call, Usage
from fugu_cli.session import costs
from fugu_cli.session.costs import PaidEvent, estimate_field, orchestration_usage
from fugu_cli.session.events import (
    Assigned,
    Compacted,
    Event,
    Failed,
    Interrupted,
    JobEnded,
    Member,
    Merged,
    Permitted,
    Planned,
    PluginUse,
    Recorded,
    Replied,
    Steered,
    SteeringGiven,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Live, Retried, TextStreamed, ThoughtStreamed, Waiting
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.verdicts import end_line, test_summary, verified_by
from fugu_cli.system.bounded_json import parse_json

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
WRONG_ANSWER = "error_max_structured_output_retries"
"""The subtype of an end without acceptance, where the answer does not follow the user's schema."""
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
"""`fugu help output`: 0 finished, 2 infrastructure, 3 a limit or not accepted, 4 aborted. 1 is
usage.
"""


@dataclass(frozen=True)
class RunEnding:
    """The end of a run that its log may not contain. `reason` is a reason of Finished or another
    one.
    """

    reason: str
    message: str = ""


def run_ending(state: SessionState, fallback: RunEnding | None = None) -> RunEnding:
    """Return the newest request's end, `fallback` (a crash, Ctrl-C) if it is not finished."""
    end = state.request.finished
    if end is not None:
        return RunEnding(end.reason, end.message)
    return fallback or RunEnding(
        "interrupted", "the request is not finished; `fugu run --continue` goes on with it"
    )


def exit_code(reason: str) -> int:
    """Return the process's exit code for a reason of Finished."""
    return EXIT_CODES[reason]


def result_object(
    state: SessionState,
    records: Sequence[Recorded],
    session: str,
    end: RunEnding,
    *,
    since: int = 0,
    milliseconds: int | None = None,
    ignored: Sequence[str] = (),
) -> dict[str, object]:
    """Return the final object of this run, which began at line `since` of the log. `state` is that of
    the `records`.

    `milliseconds` is the run's duration; without it the times of the lines are used. `ignored` are
    files that were not read because the user does not trust the folder.
    """
    request, members = state.request, state.pool
    mine = [record.event for record in records if record.seq >= since]
    used = sum(costs.usage(mine).values(), Usage())
    times = [record.at for record in records if record.seq >= since]
    schema = request.asked.answer_schema if request.asked is not None else ""
    wrong = answer_fault(schema, request.answer) if schema else ""
    span = int((times[-1] - times[0]) * 1000) if times else 0
    return {
        "type": "result",
        "subtype": WRONG_ANSWER if wrong and end.reason == "unaccepted" else SUBTYPES[end.reason],
        "is_error": EXIT_CODES[end.reason] != 0,
        "duration_ms": span if milliseconds is None else milliseconds,
        "duration_api_ms": int(sum(map(_seconds, mine)) * 1000),
        "num_turns": len(request.turns),
        "result": request.answer,
        **({"structured_output": answer_value(request.answer)} if schema and not wrong else {}),
        "session_id": session,
        "total_cost_usd": costs.cost(mine, members),
        **estimate_field(mine, members),
        "usage": usage_object(used),
        "modelUsage": _by_model(mine, members),
        "permission_denials": [
            {
                "tool_name": event.call.tool,
                "tool_use_id": event.call.id,
                "tool_input": arguments_object(event.call),
            }
            for event in mine
            if isinstance(event, Permitted) and not event.allowed
        ],
        "fugu": {
            **_fugu_fields(state, end),
            "unpriced": list(costs.unpriced(mine, members)),
            "ignored": list(ignored),
        },
    }


def usage_object(used: Usage) -> dict[str, int]:
    """Return tokens under the names of the Messages API. `input_tokens` are those that no cache
    held.
    """
    return {
        "input_tokens": max(used.input - used.cached - used.written, 0),
        "cache_creation_input_tokens": used.written,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
    }


def _by_model(
    events: Sequence[Event], members: Mapping[str, Member]
) -> dict[str, dict[str, object]]:
    """Return the paid calls by serving model. They add up to `total_cost_usd`.

    If an event names no model, the one of its agent's other replies counts, else the agent's
    configured model.
    """
    served: dict[str, str] = {}
    for event in events:
        if isinstance(event, Replied | Planned):
            served.setdefault(event.agent, event.model)
    models: dict[str, list[PaidEvent]] = {}
    for event in events:
        if isinstance(event, PaidEvent) and event.agent:
            member = members.get(event.agent)
            named = event.model if isinstance(event, Replied | Planned) else served.get(event.agent)
            models.setdefault(named or (member.model if member else event.agent), []).append(event)
    return {name: _model(calls, members) for name, calls in models.items()}


def _seconds(event: Event) -> float:
    return event.seconds if isinstance(event, Replied | Planned | Compacted) else 0.0


def _model(replies: Sequence[PaidEvent], members: Mapping[str, Member]) -> dict[str, object]:
    used = sum((reply.usage for reply in replies), Usage())
    member = members.get(replies[0].agent)
    estimated = costs.estimated_cost(replies, members)
    return {
        "inputTokens": max(used.input - used.cached - used.written, 0),
        "outputTokens": used.output,
        "cacheReadInputTokens": used.cached,
        "cacheCreationInputTokens": used.written,
        "costUSD": sum(costs.price(reply, members.get(reply.agent)) for reply in replies),
        "contextWindow": member.context if member else 0,
        **({"estimatedCostUSD": estimated} if costs.is_estimated(replies, members) else {}),
    }


def arguments_object(call: Call) -> dict[str, object]:
    """Return a call's arguments as an object. Other text is kept under `text`."""
    try:
        parsed = parse_json(call.arguments)
    except ValueError:
        return {"text": call.arguments}
    return parsed if isinstance(parsed, dict) else {"text": call.arguments}


def _fugu_fields(state: SessionState, end: RunEnding) -> dict[str, object]:
    used = orchestration_usage(state.request.events)
    return {
        "reason": end.reason,
        "message": end.message,
        "end": end_line(state.request).text,
        "verified_by": verified_by(state.request),
        "plan_by": state.open_plan.agent if state.open_plan is not None else None,
        "tests": test_summary(state.request),
        "changed": sorted(state.request.changes),
        "failed_agents": {name: str(why) for name, why in state.request.failed_agents.items()},
        "orchestration": {
            "orchestration_input_tokens": used.input,
            "orchestration_input_cached_tokens": used.cached,
            "orchestration_output_tokens": used.output,
        },
        "routing": [routing_object(turn.assigned) for turn in state.request.turns],
    }


def routing_object(event: Assigned) -> dict[str, object]:
    """Return a decision as an object: agent, role, rule, alternatives, milliseconds."""
    scores = event.scores
    agents, roles, estimates = {}, {}, []
    if scores is not None:
        agents = dict(zip(scores.rows, scores.row_probabilities, strict=False))
        role_names = ("worker", "thinker", "verifier")
        roles = dict(zip(role_names, scores.role_probabilities, strict=False))
        estimates = [estimate.model_dump() for estimate in scores.estimates]
    subtask = None
    if event.subtask is not None:
        subtask = event.subtask.model_dump(include={"turn", "call", "name", "about"})
    return {
        "turn": event.turn,
        "agent": event.agent,
        "role": event.role,
        "by": event.by,
        "slot": event.slot or None,
        "reason": event.why,
        "override": event.override,
        "agents": agents,
        "roles": roles,
        "masked": dict(scores.masked) if scores else {},
        "estimates": estimates,
        "kinds": dict(scores.kinds) if scores else {},
        "kinds_from": (scores.kinds_from or None) if scores else None,
        "cascade": (scores.rule or None) if scores else None,
        "milliseconds": round(event.milliseconds.total, 1),
        "subtask": subtask,
    }


STOP_REASONS = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "cut": None,
}
Object = dict[str, object]


@dataclass(frozen=True)
class StreamInit:
    """The content of the init line."""

    session: str
    cwd: str
    mode: str
    coordinator: str
    pool: tuple[Member, ...]
    tools: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    """Names of MCP servers; they are being started."""
    commands: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    plugins: tuple[PluginUse, ...] = ()


FOLLOWED_VERSION = "2.1.197"
"""The version of Claude Code whose lines these follow. Its SDKs warn of a program that names none."""


def init_object(setting: StreamInit) -> Object:
    """Return the first line."""
    needs_keys = any(member.provider != "local" for member in setting.pool)
    return {
        "type": "system",
        "subtype": "init",
        "session_id": setting.session,
        "cwd": setting.cwd,
        "model": "fugu",
        "tools": list(setting.tools),
        "mcp_servers": [{"name": name, "status": "pending"} for name in setting.servers],
        "permissionMode": setting.mode,
        "slash_commands": list(setting.commands),
        "agents": [member.name for member in setting.pool],
        "skills": list(setting.skills),
        "plugins": [
            {"name": plugin.name, "path": plugin.source, "commit": plugin.commit}
            for plugin in setting.plugins
        ],
        "apiKeySource": "environment" if needs_keys else "none",
        "fugu_version": __version__,
        "claude_code_version": FOLLOWED_VERSION,
        "coordinator": setting.coordinator,
        "pool": [member.model_dump(mode="json") for member in setting.pool],
        "uuid": _uuid(setting.session, -1),
    }


def event_object(record: Recorded, request: RequestState, session: str) -> Object | None:
    """Return the line of an event, None for events without one (Opened, Asked, a granted
    permission, Finished). `request` is the event's.
    """
    event = record.event
    body = _body(event, request, session, record.seq)
    if body is None:
        return None
    if "parent_tool_use_id" in body:
        subtask = request.subtask(getattr(event, "turn", 0))
        body["parent_tool_use_id"] = subtask.call if subtask is not None else None
    at = (
        datetime.fromtimestamp(record.at, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
    return {**body, "session_id": session, "uuid": _uuid(session, record.seq), "timestamp": at}


def _body(event: Event, request: RequestState, session: str, seq: int) -> Object | None:
    match event:
        case Assigned():
            return {"type": "system", "subtype": "routing", **routing_object(event)}
        case Replied():
            return _assistant(event, f"msg_{session}_{seq}")
        case Permitted(allowed=False):
            refusal = f"Not allowed: {event.reason}"
            shown = ToolRan(turn=event.turn, call=event.call, output=refusal, ok=False)
            return (
                _evidence(shown) if event.by_fugu else _tool_result(event.call, refusal, ok=False)
            )
        case ToolRan():
            return _evidence(event) if request.is_by_fugu(event.call) else _result_object(event)
        case Failed() | Undone() | Interrupted() | Compacted() | JobEnded():
            return _system(event)
        case Steered() | SteeringGiven():
            return _steering(event)
        case Planned() | Merged():
            from fugu_cli.ui.workflow_text import workflow_object

            return workflow_object(event)
        case _:
            return None


def _system(event: Failed | Undone | Interrupted | Compacted | JobEnded) -> Object:
    match event:
        case Failed():
            name = "agent_failed"
            fields: Object = {"agent": event.what, "kind": event.kind, "error": event.message}
        case Undone():
            name, fields = "undone", {"reason": event.words, "paths": list(event.paths)}
        case Interrupted():
            name, fields = "interrupted", {"partial": event.partial, "reason": event.reason}
        case Compacted():
            name, fields = "compact_boundary", {"summary": event.summary}
        case JobEnded():
            name, fields = "job_ended", event.model_dump(exclude={"type"})
    return {"type": "system", "subtype": name, "turn": getattr(event, "turn", None), **fields}


def _steering(event: Steered | SteeringGiven) -> Object:
    """Return a message that the user sent meanwhile, or that an agent is given it."""
    if isinstance(event, Steered):
        return {"type": "system", "subtype": "steered", "text": event.said}
    return {
        "type": "system",
        "subtype": "steering_given",
        "turn": event.turn,
        "agent": event.agent,
        "text": event.message.said,
    }


def _assistant(event: Replied, identity: str) -> Object:
    content: list[Object] = [
        {"type": "thinking", "thinking": block.text, "signature": ""}
        for block in event.thinking
        if block.text
    ]
    content += [{"type": "text", "text": event.text}] if event.text else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments_object(call)}
        for call in event.calls
    ]
    message = {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": event.model,
        "content": content,
        "stop_reason": STOP_REASONS[event.stop],
        "stop_sequence": None,
        "usage": usage_object(event.usage),
    }
    return {
        "type": "assistant",
        "message": message,
        "parent_tool_use_id": None,
        "agent": event.agent,
        "turn": event.turn,
    }


def _result_object(event: ToolRan) -> Object:
    shown: Object = {**_tool_result(event.call, event.output, ok=event.ok), "turn": event.turn}
    if event.paid is not None:
        shown["paid"] = {"agent": event.agent, "usage": usage_object(event.usage)}
    return shown


def _tool_result(call: Call, text: str, *, ok: bool) -> Object:
    block = {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": not ok}
    return {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": None,
    }


def _evidence(event: ToolRan) -> Object:
    """Return a run of fugu's own, which must not look like the result of an agent's call."""
    return {
        "type": "system",
        "subtype": "evidence",
        "turn": event.turn,
        "tool": event.call.tool,
        "input": arguments_object(event.call),
        "output": event.output,
        "ok": event.ok,
        "seconds": event.seconds,
    }


def live_object(event: Live, session: str) -> Object | None:
    """Return a line for a live event that explains a delay, None for pieces of text."""
    match event:
        case Waiting():
            fields: Object = {"subtype": "status", "status": event.why, "seconds": event.seconds}
        case Retried():
            fields = {
                "subtype": "api_retry",
                "turn": event.turn,
                "agent": event.agent,
                "attempt": event.retry,
                "max_retries": event.retries,
                "retry_delay_ms": int(event.seconds * 1000),
                "error_status": event.status,
                "error": event.why,
            }
        case _:
            return None
    return {"type": "system", **fields, "session_id": session, "uuid": str(uuid.uuid4())}


def text_object(event: TextStreamed | ThoughtStreamed, session: str) -> Object:
    """Return a piece of a reply, for `--include-partial-messages`."""
    if isinstance(event, ThoughtStreamed):
        piece = {"type": "thinking_delta", "thinking": event.text}
    else:
        piece = {"type": "text_delta", "text": event.text}
    delta = {"type": "content_block_delta", "index": 0, "delta": piece}
    own = {"turn": event.turn, "agent": event.agent}
    return {
        "type": "stream_event",
        "event": delta,
        "parent_tool_use_id": None,
        **own,
        "session_id": session,
        "uuid": str(uuid.uuid4()),
    }


def steering_refused_object(error: FuguError, session: str) -> Object:
    """Return the line for a message that no agent is given, because a hook refused it or it cannot
    be read.
    """
    fields = {"subtype": "steering_refused", "error": str(error), "hint": error.hint}
    return {"type": "system", **fields, "session_id": session, "uuid": str(uuid.uuid4())}


def refused_object(error: FuguError, reason: str, milliseconds: int, session: str = "") -> Object:
    """Return the final object of a request that was not carried out. `reason` is a reason of
    Finished.
    """
    return {
        "type": "result",
        "subtype": SUBTYPES[reason],
        "is_error": True,
        "duration_ms": milliseconds,
        "duration_api_ms": 0,
        "num_turns": 0,
        "result": "",
        "session_id": session,
        "total_cost_usd": 0.0,
        "errors": [str(error), *([error.hint] if error.hint else [])],
    }


def json_line(value: Object) -> str:
    """Return a JSON line in ASCII, which reads the same in every encoding."""
    return json.dumps(value)


def _uuid(session: str, seq: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"fugu:{session}:{seq}"))
