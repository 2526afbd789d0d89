"""Subtasks with the real binary: done by whom a coordinator chooses or a file names, in a context
of their own.
"""

import json
import signal
from collections.abc import Callable

from fugu_cli.session.events import (
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    Permitted,
    Replied,
    ToolRan,
)
from fugu_cli.session.state import SessionState
from tests.acceptance.driving import Agent, Done, Place, ended, objects
from tests.acceptance.loopback import Answer, Asked, Loopback, Says, Use

CHILD = "This is a task from another agent."
DONE = Says("The subtasks say what I need.")


def task(prompt: str, agent: str = "", description: str = "look around") -> Use:
    given = {"description": description, "prompt": prompt}
    return Use("task", given | ({"agent": agent} if agent else {}))


def asks(
    *calls: Use, then: Answer = DONE, child: Callable[[Asked], Answer] | None = None
) -> Callable[[Asked], Answer]:
    """An agent that calls for subtasks first, and may do them itself."""

    def react(asked: Asked) -> Answer:
        if CHILD in asked.text:
            return child(asked) if child is not None else Says("I found it.")
        return then if asked.results else Says("", calls)

    return react


def subagent(place: Place, name: str, *fields: str, body: str = "You look for bugs.") -> None:
    head = "\n".join((f"name: {name}", f"description: Use {name} for its work.", *fields))
    place.files({f".agents/agents/{name}.md": f"---\n{head}\n---\n{body}\n"})


def results(events: list[Event]) -> list[tuple[bool, str]]:
    return [
        (one.ok, one.output)
        for one in events
        if isinstance(one, ToolRan) and one.call.tool == "task"
    ]


def run(place: Place, *more: str) -> tuple[Done, list[Event]]:
    done = place.fugu("run", "--trust", "what is broken?", *more)
    return done, list(place.events())


def test_two_subtasks_run_side_by_side_with_the_agents_their_files_name(
    place: Place, server: Loopback
) -> None:
    subagent(place, "reviewer", "model: strong-one", body="You review.")
    subagent(place, "finder", "tools: Read, Grep", "model: cheap-two", body="You find.")
    place.configure(
        Agent("lead", provider="anthropic"),
        Agent("cheap-two"),
        Agent("strong-one", "strong", "anthropic"),
        more="",
    )
    server.react(
        "lead",
        asks(task("Review calc.txt", "reviewer"), task("Find the word", "finder", "find a word")),
    )

    def side_by_side(asked: Asked) -> Answer:
        server.wait_for("strong-one")
        server.wait_for("cheap-two")
        return Says(f"{asked.model} has it.")

    server.react("strong-one", side_by_side)
    server.react("cheap-two", side_by_side)
    done, events = run(place)
    assert (done.code, done.out) == (0, "The subtasks say what I need.\n"), done.err
    assigned = [one for one in events if isinstance(one, Assigned)]
    assert [(one.turn, one.agent, one.by, one.reason) for one in assigned if one.subtask] == [
        (2, "strong-one", "file", "reviewer.md names it"),
        (3, "cheap-two", "file", "finder.md names it"),
    ]
    spent = "[1 reply, 100 tokens in, 10 out, $0.0000]"
    assert sorted(said for ok, said in results(events) if ok) == [
        f"cheap-two has it.\n\n{spent}",
        f"strong-one has it.\n\n{spent}",
    ]
    (shown,) = server.asked("cheap-two")
    assert "You find." in shown.text and "Find the word" in shown.text
    for hidden in ("You review.", "Review calc.txt", "what is broken?"):
        assert hidden not in shown.text
    assert [tool["function"]["name"] for tool in shown.body["tools"]] == ["read", "grep"]
    assert [one.subtask is None for one in assigned] == [True, False, False]


def test_a_general_task_needs_no_file_and_goes_to_whom_the_coordinator_chooses(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("lead", "middle"), Agent("cheap"), more="")
    server.react("cheap", asks(task("Look."), child=lambda asked: Says("Nothing is broken.")))
    done, events = run(place)
    assert (done.code, done.out) == (0, "The subtasks say what I need.\n"), done.err
    assert [(e.agent, e.by, e.subtask is None) for e in events if isinstance(e, Assigned)] == [
        ("cheap", "cascade", True),
        ("cheap", "cascade", False),
    ]
    names = [tool["function"]["name"] for tool in server.asked("cheap")[1].body["tools"]]
    assert "bash" in names and not {"task", "todo", "acceptance_check"} & {*names}


