"""Hooks with the real binary: a repository's own block once it is trusted, the user's refuse and
send on.
"""

import json
import os
import signal
import time
from pathlib import Path

from fugu_cli.session.events import Asked, Permitted, ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE

GUARD = """import json, sys
given = json.load(sys.stdin)
if given["tool_input"]["path"].startswith("vendor/"):
    print("unread")
    print("vendor/ is not ours", file=sys.stderr)
    sys.exit(2)
"""


def hooks(moment: str, command: str, matcher: str = "") -> str:
    group = {"matcher": matcher, "hooks": [{"type": "command", "command": command, "timeout": 30}]}
    return json.dumps({"hooks": {moment: [group]}})


def users(place: Place, text: str) -> None:
    folder = place.home / ".agents"
    folder.mkdir()
    (folder / "hooks.json").write_text(text)


def vendored(place: Place, server: Loopback) -> None:
    server.play(
        "worker",
        Says("", (Use("write", {"path": "vendor/a.txt", "content": "x\n"}),)),
        READ,
        WRITE,
        DONE,
    )
    server.play("judge", ACCEPT)


def test_a_trusted_repositorys_hook_blocks_and_one_that_nobody_trusts_is_ignored_and_said(
    place: Place, server: Loopback
) -> None:
    files = {".agents/hooks.json": hooks("PreToolUse", "python3 .agents/guard.py", "write|edit")}
    place.files(files | {".agents/guard.py": GUARD})
    place.commit()
    place.configure(Agent("worker"), Agent("judge", "strong"))
    vendored(place, server)
    done = place.fugu("run", "fix the tests")
    assert done.code == 0, done.err
    assert (
        done.err.count("names hooks (PreToolUse): none is run until you run `fugu trust` here") == 1
    )
    assert (place.repo / "vendor/a.txt").exists()
    (place.repo / "calc.txt").write_text("broken\n")
    (place.repo / "vendor/a.txt").unlink()
    trusted = place.fugu("trust")
    assert "its PreToolUse hook is run by sessions here: python3 .agents/guard.py\n" in trusted.out
    vendored(place, server)
    done = place.fugu("run", "fix the tests")
    assert done.code == 0, done.err
    assert "hook" not in done.err.replace("a hook forbids it: vendor/ is not ours", "")
    assert (place.repo / "vendor/a.txt").exists() is False
    said = "a hook forbids it: vendor/ is not ours"
    facts = [
        event
        for event in place.events()
        if isinstance(event, Permitted) and event.call.tool == "write"
    ]
    judged = [(event.allowed, event.by, event.reason) for event in facts]
    assert (judged[0], judged[1][:2]) == ((False, "hook", said), (True, "policy"))
    assert server.asked("worker")[1].results[-1].startswith(f"Not allowed: {said}. Go on without")
    doctor = place.fugu("doctor").out
    assert "PreToolUse write|edit: python3 .agents/guard.py (30 s, in the sandbox, from " in doctor
    (place.repo / ".agents/guard.py").write_text("pass\n")
    doctor = place.fugu("doctor").out
    assert ".agents/guard.py changed since" in doctor
    assert "none is run until you run `fugu trust` here" in doctor


def test_the_users_hook_refuses_a_request_before_anything_is_recorded(
    place: Place, server: Loopback
) -> None:
    users(
        place,
        hooks("UserPromptSubmit", "grep -q production && { echo not today >&2; exit 2; } || true"),
    )
    place.configure(Agent("worker"), Agent("judge", "strong"))
    done = place.fugu("run", "fix production")
    assert (done.code, done.out) == (1, ""), done.err
    assert "a hook refused the request: not today" in done.err
    assert [event for event in place.events() if isinstance(event, Asked)] == []
    server.play("worker", READ, WRITE, DONE)
    server.play("judge", ACCEPT)
    assert place.fugu("run", "fix the tests").code == 0


