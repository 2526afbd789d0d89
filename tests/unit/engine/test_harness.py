"""What a turn of an agent that calls tools needs next: a function of the log."""

from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.engine import harness
from fugu_cli.engine.environment import (
    Environment,
    GatherEvidence,
    NextStep,
    RequestLimits,
    RequestReply,
    RunCall,
    TestRules,
    TurnClosed,
)
from fugu_cli.messages import Call, FromUser
from fugu_cli.safety import policy
from fugu_cli.session.events import (
    Asked,
    Event,
    FileChange,
    Interrupted,
    Permitted,
    Role,
    TestReport,
    ToolRan,
)
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE
from fugu_cli.session.state import SessionState
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_toolbox
from tests.facts import FAILS, STRONG, assigned, opened, ran, replied, write
from tests.reacting import never, repository

START: list[Event] = [opened(), Asked(text="do it", snapshot="tree0", test_command="pytest")]
WORKED = [
    assigned(1, "strong"),
    replied(1, "strong", "", write("w")),
    *ran(1, write("w"), path="a.py"),
]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    workspace = Workspace(repository(tmp_path / "repo"), tmp_path / "store", test_command="pytest")
    return Environment(
        build_toolbox(), workspace, policy.Rules(trusted=True), never, RequestLimits(replies=5)
    )


def suite(
    turn: int, *, ok: bool, failing: tuple[str, ...] = (), id: str = "s", seconds: float = 0.0
) -> list[Event]:
    call = Call(id=f"{id}{turn}", tool=RUN_TESTS)
    report = TestReport(passed=3, failed=len(failing), failing=failing, by_id=True)
    result = ToolRan(turn=turn, call=call, output=FAILS, ok=ok, tests=report, seconds=seconds)
    return [Permitted(turn=turn, call=call, allowed=True, by="evidence"), result]


def looked_up(
    turn: int,
    ids: tuple[str, ...],
    *,
    failed: tuple[str, ...] = (),
    ok: bool = True,
    failing: bool = True,
) -> list[Event]:
    call = Call.make(f"l{turn}", TESTS_BEFORE, tree="tree0", ids=list(ids), failing=failing)
    passed = tuple(id for id in ids if id not in failed)
    report = (
        TestReport(failing=failed, passing=passed, failed=len(failed), by_id=True) if ok else None
    )
    return [
        Permitted(turn=turn, call=call, allowed=True, by="evidence"),
        ToolRan(turn=turn, call=call, output="", ok=ok, tests=report),
    ]


def tool(step: NextStep) -> str:
    assert isinstance(step, GatherEvidence), step
    return step.call.tool


def test_a_worker_begins_with_its_reply_and_runs_its_calls_one_by_one(
    environment: Environment,
) -> None:
    made = (Call.make("t1", "read", path="a"), Call.make("t2", "read", path="b"))
    events = [*START, assigned(1, "strong")]
    assert harness.next_step(SessionState(events), STRONG, environment) == RequestReply()
    events.append(replied(1, "strong", "", *made))
    for call in made:
        assert harness.next_step(SessionState(events), STRONG, environment) == RunCall(call)
        events += ran(1, call)
    assert harness.next_step(SessionState(events), STRONG, environment) == RequestReply()


def test_an_answer_in_words_runs_no_tests(environment: Environment) -> None:
    events = [*START, assigned(1, "strong"), replied(1, "strong", "It adds.")]
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()


def test_the_suite_runs_once_after_the_changes_of_a_turn(environment: Environment) -> None:
    events = [*START, *WORKED, replied(1, "strong", "done")]
    assert tool(harness.next_step(SessionState(events), STRONG, environment)) == "run_tests"
    assert (
        harness.next_step(SessionState([*events, *suite(1, ok=True)]), STRONG, environment)
        == TurnClosed()
    )


