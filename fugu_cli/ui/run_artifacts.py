"""`--output-dir`: the session, the diff, an ATIF trajectory, a summary and a prediction, written on
every exit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fugu_cli import __version__
from fugu_cli.app.event_text import describe_call, job_end_text
from fugu_cli.errors import UsageError
from fugu_cli.messages import Usage
from fugu_cli.safety.paths import path_exists
from fugu_cli.session import costs, log_format
from fugu_cli.session.costs import estimate_field
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    Member,
    Recorded,
    Replied,
    Steered,
    ToolRan,
    Undone,
)
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.store import OUTPUT_FILES, copy_media
from fugu_cli.system import atomic_files
from fugu_cli.ui.json_output import arguments_object, routing_object

ATIF_VERSION = "ATIF-v1.8"
Object = dict[str, object]


def atif_trajectory(records: Sequence[Recorded], session: str) -> Object:
    """Return the whole document. Every session with an Opened event has at least one step."""
    state = SessionState.of_records(records)
    events, opened, members = state.events, state.opened, state.pool
    requests = iter(state.requests)
    request = RequestState()
    steps: list[Object] = []
    for record in records:
        if isinstance(record.event, Asked):
            request = next(requests)
        body = _step(record.event, request, members)
        if body is not None:
            at = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds")
            steps.append({"step_id": len(steps) + 1, "timestamp": at, **body})
    used = sum(costs.usage(events).values(), Usage())
    return {
        "schema_version": ATIF_VERSION,
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
            "total_cost_usd": state.cost,
            "total_steps": max(len(steps), 1),
            **_estimate(events, members),
        },
    }


def _step(event: Event, request: RequestState, members: Mapping[str, Member]) -> Object | None:
    match event:
        case Asked():
            return {"source": "user", "message": event.whole}
        case Steered():
            return {"source": "user", "message": event.whole}
        case Assigned():
            message = f"turn {event.turn}: {event.agent} as {event.role}"
            return {
                "source": "system",
                "message": message,
                "extra": {"routing": routing_object(event)},
            }
        case Replied():
            return _reply(event, request, members.get(event.agent))
        case ToolRan() if request.is_by_fugu(event.call):
            result = {"content": event.output, "extra": {"ok": event.ok, "seconds": event.seconds}}
            message = f"fugu ran {describe_call(event.call)}"
            return {"source": "system", "message": message, "observation": {"results": [result]}}
        case Failed() | Undone() | Interrupted() | Finished() | JobEnded():
            return {"source": "system", "message": _notice(event)}
        case _:
            return None


def _estimate(events: Sequence[Event], members: Mapping[str, Member]) -> Object:
    """Return the part of a cost that is estimated, where ATIF has a place for fields of our own."""
    estimate = estimate_field(events, members)
    return {"extra": estimate} if estimate else {}


def _notice(event: Failed | Undone | Interrupted | Finished | JobEnded) -> str:
    match event:
        case Failed():
            return f"{event.what} failed: {event.message}"
        case Undone():
            return f"files were put back: {event.words}"
        case Interrupted():
            return "interrupted"
        case Finished():
            return f"finished: {event.reason} {event.message}".strip()
        case JobEnded():
            return job_end_text(event)


def _reply(event: Replied, request: RequestState, member: Member | None) -> Object:
    step: Object = {
        "source": "agent",
        "model_name": event.model or (member.model if member else event.agent),
        "message": event.text,
        "metrics": {
            "prompt_tokens": event.usage.input,
            "completion_tokens": event.usage.output,
            "cached_tokens": event.usage.cached,
            "cost_usd": costs.price(event, member),
            **_estimate([event], {event.agent: member} if member is not None else {}),
        },
        "llm_call_count": 1,
        "extra": {
            "agent": event.agent,
            "turn": event.turn,
            "seconds": event.seconds,
            "stop": event.stop,
        },
    }
    thinking = "\n".join(block.text for block in event.thinking if block.text)
    if thinking:
        step["reasoning_content"] = thinking
    if event.calls:
        step["tool_calls"] = [
            {
                "tool_call_id": call.id,
                "function_name": call.tool,
                "arguments": arguments_object(call),
            }
            for call in event.calls
        ]
        step["observation"] = {"results": _results(event, request)}
    return step


def _results(event: Replied, request: RequestState) -> list[Object]:
    """Return one result for each call, also for calls that were refused or never returned."""
    results: list[Object] = []
    for call in event.calls:
        run = request.calls.get(call.id)
        if run is not None and run.result is not None:
            text = run.result.output
            extra = {"ok": run.result.ok, "seconds": run.result.seconds}
        elif run is not None and not run.permitted.allowed:
            text, extra = f"Not allowed: {run.permitted.reason}", {"ok": False, "seconds": 0.0}
        else:
            text, extra = "No result: the run was cut off.", {"ok": False, "seconds": 0.0}
        results.append({"source_call_id": call.id, "content": text, "extra": extra})
    return results


SESSION, PATCH, TRAJECTORY, SUMMARY, PREDICTION = OUTPUT_FILES


def prepare_output_dir(folder: Path) -> Path:
    """Create the folder and check that it is writable, before any work. Raises UsageError.

    A new folder inside a repository is hidden from git, because undo would take its files for the
    user's edits.
    """
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if is_new and any(path_exists(parent / ".git") for parent in folder.resolve().parents):
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
        probe = folder / f".fugu-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write into --output-dir {folder}: {error.strerror}",
            hint="give a folder you may write to",
        ) from error
    return folder.resolve()


def write_artifacts(
    folder: Path,
    records: Sequence[Recorded],
    session: str,
    summary: dict[str, object],
    patch: bytes,
) -> list[str]:
    """Write all files. Return a sentence for each that could not be written."""
    contents = {
        SESSION: log_format.encode_lines(records),
        PATCH: patch,
        TRAJECTORY: json.dumps(atif_trajectory(records, session), indent=1).encode() + b"\n",
        SUMMARY: json.dumps(summary, indent=2).encode() + b"\n",
        PREDICTION: json.dumps(_prediction(folder.name, patch)).encode() + b"\n",
    }
    errors = [_write_error(folder / name, data) for name, data in contents.items()]
    return [error for error in errors if error]


def _prediction(instance: str, patch: bytes) -> Object:
    """Return the diff as SWE-bench takes it. The instance is named like the folder."""
    diff = patch.decode("utf-8", "replace")
    return {
        "instance_id": instance,
        "model_name_or_path": f"fugu-{__version__}",
        "model_patch": diff,
    }


def write_media(folder: Path, session: Path | None) -> list[str]:
    """Copy the session's pictures and PDFs beside its log. Return a sentence if that failed."""
    try:
        if session is not None:
            copy_media(session, folder / SESSION)
    except OSError as error:
        return [f"cannot copy pictures to {folder}: {error.strerror or error}"]
    return []


def _write_error(path: Path, data: bytes) -> str:
    try:
        with atomic_files.replacement_file(path) as draft:
            draft.write_bytes(data)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return ""
