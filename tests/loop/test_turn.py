import pytest

from fugu_cli import views
from fugu_cli.coordinators import masks, stopping
from fugu_cli.events import Event, Failed, Finished, Interrupted, Permitted, Role
from fugu_cli.loop import turn
from fugu_cli.loop.turn import Closed, Evidence, Reply, RollBack, Rules, Run, Step
from fugu_cli.messages import Call
from tests.facts import CODER, SMALL, STRONG, asked, assigned, checked, opened, ran, replied, rolled_back, write

RULES = Rules(replies=5, files=("a.py", "b.py"))
START = [opened(), asked(), *checked(0, ok=False)]


def test_a_small_worker_opens_with_the_files_that_matter_one_after_the_other() -> None:
    events = [*START, assigned(1, "small")]
    first = turn.next_step(events, SMALL, RULES)
    assert first == Evidence(Call.make("e1-0", "read", path="a.py", plain=True))
    assert isinstance(first, Evidence)
    events += ran(1, first.call, by="evidence")
    second = turn.next_step(events, SMALL, RULES)
    assert second == Evidence(Call.make("e1-1", "read", path="b.py", plain=True))
    assert isinstance(second, Evidence)
    events += ran(1, second.call, by="evidence")
    assert turn.next_step(events, SMALL, RULES) == Reply()


def test_an_agent_with_native_tools_reads_for_itself() -> None:
    assert turn.next_step([*START, assigned(1, "strong")], STRONG, RULES) == Reply()


def test_a_verifier_opens_with_stale_tests_run_again_and_the_diff() -> None:
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", write("w1")), *ran(1, write("w1"), path="a.py")]
    events += [replied(1, "strong", "done"), assigned(2, "strong", "verifier")]
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == "run_tests"
    events += ran(2, step.call, by="evidence")
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    assert (step.call.tool, step.call.arguments) == ("diff", '{"since": "tree0"}')
    events += ran(2, step.call, by="evidence")
    assert turn.next_step(events, STRONG, RULES) == Reply()


@pytest.mark.parametrize(
    ("text", "before", "tool"),
    [
        ("make it faster", [], "run_tests"),
        ("make it faster", checked(0, ok=True), "diff"),
        ("is it fast?", [], "diff"),
    ],
)
def test_a_verifier_opens_with_the_tests_also_where_nothing_was_changed(
    text: str, before: list[Event], tool: str
) -> None:
    events = [opened(), asked(text, judged=False), *before]
    events += [assigned(1, "strong"), replied(1, "strong", "done"), assigned(2, "strong", "verifier")]
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == tool


def test_a_verifier_opens_with_the_tests_where_a_question_changed_something() -> None:
    events = [opened(), asked("is it fast?", judged=False), assigned(1, "strong"), replied(1, "strong", "", write("w"))]
    events += [*ran(1, write("w"), path="a.py"), replied(1, "strong", "It is now."), assigned(2, "strong", "verifier")]
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == "run_tests"


@pytest.mark.parametrize("role", ["thinker", "verifier"])
def test_the_last_word_of_whoever_does_not_work_closes_the_turn_while_the_tests_fail(role: Role) -> None:
    worked = [assigned(1, "strong"), replied(1, "strong", "", write("w")), *ran(1, write("w"), path="a.py")]
    worked += [replied(1, "strong", "done"), *checked(1, ok=False)]
    events = [*START, *worked, assigned(2, "coder", role), replied(2, "coder", "Look at the second line.")]
    assert turn.next_step(events, CODER, Rules(5)) == Closed()


def test_calls_run_one_by_one_then_the_agent_hears_of_them() -> None:
    calls = (Call.make("t1", "read", path="a"), Call.make("t2", "read", path="b"))
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", *calls)]
    assert turn.next_step(events, STRONG, RULES) == Run(calls[0])
    events += ran(1, calls[0])
    assert turn.next_step(events, STRONG, RULES) == Run(calls[1])
    events += ran(1, calls[1])
    assert turn.next_step(events, STRONG, RULES) == Reply()


def test_a_call_that_was_started_and_killed_is_not_run_again() -> None:
    call = Call.make("t1", "bash", command="rm x")
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", call)]
    events.append(Permitted(turn=1, call=call, allowed=True, by="policy"))
    assert turn.next_step(events, STRONG, RULES) == Reply()


