"""stream-json: Claude Code's shapes, with fugu's own lines beside them."""

import json

from fugu_cli import __version__
from fugu_cli.session.events import Compacted, Event, Interrupted, JobEnded, Planned, WorkflowStep
from fugu_cli.session.live_events import OutputStreamed, Retried, TextStreamed, Waiting
from fugu_cli.session.state import SessionState
from fugu_cli.ui import json_output
from tests.unit.ui import example


def lines(facts: list[Event]) -> list[dict[str, object]]:
    records = example.recorded(facts)
    state = SessionState()
    every = []
    for record in records:
        state.add(record.event)
        every.append(json_output.event_object(record, state.request, "s1"))
    return [json.loads(json_output.json_line(line)) for line in every if line is not None]


def test_a_session_in_lines() -> None:
    shapes = [
        (line["type"], line.get("subtype"), line.get("turn")) for line in lines(example.events())
    ]
    assert shapes == [
        ("system", "evidence", 0),
        ("system", "routing", 1),
        ("assistant", None, 1),
        ("user", None, 1),
        ("assistant", None, 1),
        ("user", None, 1),
        ("system", "evidence", 1),
        ("system", "undone", 1),
        ("assistant", None, 1),
        ("user", None, 1),
        ("assistant", None, 1),
        ("system", "evidence", 1),
        ("system", "routing", 2),
        ("system", "agent_failed", 2),
        ("system", "routing", 3),
        ("assistant", None, 3),
        ("user", None, None),
        ("assistant", None, 3),
    ]


def test_every_line_has_the_session_its_own_id_and_a_time() -> None:
    every = lines(example.events())
    assert {line["session_id"] for line in every} == {"s1"}
    assert len({line["uuid"] for line in every}) == len(every)
    assert every[0]["timestamp"] == "2026-09-21T14:13:26.000Z"
    assert every == lines(example.events())


def test_an_assistant_line_is_a_message_with_blocks() -> None:
    line = next(line for line in lines(example.events()) if line["type"] == "assistant")
    assert line["message"] == {
        "id": "msg_s1_5",
        "type": "message",
        "role": "assistant",
        "model": "m-coder",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "I read the file."},
            {"type": "tool_use", "id": "t1-0-0", "name": "read", "input": {"path": "a.py"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1000,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 200,
            "output_tokens": 300,
        },
    }
    assert (line["parent_tool_use_id"], line["agent"]) == (None, "coder")


def test_every_tool_result_answers_a_call_that_was_made() -> None:
    made, answered = set(), set()
    for line in lines(example.events()):
        for block in line.get("message", {}).get("content", []):  # type: ignore[attr-defined]
            if block["type"] == "tool_use":
                made.add(block["id"])
            elif block["type"] == "tool_result":
                answered.add(block["tool_use_id"])
    assert answered == made


def test_a_denial_is_a_tool_result_that_is_an_error() -> None:
    (line,) = [
        line
        for line in lines(example.events())
        if "force push" in json.dumps(line) and line["type"] == "user"
    ]
    assert line["message"] == {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t3-0-0",
                "content": "Not allowed: a force push needs a yes every time",
                "is_error": True,
            }
        ],
    }


def test_a_routing_line_carries_the_losers_and_the_masks() -> None:
    line = next(line for line in lines(example.events()) if line.get("subtype") == "routing")
    assert {
        key: line[key]
        for key in ("agent", "role", "by", "agents", "roles", "masked", "milliseconds")
    } == {
        "agent": "coder",
        "role": "worker",
        "by": "trinity",
        "agents": {"cheap": 0.25, "middle": 0.75, "strong": 0.0},
        "roles": {"worker": 0.91, "thinker": 0.09, "verifier": 0.0},
        "masked": {"verifier": "no Worker answer yet", "strong": "opted out"},
        "milliseconds": 310.0,
    }


def test_the_rarer_facts_are_system_lines() -> None:
    facts: list[Event] = [
        *example.opening(),
        Interrupted(turn=2, partial="half"),
        Compacted(summary="short", upto=3),
        JobEnded(job="job1", command="make", code=2, seconds=1.5),
        Planned(steps=(WorkflowStep(agent="a", instruction="b"),), text="t"),
    ]
    found = lines(facts)
    assert [line["subtype"] for line in found] == [
        "interrupted",
        "compact_boundary",
        "job_ended",
        "plan",
    ]
    told = {"job": "job1", "command": "make", "by": "itself", "code": 2, "seconds": 1.5}
    assert {name: found[2][name] for name in told} == told


def test_the_first_line_says_who_and_where() -> None:
    setting = json_output.StreamInit(
        "s1", "/repo", "edit", "cascade", example.POOL, ("read", "bash")
    )
    line = json_output.init_object(setting)
    del line["uuid"], line["pool"]
    assert line == {
        "type": "system",
        "subtype": "init",
        "session_id": "s1",
        "cwd": "/repo",
        "model": "fugu",
        "tools": ["read", "bash"],
        "mcp_servers": [],
        "permissionMode": "edit",
        "slash_commands": [],
        "agents": ["small", "coder", "strong"],
        "skills": [],
        "plugins": [],
        "apiKeySource": "environment",
        "fugu_version": __version__,
        "claude_code_version": json_output.FOLLOWED_VERSION,
        "coordinator": "cascade",
    }


def test_waiting_is_a_line_and_pieces_of_text_are_not() -> None:
    why = "m: 529, overloaded"
    event = Retried(
        turn=3, agent="m", kind="overloaded", why=why, seconds=2.5, retry=2, retries=4, status=529
    )
    retry = json_output.live_object(event, "s1")
    assert retry is not None
    del retry["uuid"]
    assert retry == {
        "type": "system",
        "subtype": "api_retry",
        "turn": 3,
        "agent": "m",
        "attempt": 2,
        "max_retries": 4,
        "retry_delay_ms": 2500,
        "error_status": 529,
        "error": why,
        "session_id": "s1",
    }
    waiting = json_output.live_object(Waiting(why="waiting for m", seconds=30.0), "s") or {}
    assert (waiting["subtype"], waiting["status"], waiting["seconds"]) == (
        "status",
        "waiting for m",
        30.0,
    )
    assert json_output.live_object(TextStreamed(turn=1, agent="a", text="x"), "s") is None
    assert json_output.live_object(OutputStreamed(turn=1, call="c", text="x"), "s") is None


def test_a_line_is_one_line_of_ascii_whatever_is_in_it() -> None:
    text = json_output.json_line({"a": "é\n\u2028\udcff"})
    assert text.isascii() and "\n" not in text and json.loads(text) == {"a": "é\n\u2028\udcff"}