def test_a_slot_is_a_wish_and_an_unknown_model_is_said(place: Place, server: Loopback) -> None:
    subagent(place, "wise", "model: opus")
    subagent(place, "lost", "model: gpt-99")
    place.configure(Agent("lead"), Agent("judge", "strong"), more="")
    server.react("lead", asks(task("Think.", "wise"), task("Look.", "lost")))
    server.play("judge", Says("I thought."))
    done, events = run(place)
    assert done.code == 0, done.err
    assert (
        "lost.md: no agent of the pool is called gpt-99; the coordinator chooses who does its tasks"
        in done.err
    )
    chosen = {
        one.subtask.name: (one.agent, one.reason)
        for one in events
        if isinstance(one, Assigned) and one.subtask
    }
    assert chosen == {
        "wise": ("judge", "only choice"),
        "lost": ("lead", "lost.md names gpt-99, which cannot be chosen here; cheapest first"),
    }
    pinned = run(place, "--agent", "lead")[1]
    assert [one.agent for one in pinned if isinstance(one, Assigned) and one.subtask] == [
        "lead",
        "lead",
    ]


def test_a_tool_that_the_file_does_not_name_is_refused(place: Place, server: Loopback) -> None:
    subagent(place, "reader", "tools: Read")
    place.configure(Agent("lead"), Agent("judge", "strong"), more="")
    writes = Says("", (Use("write", {"path": "calc.txt", "content": "gone\n"}), task("Write it.")))
    server.react(
        "lead",
        asks(
            task("Fix it.", "reader"), child=lambda a: Says("I may not.") if a.results else writes
        ),
    )
    done, events = run(place)
    assert done.code == 0, done.err
    refused = [
        (one.call.tool, one.reason)
        for one in events
        if isinstance(one, Permitted) and not one.allowed
    ]
    assert refused == [
        ("write", "the subagent reader has no tool write"),
        ("task", "a subtask has no tool task"),
    ]
    assert (place.repo / "calc.txt").read_text() == "broken\n"


def test_bad_front_matter_is_one_line_and_the_session_goes_on(
    place: Place, server: Loopback
) -> None:
    place.files(
        {
            ".claude/agents/a.md": "---\nname: a\n---\nHello.\n",
            ".agents/agents/b.md": "---\nname: b\ndescription: B.\ntools: Reed\n---\nHello.\n",
            ".agents/agents/c.md": '---\nname: c\ndescription: "C\n---\nHello.\n',
            ".agents/agents/e.md": (
                "---\nname: e\ndescription: E.\ndisallowedTools: Bash\n---\nHello.\n"
            ),
            ".agents/agents/d.md": "---\nname: d\ndescription: D.\neffort: huge\n---\nHello.\n",
        }
    )
    place.configure(Agent("lead"), Agent("judge", "strong"), more="")
    server.react("lead", asks(task("Look.", "b"), task("Look.")))
    done, events = run(place)
    assert done.code == 0, done.err
    said = [line for line in done.err.splitlines() if "the subagent is left out" in line]
    assert [line.partition("/repo/")[2] for line in said] == [
        ".agents/agents/b.md: its `tools` name one that is not there: there is none called "
        "`Reed`; did you mean read?; "
        "the subagent is left out",
        ".agents/agents/c.md: line 3 is not valid YAML: found unexpected end of stream; the "
        "subagent is left out",
        ".agents/agents/d.md: its `effort` is 'huge': one of none, minimal, low, medium, high, "
        "xhigh, max; "
        "the subagent is left out",
        ".agents/agents/e.md: it has `disallowedTools` alone: name the tools it may use in "
        "`tools`; "
        "the subagent is left out",
        ".claude/agents/a.md: its `description` is missing: agents choose by it; the subagent is "
        "left out",
    ]
    assert results(events)[0] == (
        False,
        "There is no subagent b. There are none. Without `agent` a general one does it.",
    )


def test_subagents_of_a_repository_count_after_trust(place: Place, server: Loopback) -> None:
    subagent(place, "reviewer")
    place.configure(Agent("lead"), Agent("judge", "strong"), more="")
    server.react("lead", asks(task("Look.", "reviewer")))
    done = place.fugu("run", "what is broken?")
    assert "names the subagent reviewer: none is used until you run `fugu trust` here" in done.err
    assert "There is no subagent reviewer." in results(list(place.events()))[0][1]
    assert (
        "its subagent reviewer is told to agents: Use reviewer for its work.\n"
        in place.fugu("trust").out
    )
    place.fugu("run", "what is broken?")
    assert results(list(place.events()))[0][0]
    (place.repo / ".agents/agents/reviewer.md").write_text(
        "---\nname: reviewer\ndescription: X.\n---\nElse.\n"
    )
    assert (
        "is not trusted any more: .agents/agents/reviewer.md changed since"
        in place.fugu("run", "again?").err
    )