def test_tests_follow_a_workers_change_and_then_the_turn_is_closed() -> None:
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", write("w1")), *ran(1, write("w1"), path="a.py")]
    events.append(replied(1, "strong", "done"))
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == "run_tests"
    events += ran(1, step.call, "2 failed", ok=False, by="evidence")
    assert turn.next_step(events, STRONG, RULES) == Closed()


def test_a_small_models_edit_closes_its_part() -> None:
    events = [*START, assigned(1, "small"), replied(1, "small", "", write("w1")), *ran(1, write("w1"), path="a.py")]
    step = turn.next_step(events, SMALL, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == "run_tests"


def test_a_failed_draw_is_rolled_back_and_drawn_again_until_the_attempts_are_used() -> None:
    events = [*START, assigned(1, "coder")]
    for draw in range(CODER.attempts):
        assert turn.next_step(events, CODER, Rules(5)) == Reply()
        call = write(f"w{draw}")
        events += [replied(1, "coder", "", call), *ran(1, call, path="a.py"), *checked(1, ok=False, id=f"e{draw}-")]
        assert turn.next_step(events, CODER, Rules(5)) == RollBack("the tests failed")
        events.append(rolled_back(1))
    assert turn.next_step(events, CODER, Rules(5)) == Closed()


@pytest.mark.parametrize(
    ("before", "after", "step"),
    [
        ("3 failed, 1 passed", "1 failed, 3 passed", Closed()),
        ("1 error", "2 failed, 3 passed", Closed()),
        ("error: could not compile", "test result: FAILED. 5 passed; 2 failed", Closed()),
        ("22 failed", "16 failed, 6 passed", RollBack("the tests failed")),
        ("1 error", "4 failed", RollBack("the tests failed")),
        ("1 failed, 3 passed", "1 failed, 3 passed", RollBack("the tests failed")),
        ("1 failed, 3 passed", "2 failed, 2 passed", RollBack("the tests failed")),
        ("3 failed, 3 passed", "2 failed, 3 passed", Closed()),
        ("3 failed, 1 passed", "Killed", RollBack("the tests failed")),
        ("Killed", "Killed", RollBack("the tests failed")),
        ("Killed", "1 failed, 1 passed", Closed()),
        ("Killed", "2 failed", RollBack("the tests failed")),
        ("3 failed", "2 failed", Closed()),
        ("2 failed, 3 passed", "5 passed, but too few lines were covered", Closed()),
    ],
)
def test_a_draw_after_which_fewer_tests_fail_and_half_pass_is_kept(before: str, after: str, step: Step) -> None:
    events: list[Event] = [opened(), asked(), *ran(0, Call(id="e0", tool="run_tests"), before, ok=False, by="evidence")]
    events += [assigned(1, "coder"), replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py")]
    events += ran(1, Call(id="e1", tool="run_tests"), after, ok=False, by="evidence")
    assert turn.next_step(events, CODER, Rules(5)) == step


def test_where_the_tests_pass_already_words_are_an_answer_and_an_edit_of_nothing_is_none() -> None:
    start = [opened(), asked(), *checked(0, ok=True), assigned(1, "coder")]
    assert turn.next_step([*start, replied(1, "coder", "They pass.")], CODER, Rules(5)) == Closed()
    nothing = ran(1, write("w"), "nothing changed", ok=False)
    step = turn.next_step([*start, replied(1, "coder", "Done.", write("w")), *nothing], CODER, Rules(5))
    assert step == RollBack("nothing was changed")
    start[2:4] = checked(0, ok=False)
    assert turn.next_step([*start, replied(1, "coder", "No idea.")], CODER, Rules(5)) == RollBack("nothing was changed")


@pytest.mark.parametrize(
    ("text", "path", "after", "step"),
    [
        ("Add tests for f", "tests/test_a.py", "4 passed", Closed()),
        ("Add tests for f", "tests/test_a.py", "3 passed", RollBack("no test was added")),
        ("Add tests for f", "tests/test_a.py", "all is well", Closed()),
        ("Add tests for f", "a.py", "3 passed", RollBack("no test was written")),
        ("add a function g with a test", "a.py", "3 passed", Closed()),
        ("add a function g with a test", "test_a.py", "3 passed", RollBack("no test was added")),
        ("add a function g with a test", "test_a.py", "4 passed", Closed()),
        ("add a function g with a test", "test_a.py", "3 passed; def test", Closed()),
    ],
)
def test_where_tests_are_asked_for_a_draw_without_one_is_rolled_back(
    text: str, path: str, after: str, step: Step
) -> None:
    start = [opened(), asked(text), *checked(0, ok=True), assigned(1, "coder")]
    call = Call.make("w", "write", path=path, content="def test_f(): ..." if "def" in after else "x")
    events = [*start, replied(1, "coder", "", call), *ran(1, call, path=path)]
    events += ran(1, Call(id="e1", tool="run_tests"), after, by="evidence")
    assert turn.next_step(events, CODER, Rules(5)) == step


def test_where_tests_are_asked_for_words_are_none() -> None:
    start = [opened(), asked("Add tests for f"), *checked(0, ok=True), assigned(1, "coder")]
    step = turn.next_step([*start, replied(1, "coder", "Here they are: def test_f(): ...")], CODER, Rules(5))
    assert step == RollBack("nothing was changed")


def test_a_draw_that_breaks_what_passed_is_rolled_back_though_more_tests_pass() -> None:
    events: list[Event] = [opened(), asked("Add tests for f"), *checked(0, ok=True), assigned(1, "coder")]
    events += [replied(1, "coder", "", write("w"), write("v")), *ran(1, write("w"), path="test_a.py")]
    run = ran(1, Call(id="e1", tool="run_tests"), "2 failed, 9 passed", ok=False, by="evidence")
    both = [*events, *ran(1, write("v"), path="a.py"), *run]
    assert turn.next_step(both, CODER, Rules(5)) == RollBack("the tests failed")
    alone = [*events, *ran(1, write("v"), ok=False), *run]
    assert turn.next_step(alone, CODER, Rules(5)) == Closed(), "only new tests can fail: they are to be corrected"


def test_a_draw_stands_where_there_is_no_tree_to_go_back_to() -> None:
    request = asked().model_copy(update={"snapshot": None})
    events: list[Event] = [opened(), request, *checked(0, ok=False), assigned(1, "coder"), replied(1, "coder", "No.")]
    assert turn.next_step(events, CODER, Rules(5)) == Closed()


def test_a_draw_whose_call_was_killed_may_have_changed_something_and_is_judged_by_the_tests() -> None:
    call = Call.make("t1", "bash", command="make")
    events = [*START, assigned(1, "coder"), replied(1, "coder", "", call)]
    events += [Permitted(turn=1, call=call, allowed=True, by="policy"), replied(1, "coder", "done")]
    assert turn.next_step([*events, *checked(1, ok=True)], CODER, Rules(5)) == Closed()
    assert turn.next_step([*events, *checked(1, ok=False)], CODER, Rules(5)) == RollBack("the tests failed")


def test_a_small_models_edit_that_was_killed_is_not_judged_as_one_that_was_made() -> None:
    events = [*START, assigned(1, "coder"), replied(1, "coder", "", write("w"))]
    assert turn.next_step([*events, *ran(1, write("w"), path="a.py")], CODER, Rules(5)) == Evidence(
        Call(id="e1-0-1", tool="run_tests")
    )
    assert turn.next_step([*events, ran(1, write("w"))[0]], CODER, Rules(5)) == Reply()


def test_a_draw_that_passes_is_kept() -> None:
    events = [*START, assigned(1, "coder"), replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py")]
    assert turn.next_step([*events, *checked(1, ok=True)], CODER, Rules(5)) == Closed()


def test_a_question_is_answered_and_closed_without_tests() -> None:
    events = [opened(), asked("what is this?", judged=False), assigned(1, "coder"), replied(1, "coder", "a parser")]
    assert turn.next_step(events, CODER, Rules(5)) == Closed()


def test_the_same_failing_call_again_and_again_ends_the_turn() -> None:
    events = [*START, assigned(1, "strong")]
    for index in range(turn.SAME_CALL_LIMIT):
        assert turn.next_step(events, STRONG, Rules(30)) == Reply()
        call = Call.make(f"t{index}", "read", path="gone")
        events += [replied(1, "strong", "", call), *ran(1, call, "no such file", ok=False)]
    assert turn.next_step(events, STRONG, Rules(30)) == Closed()


def test_a_turn_ends_at_its_number_of_replies() -> None:
    events = [*START, assigned(1, "strong")]
    for index in range(2):
        call = Call.make(f"t{index}", "read", path=f"f{index}")
        events += [replied(1, "strong", "", call), *ran(1, call)]
    assert turn.next_step(events, STRONG, Rules(2)) == Closed()


def test_a_failed_or_interrupted_turn_is_closed() -> None:
    events = [*START, assigned(1, "strong")]
    assert (
        turn.next_step([*events, Failed(turn=1, what="strong", kind="refused", message="401")], STRONG, RULES)
        == Closed()
    )
    assert turn.next_step([*events, Interrupted(turn=1)], STRONG, RULES) == Closed()


def test_evidence_that_was_killed_is_taken_again() -> None:
    first = Call.make("e1-0", "read", path="a.py", plain=True)
    events = [*START, assigned(1, "small"), Permitted(turn=1, call=first, allowed=True, by="evidence")]
    assert turn.next_step(events, SMALL, RULES) == Evidence(Call.make("e1-1", "read", path="a.py", plain=True))


def test_after_a_call_that_was_killed_the_tests_are_run_although_no_change_is_known() -> None:
    call = Call.make("t1", "bash", command="make")
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", call)]
    events += [Permitted(turn=1, call=call, allowed=True, by="policy"), replied(1, "strong", "done")]
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == "run_tests"


def test_a_turn_opens_with_the_tests_when_the_one_before_was_cut_after_a_change() -> None:
    events = [*START, assigned(1, "strong"), replied(1, "strong", "", write("w1")), *ran(1, write("w1"), path="a.py")]
    events += [Failed(turn=1, what="strong", kind="network", message="gone"), assigned(2, "small")]
    step = turn.next_step(events, SMALL, RULES)
    assert isinstance(step, Evidence)
    assert step.call.tool == "run_tests"


def test_a_cut_after_the_end_of_a_turn_leaves_what_it_did() -> None:
    events = [*START, assigned(1, "strong"), replied(1, "strong", "done"), Interrupted(turn=0)]
    assert not views.turns(events)[-1].interrupted
    assert views.has_worker_answer(events)


QUESTION = asked("Show the code of twice.\nassert twice(2) == 4", judged=False, command=None).model_copy(
    update={"assertions": ("assert twice(2) == 4",)}
)
RIGHT, WORDS = "```python\ndef twice(x):\n    return 2 * x\n```", "Multiply by two."


def test_the_code_of_an_answer_is_tried_and_what_does_not_hold_is_drawn_again_but_for_the_last() -> None:
    events: list[Event] = [opened(), QUESTION, assigned(1, "coder")]
    for draw in range(CODER.attempts):
        assert turn.next_step(events, CODER, RULES if draw else Rules(5)) == Reply()
        events.append(replied(1, "coder", WORDS if draw == 1 else RIGHT))
        if draw != 1:
            step = turn.next_step(events, CODER, RULES)
            assert isinstance(step, Evidence)
            code, says = "def twice(x):\n    return 2 * x\n", ["assert twice(2) == 4"]
            assert step == Evidence(Call.make(step.call.id, "try_answer", code=code, assertions=says))
            events += ran(1, step.call, "1 failed", ok=False, by="evidence")
        if draw + 1 < CODER.attempts:
            why = "the answer shows no code" if draw == 1 else "what the question says does not hold"
            assert turn.next_step(events, CODER, RULES) == RollBack(why)
            events.append(rolled_back(1))
    assert turn.next_step(events, CODER, RULES) == Closed()
    assert views.answer(events) == RIGHT
    assert stopping.stop(events, turns=5, verify_answers=False) is None
    assert "verifier" in masks.roles_out(events)
    events += [assigned(2, "strong"), replied(2, "strong", RIGHT)]
    assert views.tests(events) == views.TestRun(False, "1 failed", True, 1)
    assert "verifier" in masks.roles_out(events)
    step = turn.next_step(events, STRONG, RULES)
    assert isinstance(step, Evidence)
    events += ran(2, step.call, "1 passed", by="evidence")
    assert turn.next_step(events, STRONG, RULES) == Closed()
    events += checked(2, ok=False)  # the project's tests say nothing of it
    assert masks.roles_out(events) == {}
    assert stopping.stop(events, turns=5, verify_answers=False) == Finished(reason="answered")


def test_a_step_of_a_workflow_that_shows_no_code_stands() -> None:
    step = assigned(1, "coder").model_copy(update={"plan": 1})
    events = [opened(), QUESTION, step, replied(1, "coder", WORDS)]
    assert turn.next_step(events, CODER, RULES) == Closed()
