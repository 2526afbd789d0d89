"""What people read while a request runs."""

import asyncio
import io
from pathlib import Path

import pytest

from fugu_cli.app import event_text
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    Compacted,
    Event,
    Failed,
    FileChange,
    Finished,
    Interrupted,
    JobEnded,
    Permitted,
    Planned,
    ToolRan,
    Undone,
    WorkflowStep,
)
from fugu_cli.session.log import Log
from fugu_cli.session.outcome import TestOutcome
from fugu_cli.session.verdicts import END_WORDS
from fugu_cli.ui import headless
from fugu_cli.ui.terminal_output import TerminalOutput
from tests.facts import asked, assigned, opened, replied
from tests.unit.ui import example

TEXT = Path(__file__).with_name("session.txt").read_text(encoding="utf-8")


def printed(facts: list[Event]) -> list[str]:
    """What `fugu run` prints of these, without blank lines."""
    err, log = io.StringIO(), Log.memory(facts)

    async def follow() -> None:
        reader = asyncio.create_task(
            headless.follow_text(log, TerminalOutput(io.StringIO(), err, {}))
        )
        await asyncio.sleep(0)
        log.close()
        await reader

    asyncio.run(follow())
    return [line.rstrip() for line in err.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (
            Interrupted(turn=1),
            ["  interrupted; `fugu run --continue` goes on, or ask something else"],
        ),
        (
            Undone(snapshot="t", paths=("a", "b")),
            ["  undone by the user: 2 files put back", "    a", "    b"],
        ),
        (
            Compacted(summary="s", upto=3),
            [
                "  summed up without a model; agents read this from now on, the log keeps all",
                "    s",
            ],
        ),
        (
            JobEnded(job="job1", command="make", code=2, seconds=12),
            ["  job1: exit code 2, 12 s (make)"],
        ),
        (
            JobEnded(job="job1", command="make", code=-9, seconds=12),
            ["  job1: signal 9, 12 s (make)"],
        ),
        (
            JobEnded(job="job1", command="make", by="agent"),
            ["  job1: stopped by the agent, 0 ms (make)"],
        ),
        (
            JobEnded(job="job1", command="make", by="user"),
            ["  job1: stopped by the user, 0 ms (make)"],
        ),
        (
            JobEnded(job="job1", command="make", by="undo"),
            ["  job1: stopped: the files were put back, 0 ms (make)"],
        ),
        (
            JobEnded(job="job1", command="make", by="session"),
            ["  job1: ended with the session, 0 ms (make)"],
        ),
        (
            Planned(steps=(WorkflowStep(agent="a", instruction="b"),), text="", agent="p"),
            ["● workflow of 1 step by p", "  1 a b"],
        ),
        (
            Finished(reason="turn_limit", message="5 turns"),
            ["■ stopped: turn limit  0 turns · 0.0s · 0 tokens · $0", "  5 turns"],
        ),
        (
            Finished(reason="failed", message="nobody left"),
            ["✗ failed  0 turns · 0.0s · 0 tokens · $0", "  nobody left"],
        ),
    ],
)
def test_the_rarer_facts_have_a_line_too(event: Event, lines: list[str]) -> None:
    opening = example.opening()
    assert printed([*opening, event])[len(printed(opening)) :] == lines


def test_the_end_counts_the_tokens_of_calls_that_failed_too() -> None:
    failed = Failed(
        turn=1, what="small", kind="protocol", message="x", usage=Usage(input=7, output=3)
    )
    lines = printed([opened(), asked(), assigned(1, "small"), failed, Finished(reason="failed")])
    assert any("10 tokens" in line for line in lines)


def test_a_reply_that_did_not_come_to_its_end_says_so() -> None:
    reply = replied(1, "small", "The answer i").model_copy(update={"stop": "length"})
    assert printed([opened(), asked(), assigned(1, "small"), reply])[-2:] == [
        "The answer i",
        "  cut at the reply limit",
    ]