def test_failing_tests_are_looked_up_on_the_files_as_they_were_before_each_id_once(
    environment: Environment,
) -> None:
    events = [
        *START,
        *WORKED,
        replied(1, "strong", "done"),
        *suite(1, ok=False, failing=("a", "b")),
    ]
    step = harness.next_step(SessionState(events), STRONG, environment)
    assert isinstance(step, GatherEvidence)
    assert (step.call.tool, '"ids": ["a", "b"]' in step.call.arguments) == ("tests_before", True)
    events += looked_up(1, ("a", "b"), failed=("a",))
    assert (
        SessionState(events).request.regressions,
        SessionState(events).request.has_regressions,
    ) == (("b",), True)
    assert not SessionState(
        [*events[:-2], *looked_up(1, ("a", "b"), failed=("a", "b"))]
    ).request.has_regressions


def test_where_the_state_before_cannot_be_found_out_nothing_is_blocked_and_it_is_not_asked_again(
    environment: Environment,
) -> None:
    events = [*START, *WORKED, replied(1, "strong", "done"), *suite(1, ok=False, failing=("a",))]
    events += looked_up(1, ("a",), ok=False)
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()
    assert not SessionState(events).request.has_regressions


def test_a_run_before_the_first_change_is_the_state_before(environment: Environment) -> None:
    call = Call(id="t1", tool="run_tests")
    report = TestReport(passed=1, failed=1, failing=("a",), by_id=True)
    own: list[Event] = [
        Permitted(turn=1, call=call, allowed=True, by="policy"),
        ToolRan(turn=1, call=call, output=FAILS, ok=False, tests=report),
    ]
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", call), *own]
    events += [
        replied(1, "strong", "", write("w")),
        *ran(1, write("w"), path="b.py"),
        replied(1, "strong", "done"),
    ]
    events += suite(1, ok=False, failing=("a",))
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()
    assert not SessionState(events).request.has_regressions


@pytest.mark.parametrize(
    ("rules", "seconds", "after_work", "before_verifier"),
    [
        (TestRules(), 10.0, "run_tests", "run_tests"),
        (TestRules(), 90.0, "", "run_tests"),
        (TestRules(patience=120.0), 90.0, "run_tests", "run_tests"),
        (TestRules(when="always"), 90.0, "run_tests", "run_tests"),
        (TestRules(when="never"), 10.0, "", "diff"),
    ],
)
def test_a_slow_suite_runs_once_before_the_verifier(
    environment: Environment,
    rules: TestRules,
    seconds: float,
    after_work: str,
    before_verifier: str,
) -> None:
    environment = replace(environment, tests=rules)
    earlier = [*START, *WORKED, *suite(1, ok=True, seconds=seconds)]
    events = [*earlier, *START[1:], *WORKED, replied(1, "strong", "done")]
    step = harness.next_step(SessionState(events), STRONG, environment)
    assert (tool(step) if isinstance(step, GatherEvidence) else "") == after_work
    events.append(assigned(2, "strong", "verifier"))
    assert tool(harness.next_step(SessionState(events), STRONG, environment)) == before_verifier


def test_a_run_that_the_user_ended_is_not_made_again_until_something_changes(
    environment: Environment,
) -> None:
    events = [*START, *WORKED, replied(1, "strong", "done")]
    call = Call(id="e1", tool="run_tests")
    events += [
        Permitted(turn=1, call=call, allowed=True, by="evidence"),
        ToolRan(turn=1, call=call, output="", ok=False, skipped=True),
        assigned(2, "strong", "verifier"),
    ]
    step = harness.next_step(SessionState(events), STRONG, environment)
    assert tool(step) == "diff"
    assert SessionState(events).request.tests is None
    told = harness.build_prompt(SessionState(events), STRONG, (), "").messages[-1].model_dump_json()
    assert "The user ended the test run: no tests were run." in told


