"""What follows from a session's events is the same however they came in."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fugu_cli.messages import Call, Usage
from fugu_cli.session import log
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Exclusion,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    JobEnded,
    Masked,
    Merged,
    Permitted,
    Planned,
    Replied,
    Steered,
    SteeringGiven,
    Subtask,
    TestReport,
    ToolRan,
    Undone,
    WorkflowStep,
)
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from tests.facts import POOL, opened

RECORDED = Path(__file__).parents[2] / "recorded" / "sessions-0.1.0"
AGENTS = st.sampled_from([member.name for member in POOL])
TURNS = st.integers(min_value=1, max_value=4)
TESTS = st.builds(
    TestReport,
    passed=st.integers(0, 2),
    failed=st.integers(0, 2),
    failing=st.sampled_from([(), ("t::a",), ("t::a", "t::b")]),
    passing=st.sampled_from([(), ("t::a",)]),
    by_id=st.booleans(),
    removed=st.sampled_from([(), ("t::c",)]),
    unable=st.sampled_from(["", "the tests could not be run: pytest: not found"]),
)
CALLS = st.builds(
    Call,
    id=st.sampled_from(["a", "b", "c", "d"]),
    tool=st.sampled_from(
        [
            "read",
            "write",
            "run_tests",
            "tests_before",
            "task",
            "acceptance_check",
            "run_check",
            "todo",
            "find_tools",
            "bash",
        ]
    ),
    arguments=st.sampled_from(
        ["{}", '{"command": "pytest"}', '{"ids": ["t::a"]}', '{"items": [{"text": "x"}]}', "{"]
    ),
)
CHANGES = st.lists(
    st.builds(
        FileChange,
        path=st.sampled_from(["a.py", "tests/test_a.py"]),
        before=st.sampled_from([None, "1", "2"]),
        after=st.sampled_from([None, "1", "2"]),
    ),
    max_size=2,
).map(tuple)
SUBTASKS = st.builds(
    Subtask, turn=TURNS, call=st.sampled_from(["a", "b"]), name=st.sampled_from(["", "scout"])
)
USAGES = st.builds(Usage, input=st.integers(0, 1000), output=st.integers(0, 1000))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.just(opened()),
    st.builds(
        Asked,
        text=st.just("fix it"),
        until=st.sampled_from([(), ("pytest",), ("make lint",)]),
        test_command=st.sampled_from([None, "pytest"]),
        snapshot=st.sampled_from([None, "tree0"]),
    ),
    st.builds(
        Assigned,
        turn=TURNS,
        agent=AGENTS,
        role=st.sampled_from(["worker", "thinker", "verifier"]),
        by=st.just("cascade"),
        plan=st.integers(0, 2),
        step=st.integers(0, 1),
        worktree=st.sampled_from(["", "", "", "w1"]),
        subtask=st.none() | SUBTASKS,
    ),
    st.builds(
        Replied,
        turn=TURNS,
        agent=AGENTS,
        text=st.sampled_from(["", "ACCEPT", "REVISE: no", "UNABLE: no", "It is done."]),
        calls=st.lists(CALLS, max_size=2).map(tuple),
        usage=USAGES,
        refused=st.sampled_from([(), ("sha",)]),
    ),
    st.builds(
        Permitted,
        turn=st.integers(0, 4),
        call=CALLS,
        allowed=st.booleans(),
        by=st.sampled_from(["policy", "user", "evidence"]),
        snapshot=st.sampled_from([None, "tree1"]),
    ),
    st.builds(
        ToolRan,
        turn=st.integers(0, 4),
        call=CALLS,
        output=st.sampled_from(["1 failed, 2 passed", "3 passed", "no tests ran"]),
        ok=st.booleans(),
        changes=CHANGES,
        job=st.sampled_from(["", "job1"]),
        tests=st.none() | TESTS,
        skipped=st.booleans(),
        found=st.sampled_from([(), ("mcp__a__b",)]),
    ),
    st.builds(JobEnded, job=st.just("job1"), command=st.just("sleep 1"), code=st.just(0)),
    st.builds(
        Merged,
        plan=st.integers(1, 2),
        turns=st.just((1, 2)),
        chosen=st.integers(0, 2),
        changes=CHANGES,
    ),
    st.builds(
        Masked,
        agents=st.just((("coder", Exclusion(message="it failed")),)),
        probed=st.sampled_from(["", "coder"]),
    ),
    st.builds(
        Failed,
        turn=TURNS,
        what=AGENTS,
        kind=st.sampled_from(["timeout", "switched"]),
        message=st.just("no"),
        usage=USAGES,
    ),
    st.builds(
        Planned,
        steps=st.lists(
            st.builds(WorkflowStep, agent=AGENTS, instruction=st.just("do it")), max_size=2
        ).map(tuple),
        text=st.just("plan"),
        agent=AGENTS,
        within=st.sampled_from([None, (1, 0)]),
    ),
    st.builds(Compacted, summary=st.just("so far"), upto=st.integers(0, 12)),
    st.builds(Interrupted, turn=st.integers(0, 4)),
    st.builds(
        Undone,
        snapshot=st.just("tree0"),
        kind=st.sampled_from(["undo", "redo", "rollback"]),
        turn=st.sampled_from([0, 0, 1, 2]),
        changes=CHANGES,
    ),
    st.builds(Finished, reason=st.sampled_from(["accepted", "answered", "budget"])),
)


def possible(events: list[Event]) -> list[Event]:
    """The events, with summaries that stand for events before them alone."""
    return [
        event.model_copy(update={"upto": min(event.upto, line - 1)})
        if isinstance(event, Compacted)
        else event
        for line, event in enumerate(events)
    ]


SESSIONS = st.lists(EVENTS, max_size=30).map(possible)


def values(state: SessionState | RequestState) -> dict[str, object]:
    """Everything that a state derives, by name."""
    names = (
        name
        for name, value in vars(type(state)).items()
        if isinstance(value, cached_property) and not name.startswith("_")
    )
    derived = {name: getattr(state, name) for name in names}
    if isinstance(state, SessionState):
        derived["shown_requests"] = [values(request) for request in state.shown_requests]
    return derived


def everything(state: SessionState) -> list[object]:
    """Every value of the session, of its requests, of its turns and of what each turn sees."""
    requests = [values(request) for request in state.requests]
    numbers = [turn.number for turn in state.request.every_turn]
    verdicts = [state.request.verdict(turn) for turn in state.request.turns]
    seen = [values(state.of_turn(number).request) for number in numbers]
    seen += [values(state.of_turn(number)) for number in numbers]
    before = [values(state.before(turn.assigned).request) for turn in state.request.every_turn]
    return [values(state), requests, values(state.request), verdicts, seen, before]


JOB_OF_NO_TURN = [
    opened(),
    Asked(text="fix it"),
    Assigned(turn=1, agent="coder", role="worker", by="cascade"),
    ToolRan(turn=0, call=Call(id="a", tool="bash", arguments="{}"), output="", ok=True, job="job1"),
    Compacted(summary="so far", upto=3),
    opened(),
]
"""The whole session sees the job at the summary; turn 1 does not, whoever asks first."""


@example(JOB_OF_NO_TURN, [True] * 30)
@given(SESSIONS, st.lists(st.booleans(), min_size=30, max_size=30))
def test_events_that_come_one_by_one_give_the_state_that_they_give_at_once(
    events: list[Event], looks: list[bool]
) -> None:
    growing = SessionState()
    for count, (event, look) in enumerate(zip(events, looks, strict=False), start=1):
        growing.add(event)
        if look:
            assert everything(growing) == everything(SessionState(events[:count]))
    assert everything(growing) == everything(SessionState(events))


@pytest.mark.parametrize("name", ["accepted", "workflow"])
def test_every_prefix_of_a_recorded_session_gives_the_state_that_it_had_then(name: str) -> None:
    events = [record.event for record in log.read(RECORDED / f"{name}.jsonl")]
    growing = SessionState()
    for count, event in enumerate(events, start=1):
        growing.add(event)
        assert everything(growing) == everything(SessionState(events[:count]))


@given(SESSIONS)
def test_the_log_holds_the_state_of_its_events(events: list[Event]) -> None:
    session = log.Log.memory()
    for event in events:
        session.append(event)
    assert session.events == events
    assert everything(session.state) == everything(SessionState(events))


def test_what_nobody_read_is_unread_whatever_a_summary_replaces() -> None:
    first, second = Steered(text="first"), Steered(text="second")
    reply = Replied(turn=1, agent="a", text="I look.")
    events = [
        Asked(text="go"),
        Assigned(turn=1, agent="a", role="worker", by="cascade", reason=""),
        first,
        SteeringGiven(turn=1, agent="a", number=1, message=first),
        reply,
    ]
    later = [
        Compacted(summary="It began.", upto=len(events) - 1),
        reply,
        second,
        Interrupted(turn=1),
    ]
    shown, _ = SessionState([*events, *later, Asked(text="next")]).shown_requests
    assert shown.unread_steering == (second,)
