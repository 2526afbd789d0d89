"""Hooks as public examples write them, and what came of a call under Claude Code 2.1.197 (`claude
-p`, acceptEdits).

`there` is what that client did; `here` is what fugu does where it is stricter: a guard that fails,
and one that ends all work, says no. A matcher in lower case is for a tool of fugu's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

Hooks = list[dict[str, object]]
Made = tuple[str, dict[str, str]]
"""A tool of Claude Code's and its arguments."""

TOUCH: Made = ("Bash", {"command": "touch made"})
"""A command that both allow in this mode, or that a yes of the user's allows."""
SCRIPT: Made = ("Bash", {"command": "sh ./mk.sh"})
"""A command that both ask about."""
WRITES: Made = ("Write", {"file_path": "made", "content": "x\n"})

PYTHON = "python3 -c '{code}'"
NO_SECRETS = PYTHON.format(
    code='import json,sys; p=json.load(sys.stdin)["tool_input"].get("file_path",""); '
    'sys.exit(2 if any(x in p for x in [".env", "made", ".git/"]) else 0)'
)
VALIDATOR = PYTHON.format(
    code="import json,re,sys; d=json.load(sys.stdin); "
    'sys.exit(0) if d.get("tool_name") != "Bash" else None; '
    'bad=re.search(r"^(touch|grep)\\b", d["tool_input"]["command"]); '
    'print("use the other one", file=sys.stderr) if bad else None; sys.exit(2 if bad else 0)'
)
LOGS = PYTHON.format(
    code=(
        "import json,sys; d=json.load(sys.stdin); "
        'open("/dev/null","a").write(d["tool_input"]["command"])'
    )
)


def says(**specific: object) -> str:
    return (
        f"echo '{json.dumps({'hookSpecificOutput': {'hookEventName': 'PreToolUse'} | specific})}'"
    )


def prints(text: str) -> str:
    return f"echo '{text}'"


@dataclass(frozen=True)
class Case:
    """A call with hooks before it. `there` and `here`: runs, asks or refused."""

    hooks: Hooks
    there: str
    here: str = ""
    call: Made = TOUCH
    says: str = ""
    """What the refusal says."""
    made: str = field(default="made")
    """The file that is made where it runs."""


def hook(command: str, matcher: str = "Bash", **more: object) -> dict[str, object]:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}


DENY = says(permissionDecision="deny", permissionDecisionReason="guard says no")
ALLOW = says(permissionDecision="allow", permissionDecisionReason="fine")

CASES: dict[str, Case] = {
    "no hook": Case([], "runs"),
    "no hook, a script": Case([], "asks", call=SCRIPT),
    "silent": Case([hook("true")], "runs"),
    "exit 2": Case([hook("echo not here >&2; exit 2")], "refused", says="not here"),
    "exit 1": Case([hook("echo odd >&2; exit 1")], "runs"),
    "plain text": Case([hook("echo all is well")], "runs"),
    "deny": Case([hook(DENY)], "refused", says="guard says no"),
    "deny and exit 1": Case([hook(f"{DENY}; exit 1")], "refused", says="guard says no"),
    "allow": Case([hook(ALLOW)], "runs", call=SCRIPT),
    "ask": Case([hook(says(permissionDecision="ask", permissionDecisionReason="look"))], "asks"),
    "block, the older form": Case(
        [hook(prints('{"decision": "block", "reason": "old no"}'))], "refused", says="old no"
    ),
    "approve, the older form": Case([hook(prints('{"decision": "approve"}'))], "runs", call=SCRIPT),
    "changed": Case([hook(says(updatedInput={"command": "touch other"}))], "runs", made="other"),
    "allowed and changed": Case(
        [hook(says(permissionDecision="allow", updatedInput={"command": "sh ./mk.sh"}))],
        "runs",
        call=SCRIPT,
    ),
    "context": Case([hook(says(additionalContext="the sky is blue"))], "runs"),
    "ends the work": Case(
        [hook(prints('{"continue": false, "stopReason": "enough"}'))],
        "runs",
        "refused",
        says="enough",
    ),
    "no such decision": Case([hook(says(permissionDecision="perhaps"))], "runs", "refused"),
    "broken JSON": Case([hook(prints('{"decision": "block"'))], "runs", "refused"),
    "text before JSON": Case(
        [hook(f"echo checking; {DENY}")], "runs", "refused", says="guard says no"
    ),
    "another event's answer": Case([hook(DENY.replace("PreToolUse", "Stop"))], "runs", "refused"),
    "too slow": Case([hook("sleep 30", timeout=1)], "runs", "refused"),
    "missing program": Case([hook("./no-such-guard.py")], "runs", "refused"),
    "regular expression": Case([hook(DENY, "Ba.*|Nothing")], "refused"),
    "every tool": Case([hook(DENY, "*")], "refused"),
    "another tool": Case([hook(DENY, "Edit|Write")], "runs"),
    "lower case": Case([hook(DENY, "bash")], "runs", "refused"),
    "allow and deny": Case([hook(ALLOW), hook(DENY)], "refused"),
    "rule for others": Case([hook(DENY, **{"if": "Bash(git *)"})], "runs"),
    "rule for this": Case([hook(DENY, **{"if": "Bash(touch *)"})], "refused"),
    "protected files": Case([hook(NO_SECRETS, "Edit|MultiEdit|Write")], "refused", call=WRITES),
    "command validator": Case([hook(VALIDATOR)], "refused", says="use the other one"),
    "command log": Case([hook(LOGS)], "runs"),
    "the project's place": Case([hook('test -f "$CLAUDE_PROJECT_DIR"/mk.sh || exit 2')], "runs"),
}
