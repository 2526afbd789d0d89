"""What people read while a request runs: one line a fact."""

from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.session import views
from fugu_cli.session.events import (
    Compacted,
    Event,
    FileChange,
    Finished,
    Interrupted,
    JobEnded,
    Permitted,
    Planned,
    Replied,
    ToolRan,
    Undone,
    WorkflowStep,
)
from fugu_cli.ui import event_text
from tests.facts import asked, assigned, opened, replied
from tests.unit.ui import example

TEXT = Path(__file__).with_name("session.txt").read_text(encoding="utf-8")


def plain(facts: list[Event]) -> str | None:
    text = event_text.event_line(facts)
    return text.plain if text is not None else None


def test_a_whole_session_reads_like_this() -> None:
    facts = example.events()
    lines = [line for end in range(1, len(facts) + 1) if (line := plain(facts[:end])) is not None]
    assert "\n".join(lines) + "\n" == TEXT


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Interrupted(turn=1), "  interrupted"),
        (
            Undone(snapshot="t", paths=("a", "b")),
            "2 files were put back: undone by the user",
        ),
        (Compacted(summary="s", upto=3), "  the conversation was shortened"),
        (JobEnded(job="job1", command="make", code=2, seconds=12), "  job1: exit code 2, 12 s (make)"),
        (JobEnded(job="job1", command="make", code=-9, seconds=12), "  job1: signal 9, 12 s (make)"),
        (JobEnded(job="job1", command="make", by="agent"), "  job1: stopped by the agent, 0 ms (make)"),
        (JobEnded(job="job1", command="make", by="user"), "  job1: stopped by the user, 0 ms (make)"),
        (JobEnded(job="job1", command="make", by="undo"), "  job1: stopped: the files were put back, 0 ms (make)"),
        (JobEnded(job="job1", command="make", by="session"), "  job1: ended with the session, 0 ms (make)"),
        (
            Planned(steps=(WorkflowStep(agent="a", instruction="b"),), text="", agent="p"),
            "workflow of 1 step  p: 0 in, 0 out, 0 ms\n  1  a  <- the request  b",
        ),
        (Finished(reason="turn_limit", message="5 turns"), "stopped: turn limit: 5 turns"),
        (Finished(reason="failed", message="nobody left"), "failed: nobody left"),
    ],
)
def test_the_rarer_facts_have_a_line_too(event: Event, line: str) -> None:
    assert plain([*example.opening(), event]) == line


def test_a_job_that_was_started_and_a_list_of_things_to_do_are_told_in_lines() -> None:
    serve = Call.make("9", "bash", command="npm run dev", background=True)
    began = ToolRan(turn=1, call=serve, output="Started as job1.", ok=True, job="job1")
    assert event_text.tool_result_text(began).plain == "  bash npm run dev, in the background  started as job1"
    items = [
        {"text": "look", "status": "done"},
        {"text": "act\x1b[2J", "status": "in_progress"},
        {"text": "rest", "status": "pending"},
    ]
    todo = ToolRan(turn=1, call=Call.make("9", "todo", items=items), output="ok", ok=True)
    assert event_text.tool_result_text(todo).plain == (
        "  todo 1 of 3 done: act\\x1b[2J  ok\n    [x] look\n    [>] act\n    [ ] rest"
    )
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
    assert event_text.approval_target(serve, "bash(npm run dev)") == "npm run dev, in the background"


def test_why_there_is_no_learned_coordinator_is_said_once() -> None:
    why = "cheap first [no learned coordinator: there is no checkpoint]"
    facts: list[Event] = [*example.opening(), example.decision(1, "small", "worker", None, reason=why)]
    assert plain(facts) == f"turn 1  small as worker  310 ms  trinity: {why}"
    facts.append(example.decision(2, "coder", "worker", None, reason=why))
    assert plain(facts) == "turn 2  coder as worker  310 ms  trinity: cheap first"


def test_every_way_to_finish_has_words() -> None:
    assert set(views.END_WORDS) == set(Finished.model_fields["reason"].annotation.__args__)


def test_what_fugu_ran_itself_is_called_evidence() -> None:
    call = Call.make("e1", "read", path="src/a.py")
    facts = [
        *example.opening(),
        Permitted(turn=1, call=call, allowed=True, by="evidence"),
        ToolRan(turn=1, call=call, output="x", ok=True),
    ]
    assert plain(facts) == "  evidence: read src/a.py  ok"


def test_a_failed_tool_shows_the_first_line_of_its_output_and_changes_beyond_its_target() -> None:
    call = Call.make("1", "bash", command="make\nall")
    event = example.tool(1, call, "", FileChange(path="b.o", before=None, after="x"))[1]
    assert plain([event.model_copy(update={"ok": False, "output": "\nboom\nmore"})]) == (
        "  bash make  failed  boom  changed b.o"
    )


def test_escapes_of_models_and_tools_never_reach_the_line() -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jhi"
    call = Call.make("1", f"ba{evil}sh", command=evil)
    facts: list[Event] = [
        *example.opening(),
        example.decision(1, "coder", "worker", None, reason=evil),
        example.said(1, "coder", evil, call),
        Permitted(turn=1, call=call, allowed=False, by="policy", reason=evil),
        ToolRan(turn=1, call=call, output=evil, ok=False),
        Undone(turn=1, snapshot=None, reason=evil),
        Finished(reason="failed", message=evil),
    ]
    for end in range(3, len(facts) + 1):
        line = plain(facts[:end])
        assert line is not None and "\x1b" not in line and "\x07" not in line and "hi" in line


@pytest.mark.parametrize("arguments", ["", "nonsense", "[1]", '{"path": 3}', "{}"])
def test_arguments_that_are_no_object_leave_the_tools_name_alone(arguments: str) -> None:
    assert event_text.describe_call(Call(id="1", tool="read", arguments=arguments)) == "read"


@pytest.mark.parametrize(
    ("ok", "output", "words"),
    [
        (True, "3 passed in 1s", "pass (3 passed)"),
        (False, "1 failed, 2 passed", "FAIL (1 failed, 2 passed)"),
        (False, "make: *** [test] Error 2", "FAIL"),
        (True, "", "pass"),
    ],
)
def test_tests_are_told_in_words(ok: bool, output: str, words: str) -> None:
    assert event_text.test_counts_text(ok, output) == words


def test_a_line_that_was_filled_in_as_it_stood_is_one_line() -> None:
    kept = Replied(turn=1, agent="coder", text="a.py:3: as it is", filled="a.py:3")
    undone = Undone(snapshot="tree0", turn=1, reason="nothing was changed")
    assert event_text.event_line((kept, undone)) is None
    other = kept.model_copy(update={"calls": (Call.make("w1", "edit", path="a.py"),)})
    assert event_text.event_line((other, undone)) is not None


def test_what_a_small_model_was_asked_for_is_told() -> None:
    reply = replied(1, "small").model_copy(update={"aimed": "a.py:3 total anew"})
    said = plain([opened(), asked(), assigned(1, "small"), reply])
    assert said is not None
    assert said.splitlines()[0].endswith("asked for a.py:3 total anew")
    assert "asked for" not in str(plain([opened(), asked(), assigned(1, "small"), replied(1, "small")]))