def test_a_hook_at_the_end_sends_the_work_on_once_and_a_broken_one_is_said(
    place: Place, server: Loopback
) -> None:
    once = "grep -q '\"stop_hook_active\": true' || { echo add a note >&2; exit 2; }"
    users(place, hooks("Stop", once))
    place.files({".agents/hooks.json": hooks("PostToolUse", "echo odd >&2; exit 7")})
    place.configure(Agent("worker"), Agent("judge", "strong"))
    note = Says("", (Use("write", {"path": "note.txt", "content": "noted\n"}),))
    server.play("worker", READ, WRITE, DONE, note, Says("I noted it."))
    server.play("judge", ACCEPT, ACCEPT)
    done = place.fugu("run", "--trust", "fix the tests")
    assert (done.code, done.out) == (0, "I noted it.\n"), done.err
    asked = [event.text for event in place.events() if isinstance(event, Asked)]
    assert asked == ["fix the tests", "A Stop hook asks to go on: add a note"]
    assert (place.repo / "note.txt").read_text() == "noted\n"
    assert done.err.count("the PostToolUse hook `echo odd >&2; exit 7` in ") == 1
    assert "failed with exit code 7: odd; it was passed over" in done.err


def test_hooks_of_claude_codes_settings_speak_to_agents_and_hear_of_the_session(
    place: Place, server: Loopback
) -> None:
    def group(command: str, matcher: str = "") -> list[object]:
        return [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]

    deny = {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "guard says no",
    }
    heard = place.home / "heard"
    events = {
        "SessionStart": group("echo The team uses tabs.", "startup"),
        "UserPromptSubmit": group(
            """echo '{"hookSpecificOutput": {"additionalContext": "The branch is main."}}'"""
        ),
        "PreToolUse": group(f"echo '{json.dumps({'hookSpecificOutput': deny})}'", "Bash"),
        "Stop": group(
            'grep -q \'"stop_hook_active": true\' || echo \'{"decision": "block", "reason": "say '
            "it\"}'"
        ),
        "SessionEnd": group(f"cat > {heard}"),
        "WorktreeCreate": group("true"),
    }
    (place.home / ".claude").mkdir()
    (place.home / ".claude/settings.json").write_text(
        json.dumps({"hooks": events, "permissions": {}})
    )
    place.configure(Agent("worker"), Agent("judge", "strong"))
    makes = Says("", (Use("bash", {"command": "touch made"}),))
    server.play("worker", makes, READ, WRITE, DONE, Says("I said it."))
    server.play("judge", ACCEPT, ACCEPT)
    done = place.fugu("run", "fix the tests")
    assert (done.code, done.out) == (0, "I said it.\n"), done.err
    assert "hooks.WorktreeCreate: fugu has no such event; its hooks are left out" in done.err
    first = server.asked("worker")[0]
    assert r"[Hooks say:]\nThe team uses tabs.\n\nThe branch is main." in first.text
    refusal = "Not allowed: a hook forbids it: guard says no. Go on without it"
    assert server.asked("worker")[1].results[-1].startswith(refusal)
    assert (place.repo / "made").exists() is False
    asked = [(event.text, event.hooks) for event in place.events() if isinstance(event, Asked)]
    assert asked == [
        ("fix the tests", "The team uses tabs.\n\nThe branch is main."),
        ("A Stop hook asks to go on: say it", ""),
    ]
    told = json.loads(heard.read_text())
    assert (told["hook_event_name"], told["cwd"]) == ("SessionEnd", str(place.repo))
    assert Path(told["transcript_path"]).stem == told["session_id"]


def test_killed_in_a_hook_nothing_lives_on_and_the_call_is_judged_anew(
    place: Place, server: Loopback
) -> None:
    mark = place.home / "begun"
    users(place, hooks("PreToolUse", f"echo x >> {mark}; test -e {mark}.go || sleep 60", "write"))
    place.configure(Agent("worker"), Agent("judge", "strong"))
    server.play("worker", READ, WRITE, DONE)
    server.play("judge", ACCEPT)
    process = place.start("run", "fix the tests")
    end = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 30
    while place.left_behind() and time.monotonic() < end:
        time.sleep(0.05)
    assert place.left_behind() == []
    Path(f"{mark}.go").touch()
    done = place.fugu("run", "--continue")
    assert done.code == 0, done.err
    writes = [
        event
        for event in place.events()
        if isinstance(event, ToolRan) and event.call.tool == "write"
    ]
    assert (len(writes), mark.read_text()) == (1, "x\nx\n")