def test_what_a_subtask_changed_is_verified_blamed_shown_in_the_trace_and_undone(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("lead", "middle"), Agent("judge", "strong"))
    write = Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),))
    read = Says("", (Use("read", {"path": "calc.txt"}),))
    steps = (read, write, Says("I fixed it."))
    server.react(
        "lead", asks(task("Fix calc.txt"), child=lambda asked: steps[min(len(asked.results), 2)])
    )
    server.play("judge", Says("ACCEPT. The tests pass."))
    done = place.fugu("run", "fix calc.txt")
    assert done.code == 0, done.err
    assert "verified by judge · 1 test passes" in done.err
    events = place.events()
    assert [one.turn for one in events if isinstance(one, ToolRan) and one.changes] == [2]
    assert list(SessionState(events).request.changes) == ["calc.txt"]
    trace = json.loads(place.fugu("trace", "latest", "--json").out)
    rows = [
        (
            row["turn"],
            row["subtask"] and row["subtask"]["turn"],
            row["changed"],
            row["usage"]["output"],
        )
        for row in trace["requests"][0]["decisions"]
    ]
    assert rows == [(1, None, [], 20), (2, 1, ["calc.txt"], 30), (3, None, [], 10)]
    assert "task: look around" in place.fugu("trace", "latest").out
    assert "Fix calc.txt" in place.fugu("trace", "latest", "--turn", "2").out
    assert "\n1  1.2   lead " in place.fugu("blame", "calc.txt").out
    assert place.fugu("undo", "--yes").code == 0
    assert (place.repo / "calc.txt").read_text() == "broken\n"


def test_stream_json_names_the_call_that_a_subtasks_lines_belong_to(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("lead", "middle"), more="")
    looks = Says("", (Use("read", {"path": "calc.txt"}),))
    server.react(
        "lead", asks(task("Look."), child=lambda asked: Says("broken") if asked.results else looks)
    )
    lines = objects(run(place, "--output-format", "stream-json")[0].out)
    told = [
        (line["type"], line["parent_tool_use_id"]) for line in lines if "parent_tool_use_id" in line
    ]
    call = told[1][1]
    assert told == [
        ("assistant", None),
        ("assistant", call),
        ("user", call),
        ("assistant", call),
        ("user", None),
        ("assistant", None),
    ]
    assert lines[2]["message"]["content"][0]["id"] == call


def test_a_killed_subtask_reads_interrupted_and_is_not_run_again(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("lead", "middle"), more="")
    server.react("lead", asks(task("Look."), child=lambda asked: Says("late", pause=60.0)))
    process = place.start("run", "what is broken?")
    server.wait_for("lead", 2)
    process.send_signal(signal.SIGKILL)
    ended(process)
    server.react("lead", asks(task("Look.")))
    done = place.fugu("run", "--continue")
    assert (done.code, done.out) == (0, DONE.text + "\n"), done.err
    events = list(place.events())
    assert [one.turn for one in events if isinstance(one, Interrupted)] == [2]
    assert results(events) == []
    assert server.asked("lead")[0].results == (
        "Interrupted: the call was started and did not come to an end. It was not run again.",
    )
    assert len(server.asked("lead")) == 1


def test_a_budget_that_is_reached_inside_a_subtask_ends_the_request(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("lead", "middle", price="{ input = 1.0, output = 1.0 }"), more="")
    looks = Says("", (Use("read", {"path": "calc.txt"}),), tokens=(20_000, 10))
    server.react("lead", asks(task("Look."), child=lambda asked: looks))
    done, events = run(place, "--max-budget-usd", "0.1")
    assert done.code == 3, done.err
    assert isinstance(events[-1], Finished) and events[-1].reason == "budget"
    ((ok, said),) = results(events)
    assert not ok and "of the request's budget of $0.1000 are left" in said
    assert [(one.turn, one.kind) for one in events if isinstance(one, Failed)] == [
        (2, "budget"),
        (1, "budget"),
    ]


def test_an_agent_that_fails_gives_its_subtask_to_the_next(place: Place, server: Loopback) -> None:
    place.configure(Agent("lead", "middle"), Agent("cheap"), more="")
    server.react("cheap", asks(task("Look."), child=lambda asked: Says("")))
    server.play("lead", Says("I looked."))
    done, events = run(place)
    assert done.code == 0, done.err
    assert [one.agent for one in events if isinstance(one, Assigned) and one.subtask] == [
        "cheap",
        "lead",
    ]
    assert results(events)[0][1].startswith("I looked.")


def test_the_same_subagent_keeps_its_agent_and_the_beginning_of_its_prompt(
    place: Place, server: Loopback
) -> None:
    subagent(place, "reviewer", "tools: Read")
    place.configure(Agent("lead", "middle"), Agent("one"), Agent("two"), more="")

    def lead(asked: Asked) -> Answer:
        if len(asked.results) < 2:
            return Says("", (task(f"Look at part {len(asked.results)}", "reviewer"),))
        return DONE

    server.react("one", lambda asked: Says("seen") if CHILD in asked.text else lead(asked))
    done, events = run(place)
    assert done.code == 0, done.err
    assert [one.agent for one in events if isinstance(one, Assigned) and one.subtask] == [
        "one",
        "one",
    ]
    first, second = (asked for asked in server.asked("one") if CHILD in asked.text)
    assert (first.body["messages"][0], first.body["tools"]) == (
        second.body["messages"][0],
        second.body["tools"],
    )
    assert sum(isinstance(one, Replied) for one in events) == 5


