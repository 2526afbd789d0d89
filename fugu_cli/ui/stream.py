"""`--output-format stream-json`: facts as lines in Claude Code's shapes, so that what reads those reads these.

`system/init` first, `assistant` for every reply, `user` for every tool result, `result` last (result.py). What they
have no line for is `system` with a subtype of fugu's, such as `routing` before the turn it decides: `fugu help run`
lists them with their fields. Pure.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fugu_cli import __version__
from fugu_cli.events import (
    EVIDENCE,
    Assigned,
    Compacted,
    Event,
    Failed,
    Interrupted,
    JobEnded,
    Live,
    Member,
    Merged,
    Permitted,
    Planned,
    Recorded,
    Replied,
    Retried,
    ToolRan,
    Undone,
    Waiting,
)
from fugu_cli.messages import Call
from fugu_cli.ui import workflow
from fugu_cli.ui.result import arguments, routing, usage_object

STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal", "cut": None}
Object = dict[str, object]
_STATUS = re.compile(r"\b[45]\d\d\b")


@dataclass(frozen=True)
class Setting:
    """What the init line says of the run."""

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


def init(setting: Setting) -> Object:
    """The first line."""
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
        "plugins": [],
        "apiKeySource": "environment" if any(member.provider != "local" for member in setting.pool) else "none",
        "fugu_version": __version__,
        "coordinator": setting.coordinator,
        "pool": [member.model_dump(mode="json") for member in setting.pool],
        "uuid": _uuid(setting.session, -1),
    }


def line(record: Recorded, before: Sequence[Event], session: str) -> Object | None:
    """One fact's line, None for facts that have none (Opened, Asked, a permission that was given, Finished)."""
    event = record.event
    body = _body(event, before, session, record.seq)
    if body is None:
        return None
    at = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {**body, "session_id": session, "uuid": _uuid(session, record.seq), "timestamp": at}


def _body(event: Event, before: Sequence[Event], session: str, seq: int) -> Object | None:
    match event:
        case Assigned():
            return {"type": "system", "subtype": "routing", **routing(event)}
        case Replied():
            return _assistant(event, f"msg_{session}_{seq}")
        case Permitted(allowed=False):
            return _tool_result(event.call, f"Not allowed: {event.reason}", ok=False)
        case ToolRan():
            return _evidence(event) if _by_fugu(event.call, before) else _ran(event)
        case Failed() | Undone() | Interrupted() | Compacted() | JobEnded():
            return _system(event)
        case Planned() | Merged():
            return workflow.as_object(event)
        case _:
            return None


def _system(event: Failed | Undone | Interrupted | Compacted | JobEnded) -> Object:
    match event:
        case Failed():
            name = "agent_failed"
            said: Object = {"agent": event.what, "kind": event.kind, "error": event.message}
        case Undone():
            name, said = "undone", {"reason": event.reason, "paths": list(event.paths)}
        case Interrupted():
            name, said = "interrupted", {"partial": event.partial, "reason": event.reason}
        case Compacted():
            name, said = "compact_boundary", {"summary": event.summary}
        case JobEnded():
            name, said = "job_ended", event.model_dump(exclude={"type"})
    return {"type": "system", "subtype": name, "turn": getattr(event, "turn", None), **said}


def _by_fugu(call: Call, before: Sequence[Event]) -> bool:
    return any(isinstance(fact, Permitted) and fact.call.id == call.id and fact.by == EVIDENCE for fact in before)


def _assistant(event: Replied, identity: str) -> Object:
    content: list[Object] = [{"type": "thinking", "thinking": block.text} for block in event.thinking if block.text]
    content += [{"type": "text", "text": event.text}] if event.text else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": arguments(call)} for call in event.calls
    ]
    message = {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": event.model,
        "content": content,
        "stop_reason": STOPS[event.stop],
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


def _ran(event: ToolRan) -> Object:
    return {**_tool_result(event.call, event.output, ok=event.ok), "turn": event.turn}


def _tool_result(call: Call, text: str, *, ok: bool) -> Object:
    block = {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": not ok}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None}


def _evidence(event: ToolRan) -> Object:
    """A run of fugu's own: no agent asked for it, so it must not look like the answer to a call."""
    return {
        "type": "system",
        "subtype": "evidence",
        "turn": event.turn,
        "tool": event.call.tool,
        "input": arguments(event.call),
        "output": event.output,
        "ok": event.ok,
        "seconds": event.seconds,
    }


def live(event: Live, session: str) -> Object | None:
    """A line for what is not a fact: why nothing moves. Pieces of text have none; the whole reply follows."""
    match event:
        case Waiting():
            said: Object = {"subtype": "status", "status": event.why, "seconds": event.seconds}
        case Retried():
            status = _STATUS.search(event.why)
            said = {
                "subtype": "api_retry",
                "turn": event.turn,
                "agent": event.agent,
                "attempt": event.retry,
                "max_retries": event.retries,
                "retry_delay_ms": int(event.seconds * 1000),
                "error_status": int(status.group()) if status else None,
                "error": event.why,
            }
        case _:
            return None
    return {"type": "system", **said, "session_id": session, "uuid": str(uuid.uuid4())}


def text(value: Object) -> str:
    """One JSON line in ASCII: it reads the same whatever the terminal's or the pipe's encoding is."""
    return json.dumps(value)


def _uuid(session: str, seq: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"fugu:{session}:{seq}"))
