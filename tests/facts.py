"""Short ways to write facts, shared by the tests of everything that reads the log."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.engine import harness
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Prompt, ToolSpec, Usage
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    FileChange,
    Member,
    Opened,
    Permitted,
    Replied,
    Role,
    ToolRan,
    Undone,
)
from fugu_cli.session.state import SessionState

SMALL = Member(name="small", provider="local", model="m-small", protocol="text", slot="cheap")
CODER = Member(name="coder", provider="local", model="m-coder", protocol="text", slot="middle")
STRONG = Member(
    name="strong", provider="openai", model="m-strong", protocol="native", slot="strong"
)
POOL = (SMALL, CODER, STRONG)
FAILS = "1 failed, 2 passed in 0.1s"
PASSES = "3 passed in 0.1s"


def opened() -> Opened:
    return Opened(version="1", repo="/repo", pool=POOL)


def asked(
    text: str = "fix the tests", *, judged: bool = True, command: str | None = "pytest"
) -> Asked:
    return Asked(
        text=text,
        snapshot="tree0",
        test_command=command,
        until=(command,) if judged and command else (),
    )


def assigned(turn: int, agent: str, role: Role = "worker") -> Assigned:
    return Assigned(turn=turn, agent=agent, role=role, by="cascade", snapshot=f"tree{turn - 1}")


def replied(turn: int, agent: str, text: str = "", *calls: Call) -> Replied:
    usage = Usage(input=100, cached=20, output=10)
    return Replied(
        turn=turn,
        agent=agent,
        text=text,
        calls=calls,
        usage=usage,
        stop="calls" if calls else "end",
    )


def ran(
    turn: int,
    call: Call,
    output: str = "ok",
    *,
    ok: bool = True,
    by: str = "policy",
    path: str = "",
) -> list[Event]:
    changes = (FileChange(path=path, before="a", after=f"b-{call.id}"),) if path else ()
    return [
        Permitted(turn=turn, call=call, allowed=True, by=by),
        ToolRan(turn=turn, call=call, output=output, ok=ok, changes=changes),
    ]


def checked(turn: int, *, ok: bool, id: str = "e") -> list[Event]:
    call = Call(id=f"{id}{turn}", tool="run_tests")
    return ran(turn, call, PASSES if ok else FAILS, ok=ok, by="evidence")


def write(id: str, path: str = "a.py") -> Call:
    return Call.make(id, "write", path=path, content="x")


def rolled_back(turn: int) -> Undone:
    return Undone(snapshot=f"tree{turn - 1}", turn=turn, reason="the tests failed")


def prompt_of(
    events: Sequence[Event], member: Member, tools: Sequence[ToolSpec] = (), instructions: str = ""
) -> Prompt:
    """The next call's prompt of the agent of the newest turn."""
    return harness.build_prompt(SessionState(events), member, tools, instructions)


def shown(prompt: Prompt) -> list[str]:
    """Every text of a prompt."""
    texts = [prompt.system]
    for message in prompt.messages:
        match message:
            case FromAgent():
                texts += [message.text, *(thought.text for thought in message.thinking)]
                texts += [call.arguments for call in message.calls]
            case FromUser() | FromTool():
                texts.append(message.text)
    return texts
