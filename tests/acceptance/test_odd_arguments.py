"""Whatever a model writes as the arguments of its calls: the session goes on, now and later, and
every command can show it.
"""

from __future__ import annotations

import json

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

DEEP = (
    "[" * 5000,
    json.dumps({"path": "calc.txt", "items": "[" * 5000 + "]" * 5000}),
    json.dumps(json.dumps({"command": '{"a":' * 5000 + "1" + "}" * 5000})),
    '{"a":' * 5000 + "1" + "}" * 5000,
    '{"path":' + "[" * 300 + "]" * 300 + "}",
)
"""Arguments are read the same way for each tool, so three tools are enough for deep ones."""
ODD = (
    '{"path": "calc.txt", "items": {"a": 1}, "ids": 5, "command": 7, "seconds": "x"}',
    '{"items": [[1], null, {"text": [], "status": {}}], "ids": {"a": 1}, "path": [null, 1e999]}',
    '{"path": {"path": "calc.txt"}, "offset": -99999999999999999999, "limit": 1e400}',
    "[1, 2]",
    "7",
    "null",
    '"text"',
    '{"command": ["ls", 5]}',
    "{}{}{}" * 500,
    '{"path": "\\ud800"}',
)
TOOLS = (
    "read", "list", "glob", "grep", "edit", "write", "apply_patch", "bash", "run_tests", "todo",
    "task", "skill", "job_output", "job_stop", "web_fetch", "mcp__a__b", "no such tool",
)  # fmt: skip


READERS = (
    Agent("reads-chat"),
    Agent("reads-messages", provider="anthropic"),
    Agent("reads-responses", more='api = "responses"'),
)


def test_a_session_survives_whatever_calls_hold(place: Place, server: Loopback) -> None:
    place.configure(Agent("odd"), *READERS, more="")
    deep = [
        Says("", tuple(Use(tool, odd) for tool in ("read", "bash", "no such tool"))) for odd in DEEP
    ]
    calls = [Says("", tuple(Use(tool, odd) for tool in TOOLS)) for odd in ODD]
    server.play("odd", *deep, *calls, Says("I could do nothing."))
    done = place.fugu("run", "--agent", "odd", "--permission-mode", "yolo", "try it")
    assert "I could do nothing." in done.out, done.err
    assert "Traceback" not in done.err, done.err
    for reader in READERS:
        server.play(reader.name, Says("So it is."))
        again = place.fugu("run", "--continue", "--agent", reader.name, "look at it")
        assert (again.code, "So it is." in again.out) == (0, True), again.err
    for command in (
        ("trace", "--plain"),
        ("trace", "--json"),
        ("export",),
        ("export", "--format", "json"),
        ("sessions",),
        ("cost",),
        ("undo", "--yes"),
    ):
        shown = place.fugu(*command)
        assert "Traceback" not in shown.err, (command, shown.err)
        assert shown.code in (0, 1), (command, shown.err)