def test_subtasks_that_write_wait_for_those_before_them(place: Place, server: Loopback) -> None:
    place.configure(Agent("lead", "middle"), more="")

    def child(asked: Asked) -> Answer:
        name = "one" if "Write one" in asked.text else "two"
        if asked.results:
            return Says(f"{name} is written.", pause=0.3 if name == "one" else 0.0)
        return Says(
            "",
            (Use("write", {"path": f"{name}.txt", "content": name}),),
            pause=0.3 if name == "one" else 0.0,
        )

    server.react("lead", asks(task("Write one"), task("Write two"), child=child))
    events = run(place)[1]
    written = [one.call.arguments for one in events if isinstance(one, ToolRan) and one.changes]
    assert [("one.txt" in one, "two.txt" in one) for one in written] == [
        (True, False),
        (False, True),
    ]
    places = {
        (type(one), one.turn): at
        for at, one in enumerate(events)
        if isinstance(one, Replied | ToolRan)
    }
    assert places[Replied, 2] < places[ToolRan, 3]


def test_rules_and_hooks_know_a_subtask_by_the_subagent(place: Place, server: Loopback) -> None:
    subagent(place, "reviewer")
    subagent(place, "finder")
    said = 'python3 -c \'import sys; open("said", "a").write(sys.stdin.read())\''
    (place.home / ".agents").mkdir()
    (place.home / ".agents/hooks.json").write_text(
        json.dumps(
            {
                "hooks": {
                    "PreToolUse": [
                        {"matcher": "Task", "hooks": [{"type": "command", "command": said}]}
                    ],
                    "SubagentStop": [
                        {"matcher": "finder", "hooks": [{"type": "command", "command": said}]}
                    ],
                }
            }
        )
    )
    place.configure(Agent("lead", "middle"), more="")
    server.react("lead", asks(task("Review.", "reviewer"), task("Find.", "finder")))
    done, events = run(place, "--deny", "task(reviewer)")
    assert done.code == 0, done.err
    refused = [one.reason for one in events if isinstance(one, Permitted) and not one.allowed]
    assert [reason.partition(". ")[0] for reason in refused] == [
        "the rule task(reviewer) forbids it"
    ]
    told = (place.repo / "said").read_text()
    for part in (
        '"tool_name": "Task"',
        '"subagent_type": "finder"',
        '"agent_type": "finder"',
        "I found it.",
    ):
        assert part in told
    assert '"subagent_type": "reviewer"' not in told


def test_a_workflow_offers_no_subtasks(place: Place, server: Loopback) -> None:
    place.configure(Agent("lead", "middle"), Agent("judge", "strong"), more="")
    server.react("lead", lambda asked: DONE)
    server.react("judge", lambda asked: Says("No plan.") if "You plan." in asked.text else DONE)
    place.fugu("run", "--tier", "ultra", "what is broken?")
    offered = [
        tool["function"]["name"]
        for asked in server.asked("lead")
        for tool in asked.body.get("tools", ())
    ]
    assert "read" in offered and "task" not in offered


def test_no_more_than_four_are_under_way_at_once(place: Place, server: Loopback) -> None:
    place.configure(Agent("lead", "middle"), more="")
    now, most = 0, 0

    def child(asked: Asked) -> Answer:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        server.over.wait(0.3)
        now -= 1
        return Says("I found it.")

    server.react("lead", asks(*(task(f"Look at {number}") for number in range(6)), child=child))
    done, events = run(place)
    assert done.code == 0, done.err
    assert [ok for ok, _ in results(events)] == [True] * 6
    assert 1 < most <= 4


def test_how_much_to_reason_is_the_files_else_the_requests(place: Place, server: Loopback) -> None:
    subagent(place, "quick", "effort: low", "tools: Read, Bash", "disallowedTools: Bash")
    place.configure(Agent("lead", "middle"), more="")
    server.react("lead", asks(task("Look.", "quick"), task("Think.")))
    done, _ = run(place, "--effort", "high")
    assert done.code == 0, done.err
    children = [asked for asked in server.asked("lead") if CHILD in asked.text]
    sent = {
        "Think." in one.text: (one.body["reasoning_effort"], len(one.body["tools"]))
        for one in children
    }
    assert (sent[False], sent[True][0]) == (("low", 1), "high")