def test_a_verifier_of_changes_begins_with_the_tests_and_the_diff(environment: Environment) -> None:
    events = [*START, *WORKED, replied(1, "strong", "done"), assigned(2, "strong", "verifier")]
    assert tool(harness.next_step(SessionState(events), STRONG, environment)) == "run_tests"
    events += suite(2, ok=True)
    step = harness.next_step(SessionState(events), STRONG, environment)
    assert isinstance(step, GatherEvidence)
    assert (step.call.tool, step.call.arguments) == ("diff", '{"since": "tree0"}')
    assert (
        harness.next_step(
            SessionState([*events, *ran(2, step.call, by="evidence")]), STRONG, environment
        )
        == RequestReply()
    )


def test_removed_tests_are_looked_for_where_a_test_file_was_changed(
    environment: Environment,
) -> None:
    edit = Call.make("w", "write", path="tests/test_a.py", content="")
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", edit)]
    events += ran(1, edit, path="tests/test_a.py")
    events += [replied(1, "strong", "done"), *suite(1, ok=True)]
    step = harness.next_step(SessionState(events), STRONG, environment)
    assert isinstance(step, GatherEvidence)
    assert (step.call.tool, "tests/test_a.py" in step.call.arguments) == ("tests_before", True)
    searched = SessionState([*events, *looked_up(1, (), failing=False)])
    assert harness.next_step(searched, STRONG, environment) == TurnClosed()
    assert searched.request.tests_before.ok is None, "no test ran on the files as they were"


def test_a_worker_is_shown_once_in_its_turn_what_fails_after_its_last_word(
    environment: Environment,
) -> None:
    failing = [replied(1, "strong", "done"), *suite(1, ok=False, failing=("a",))]
    broke = [*START, *WORKED, *failing, *looked_up(1, ("a",))]
    assert harness.next_step(SessionState(broke), STRONG, environment) == RequestReply()
    prompt = harness.build_prompt(SessionState(broke), STRONG, (), "")
    assert isinstance(prompt.messages[-1], FromUser)
    assert "The tests were run: they FAIL" in prompt.messages[-1].text
    assert "You are not done" in prompt.messages[-1].text
    again = [*broke, replied(1, "strong", "done")]
    assert harness.next_step(SessionState(again), STRONG, environment) == TurnClosed(), "only once"
    idle = [*again, assigned(2, "cheap"), replied(2, "cheap", "done")]
    assert harness.next_step(SessionState(idle), STRONG, environment) == TurnClosed(), (
        "nobody is asked twice about the same results"
    )
    change = [replied(2, "cheap", "", write("x")), *ran(2, write("x"), path="b.py")]
    changed = [*again, assigned(2, "cheap"), *change, replied(2, "cheap", "done")]
    changed += suite(2, ok=False, failing=("a",))
    assert harness.next_step(SessionState(changed), STRONG, environment) == RequestReply()
    own = [*START, *WORKED, *failing, *looked_up(1, ("a",), failed=("a",))]
    assert harness.next_step(SessionState(own), STRONG, environment) == TurnClosed(), (
        "it failed before"
    )
    last = own[-3]
    assert isinstance(last, ToolRan)
    for output, shown in (("a.py:3: error", True), ("data.py:3: error", False)):
        told = [*own[:-3], last.model_copy(update={"output": output}), *own[-2:]]
        step = harness.next_step(SessionState(told), STRONG, environment)
        assert (step == RequestReply()) is shown, output


def test_a_worker_that_changed_nothing_is_asked_once_about_a_check_that_failed_before(
    environment: Environment,
) -> None:
    events: list[Event] = [opened(), Asked(text="do it", snapshot="tree0", until=("make",))]
    check = Call.make("c", "run_check", command="make")
    events += [*ran(0, check, "no rule", ok=False, by="evidence"), assigned(1, "strong")]
    gave_up = [*events, replied(1, "strong", "UNABLE: no key")]
    assert harness.next_step(SessionState(gave_up), STRONG, environment) == TurnClosed()
    events.append(replied(1, "strong", "done"))
    assert harness.next_step(SessionState(events), STRONG, environment) == RequestReply()
    newest = harness.build_prompt(SessionState(events), STRONG, (), "").messages[-1]
    assert isinstance(newest, FromUser)
    assert newest.text.startswith("[No file was changed since the failing tests or checks")
    events += [replied(1, "strong", "done"), assigned(2, "cheap"), replied(2, "cheap", "done")]
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()


