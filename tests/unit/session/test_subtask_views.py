"""What the log says of subtasks: whose they are, what they stand in, what goes when their turn is
rolled back.
"""

from fugu_cli.coordinators import action_space
from fugu_cli.messages import Call, FromUser
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Exclusion,
    Finished,
    Masked,
    Permitted,
    Subtask,
    Undone,
)
from fugu_cli.session.state import SessionState
from tests.facts import STRONG, asked, assigned, opened, prompt_of, ran, replied, write

CALL = Call.make("t1-0-0", "task", description="fix b", prompt="Fix b.py", agent="fixer")
TASK = Subtask(
    turn=1,
    call="t1-0-0",
    name="fixer",
    about="fix b",
    brief="You fix.",
    tools=("read", "mcp__docs"),
)
BEGUN = Assigned(
    turn=2,
    agent="small",
    role="worker",
    by="cascade",
    sees=(),
    instruction="Fix b.py",
    subtask=TASK,
)


def facts() -> list[Event]:
    return [
        opened(),
        asked(judged=False),
        assigned(1, "strong"),
        replied(1, "strong", "", write("t1-0-9"), CALL),
        *ran(1, write("t1-0-9"), path="a.py"),
        Permitted(turn=1, call=CALL, allowed=True, by="policy"),
        BEGUN,
        replied(2, "small", "", write("t2-0-0", "b.py")),
        *ran(2, write("t2-0-0", "b.py"), path="b.py"),
        replied(2, "small", "I fixed it."),
        ran(1, CALL, "I fixed it.")[1],
    ]


def test_a_subtask_belongs_to_the_turn_whose_call_began_it() -> None:
    (turn,) = SessionState(facts()).request.turns
    (subtask,) = turn.subtasks
    assert (turn.number, subtask.number, subtask.text) == (1, 2, "I fixed it.")
    assert [change.path for change in turn.changes] == ["a.py", "b.py"]
    assert [run.permitted.call.id for run in turn.work] == ["t1-0-9", "t2-0-0", "t1-0-0"]
    assert [one.number for one in SessionState(facts()).request.every_turn] == [1, 2]
    assert action_space.next_turn_number(SessionState(facts())) == 3
    assert SessionState(facts()).request.open_subtasks == ()
    assert [one.number for one in SessionState(facts()[:-1]).request.open_subtasks] == [2]


def test_a_subtask_stands_in_a_log_that_asks_its_prompt_alone() -> None:
    shown = SessionState(facts()).of_turn(2).events
    assert tuple(shown) == (
        opened(),
        Asked(text="Fix b.py"),
        BEGUN.model_copy(update={"instruction": ""}),
        replied(2, "small", "", write("t2-0-0", "b.py")),
        *ran(2, write("t2-0-0", "b.py"), path="b.py"),
        replied(2, "small", "I fixed it."),
    )
    prompt = prompt_of(shown[:3], STRONG, (), "Be brief.")
    assert prompt.system.endswith("Be brief.\n\nYou fix.")
    first, second = prompt.messages
    assert first == FromUser(text="Fix b.py")
    assert isinstance(second, FromUser) and second.text.startswith(
        "This is a task from another agent."
    )


def test_the_turn_reads_the_result_alone() -> None:
    prompt = prompt_of(facts(), STRONG)
    assert "t2-0-0" not in "".join(message.model_dump_json() for message in prompt.messages)
    assert prompt.messages[-1].text == "I fixed it."


def test_a_rollback_takes_the_subtasks_of_the_attempt_with_it() -> None:
    undone = [*facts(), Undone(snapshot="tree", kind="rollback", turn=1, reason="the tests failed")]
    assert list(SessionState(facts()).request.changes) == ["a.py", "b.py"]
    assert SessionState(undone).request.changes == {}
    (turn,) = SessionState(undone).request.turns
    assert (turn.subtasks, turn.changes) == ((), ())


def test_a_coordinator_reads_what_the_same_subagent_did_last_and_who_is_out() -> None:
    out = {"coder": Exclusion(kind="network", message="down")}
    assert tuple(SessionState(facts()).to_assign(TASK, "Fix c.py", out).events) == (
        opened(),
        Asked(text="Fix b.py"),
        BEGUN.model_copy(update={"instruction": "", "subtask": None}),
        replied(2, "small", "I fixed it."),
        Finished(reason="answered"),
        Asked(text="Fix c.py"),
        Masked(agents=(("coder", out["coder"]),)),
    )
    other = TASK.model_copy(update={"name": "finder"})
    assert tuple(SessionState(facts()).to_assign(other, "Find it", {}).events) == (
        opened(),
        Asked(text="Find it"),
    )


def test_a_subtask_has_the_tools_its_file_names_and_those_of_a_server() -> None:
    tools = ("read", "write", "mcp__docs__search", "mcp__docsearch__find")
    assert [tool for tool in tools if TASK.offers(tool)] == ["read", "mcp__docs__search"]
    assert all(TASK.model_copy(update={"tools": None}).offers(tool) for tool in tools)
