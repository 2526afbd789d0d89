"""A session with everything in it: evidence, a rolled-back draw, a failed agent, a denied call,
masks, a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.messages import Call, Thinking, Usage
from fugu_cli.session.events import (
    Asked,
    Assigned,
    DecisionTimings,
    Event,
    Failed,
    FileChange,
    Finished,
    Member,
    Opened,
    Permitted,
    Price,
    Recorded,
    Replied,
    Role,
    Scores,
    ToolRan,
    Undone,
)

POOL = (
    Member(name="small", provider="local", model="m-small", protocol="text", slot="cheap"),
    Member(
        name="coder",
        provider="openai",
        model="m-coder",
        slot="middle",
        price=Price(input=1, output=5),
    ),
    Member(
        name="strong",
        provider="anthropic",
        model="m-strong",
        slot="strong",
        price=Price(input=5, output=25),
    ),
)
NO_VERIFIER = "no Worker answer yet"
FAILS = "FAILED tests/test_a.py::test_x - assert 1 == 2\n1 failed, 2 passed in 0.1s"
PASSES = "3 passed in 0.1s"
READ = Call.make("t1-0-0", "read", path="a.py")
WRITE = Call.make("t1-0-1", "write", path="a.py", content="x = 2\n")
WRITE_AGAIN = Call.make("t1-1-0", "write", path="a.py", content="x = 3\n")
PUSH = Call.make("t3-0-0", "bash", command="git push --force")


def scores(
    *probabilities: float,
    masked: Sequence[tuple[str, str]] = (),
    roles: tuple[float, ...] = (0.9, 0.1, 0.0),
) -> Scores:
    return Scores(
        rows=("cheap", "middle", "strong"),
        row_logits=tuple(value * 10 - 5 for value in probabilities),
        row_probabilities=probabilities,
        role_logits=(2.5, 0.25, 1.5),
        role_probabilities=roles,
        masked=tuple(masked),
        read="user: fix the tests\nmiddle (worker): done",
        tokens=412,
        cached_tokens=400,
    )


def decision(turn: int, agent: str, role: Role, found: Scores | None, **more: object) -> Assigned:
    times = DecisionTimings(format=1.0, tokenise=2.0, forward=306.0, head=1.0)
    return Assigned.model_validate(
        {
            "turn": turn,
            "agent": agent,
            "role": role,
            "by": "trinity",
            "scores": found,
            "milliseconds": times,
            **more,
        }
    )


def said(
    turn: int, agent: str, text: str, *calls: Call, model: str = "", thinking: str = ""
) -> Replied:
    return Replied(
        turn=turn,
        agent=agent,
        text=text,
        thinking=(Thinking(text=thinking),) if thinking else (),
        calls=calls,
        usage=Usage(input=1200, cached=200, output=300),
        model=model or f"m-{agent}",
        stop="calls" if calls else "end",
        seconds=4.0,
    )


def evidence(turn: int, id: str, ok: bool) -> list[Event]:
    call = Call(id=id, tool="run_tests")
    return [
        Permitted(turn=turn, call=call, allowed=True, by="evidence"),
        ToolRan(turn=turn, call=call, output=PASSES if ok else FAILS, ok=ok, seconds=1.25),
    ]


def tool(turn: int, call: Call, output: str, *changes: FileChange) -> list[Event]:
    return [
        Permitted(turn=turn, call=call, allowed=True, by="policy"),
        ToolRan(turn=turn, call=call, output=output, ok=True, seconds=0.01, changes=changes),
    ]


def opening() -> list[Event]:
    return [
        Opened(
            version="0.1.0",
            repo="/home/me/shop",
            commit="c0ffee",
            pool=POOL,
            checkpoint="ab12cd34ef56ab12",
        ),
        Asked(
            text="fix the failing tests",
            snapshot="tree0",
            test_command="pytest -q",
            until=("pytest -q",),
        ),
    ]


def first_turn() -> list[Event]:
    """The coder reads, writes, fails; is drawn again, and passes."""
    masked = (("verifier", NO_VERIFIER), ("strong", "opted out"))
    return [
        decision(
            1,
            "coder",
            "worker",
            scores(0.25, 0.75, 0.0, masked=masked, roles=(0.91, 0.09, 0.0)),
            snapshot="tree0",
        ),
        said(1, "coder", "I read the file.", READ, thinking="hm"),
        *tool(1, READ, "1: x = 1"),
        said(1, "coder", "Now the change.", WRITE),
        *tool(1, WRITE, "written", FileChange(path="a.py", before="b1", after="b2")),
        *evidence(1, "e1-0-4", ok=False),
        Undone(snapshot="tree0", turn=1, reason="the tests failed"),
        said(1, "coder", "Another way.", WRITE_AGAIN),
        *tool(1, WRITE_AGAIN, "written", FileChange(path="a.py", before="b1", after="b3")),
        said(1, "coder", "The bug was `x = 1`; it is 3 now."),
        *evidence(1, "e1-1-4", ok=True),
    ]


def last_turns() -> list[Event]:
    """The small one cannot be reached; the strong one tries something it may not, then accepts."""
    return [
        decision(2, "small", "verifier", scores(0.6, 0.3, 0.1, roles=(0.2, 0.1, 0.7))),
        Failed(turn=2, what="small", kind="network", message="m-small: the server does not answer"),
        decision(
            3,
            "strong",
            "verifier",
            None,
            by="cascade",
            reason="the strongest other agent verifies",
            override="worker",
        ),
        said(3, "strong", "I look.", PUSH),
        Permitted(
            turn=3,
            call=PUSH,
            allowed=False,
            by="policy",
            reason="a force push needs a yes every time",
        ),
        said(3, "strong", "ACCEPT: the tests pass.\nThe change is small."),
        Finished(reason="accepted"),
    ]


def events() -> list[Event]:
    return [*opening(), *evidence(0, "e0-0", ok=False), *first_turn(), *last_turns()]


def recorded(facts: Sequence[Event]) -> list[Recorded]:
    """A fact every two seconds from a fixed moment on."""
    return [
        Recorded(seq=seq, at=1_790_000_000.0 + 2 * seq, event=event)
        for seq, event in enumerate(facts)
    ]


def records() -> list[Recorded]:
    return recorded(events())