@pytest.mark.parametrize("role", ["thinker", "verifier"])
def test_the_last_word_of_whoever_does_not_work_closes_the_turn(
    environment: Environment, role: Role
) -> None:
    events = [
        *START,
        *WORKED,
        replied(1, "strong", "done"),
        assigned(2, "strong", role),
        replied(2, "strong", "So."),
    ]
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()


def test_a_call_that_was_started_and_killed_is_not_run_again(environment: Environment) -> None:
    call = Call.make("t1", "bash", command="rm x")
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", call)]
    events.append(Permitted(turn=1, call=call, allowed=True, by="policy"))
    assert harness.next_step(SessionState(events), STRONG, environment) == RequestReply()


def test_the_same_call_three_times_in_vain_and_too_many_replies_close_the_turn(
    environment: Environment,
) -> None:
    def repeated(times: int) -> list[Event]:
        events = [*START, assigned(1, "strong")]
        for index in range(times):
            call = Call.make(f"t{index}", "read", path="nowhere")
            events += [replied(1, "strong", "", call), *ran(1, call, "no such file", ok=False)]
        return events

    assert harness.next_step(SessionState(repeated(2)), STRONG, environment) == RequestReply()
    assert harness.next_step(SessionState(repeated(3)), STRONG, environment) == TurnClosed()
    few = replace(environment, limits=RequestLimits(replies=2))
    assert harness.next_step(SessionState(repeated(2)), STRONG, few) == TurnClosed()


def test_a_turn_that_was_cut_is_closed(environment: Environment) -> None:
    events = [*START, assigned(1, "strong"), Interrupted(turn=1, partial="I")]
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()


def test_roles_have_their_tools_and_a_call_of_another_is_refused(environment: Environment) -> None:
    def names(role: Role, environment: Environment) -> set[str]:
        return {
            spec.name
            for spec in harness.offered_tools(
                SessionState([*START, assigned(1, "strong", role)]), environment
            )
        }

    worker = names("worker", environment)
    assert {"read", "edit", "bash", "run_tests", "acceptance_check"} <= worker
    assert not {"diff", "run_check", "tests_before"} & worker
    for role in ("thinker", "verifier"):
        assert names(role, environment) == worker

        def refusal(call: Call, role: Role = role) -> str:
            events = [*START, assigned(1, "strong", role)]
            return harness.role_refusal(call, SessionState(events), environment)

        assert refusal(write("w")).startswith(f"a {role.capitalize()} changes nothing")
        assert refusal(Call.make("b", "bash", command="rm a.py"))
        assert not refusal(Call.make("b", "bash", command="git log -3"))
        assert not refusal(Call.make("t", "run_tests", target="tests/test_a.py"))
        assert not refusal(Call.make("r", "read", path="a.py"))
    planning = replace(environment, rules=policy.Rules(mode="plan"))
    assert "acceptance_check" not in names("worker", planning)


def test_a_deleted_file_of_tests_blocks_nothing(environment: Environment) -> None:
    gone = ToolRan(
        turn=1,
        call=Call.make("w", "bash", command="rm test_legacy.py"),
        output="",
        ok=True,
        changes=(FileChange(path="test_legacy.py", before="a", after=None),),
    )
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", gone.call)]
    events += [
        Permitted(turn=1, call=gone.call, allowed=True, by="policy"),
        gone,
        replied(1, "strong", "done"),
    ]
    events += [*suite(1, ok=True), *looked_up(1, ())]
    assert harness.next_step(SessionState(events), STRONG, environment) == TurnClosed()
    assert SessionState(events).request.acceptance_blocker == ""