def test_a_job_that_was_started_and_a_list_of_things_to_do_are_told_in_lines() -> None:
    serve = Call.make("9", "bash", command="npm run dev", background=True)
    began = ToolRan(turn=1, call=serve, output="Started as job1.", ok=True, job="job1")
    items = [
        {"text": "look", "status": "done"},
        {"text": "act\x1b[2J", "status": "in_progress"},
        {"text": "rest", "status": "pending"},
    ]
    todo = ToolRan(turn=1, call=Call.make("8", "todo", items=items), output="ok", ok=True)
    facts = [
        one
        for ran in (began, todo)
        for one in (Permitted(turn=1, call=ran.call, allowed=True, by="mode"), ran)
    ]
    job, *done = printed(
        [*example.opening(), example.decision(1, "coder", "worker", None), *facts]
    )[-5:]
    assert job.split("  ")[1].strip() == "✓ bash npm run dev, in the background" and job.endswith(
        "started as job1"
    )
    assert done == ["  ✓ todo 1 of 3 done: act\\x1b[2J", "    ☑ look", "    ◐ act", "    ☐ rest"]
    assert (
        event_text.describe_call(Call.make("9", "web_fetch", url="https://a.example/x"))
        == "web_fetch https://a.example/x"
    )
    hidden = Call.make("9", "bash", command="make clean \x1b] ; touch a #\rmake")
    assert event_text.describe_call(hidden) == "bash make clean \\x1b] ; touch a #\\x0dmake"
    assert event_text.describe_call(Call.make("9", "job_stop", job="job1")) == "job_stop job1"
    assert event_text.describe_call(Call.make("9", "todo", items="none")) == "todo empty"


def test_a_question_shows_all_that_the_call_will_do() -> None:
    fetch = Call.make("9", "web_fetch", url="https://a.example/x?secret=1")
    assert event_text.approval_target(fetch, "web_fetch(a.example)") == (
        'a.example {"url": "https://a.example/x?secret=1"}'
    )
    serve = Call.make("9", "bash", command="npm run dev", background=True)
    assert (
        event_text.approval_target(serve, "bash(npm run dev)") == "npm run dev, in the background"
    )


def test_why_there_is_no_learned_coordinator_is_said_once() -> None:
    decisions = [
        example.decision(number, agent, "worker", None, reason="cheapest first")
        for number, agent in ((1, "small"), (2, "coder"))
    ]
    fallback = {"fallback": "there is no checkpoint"}
    facts: list[Event] = [
        *example.opening(),
        *(decision.model_copy(update=fallback) for decision in decisions),
    ]
    told, first, second = [" ".join(line.split()) for line in printed(facts) if line.strip()][-3:]
    assert "the checkpoint does not decide: there is no checkpoint" in told
    assert (first, second) == (
        "● worker small cheapest first turn 1",
        "● worker coder cheapest first turn 2",
    )


def test_every_way_to_finish_has_words() -> None:
    assert set(END_WORDS) == set(Finished.model_fields["reason"].annotation.__args__)


def test_a_failed_tool_shows_its_output() -> None:
    call = Call.make("1", "bash", command="make\nall")
    permitted, event = example.tool(1, call, "", FileChange(path="b.o", before=None, after="x"))
    failed = event.model_copy(update={"ok": False, "output": "1\n2\n3\nboom\nmore", "changes": ()})
    assert printed([*example.opening(), permitted, failed])[-5:] == [
        "  ✗ bash make all",
        "    3",
        "    boom",
        "    more",
        "    +2 lines",
    ]


def test_escapes_of_models_and_tools_never_reach_the_line() -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jhi"
    call = Call.make("1", f"ba{evil}sh", command=evil)
    facts: list[Event] = [
        *example.opening(),
        example.decision(1, "coder", "worker", None, reason=evil),
        example.said(1, "coder", evil, call),
        Permitted(turn=1, call=call, allowed=False, by="policy", reason=evil),
        Undone(turn=1, snapshot=None, reason=evil),
        Finished(reason="failed", message=evil),
    ]
    for end in range(3, len(facts) + 1):
        text = "\n".join(printed(facts[:end])[len(printed(facts[: end - 1])) :])
        assert "\x1b" not in text and "\x07" not in text and "hi" in text


@pytest.mark.parametrize("arguments", ["", "nonsense", "[1]", '{"path": 3}', "{}"])
def test_arguments_that_are_no_object_leave_the_tools_name_alone(arguments: str) -> None:
    assert event_text.describe_call(Call(id="1", tool="read", arguments=arguments)) == "read"


@pytest.mark.parametrize(
    ("outcome", "output", "words"),
    [
        ("pass", "3 passed in 1s", "pass (3 passed)"),
        ("broken", "1 failed, 2 passed", "FAIL (1 failed, 2 passed)"),
        ("as before", "1 failed, 2 passed", "fail as before (1 failed, 2 passed)"),
        ("fail", "make: *** [test] Error 2", "fail"),
        ("not run", "", "not run"),
        ("pass", "", "pass"),
    ],
)
def test_tests_are_told_in_words(outcome: TestOutcome, output: str, words: str) -> None:
    assert event_text.test_counts_text(outcome, output) == words
