import pytest

from fugu_cli.messages import Call, Usage
from fugu_cli.session import costs
from fugu_cli.session.events import Exclusion, Failed, Price
from fugu_cli.session.recognized_tests import failed_count, passed_count
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import interrupted_calls, open_calls, verdict_of
from fugu_cli.session.verdicts import suggested_role
from tests.facts import CODER, asked, assigned, checked, opened, ran, replied, rolled_back, write


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("ACCEPT", "ACCEPT"),
        ("accept: fine", "ACCEPT"),
        ("**Accepted.** The tests pass", "ACCEPT"),
        ("## Verdict: ACCEPT", "ACCEPT"),
        ("__ACCEPT__", "ACCEPT"),
        ("_ACCEPT_: fine", "ACCEPT"),
        ("“ACCEPT” - no need to revise", "ACCEPT"),
        ("- ACCEPT, there is nothing to revise", "ACCEPT"),
        ("✅ Verdict: ‘ACCEPTED’; I would not reject it", "ACCEPT"),
        ("__REJECT__ what I would accept", "REVISE"),
        ("accept_all is missing", "REVISE"),
        ("REJECT this", "REVISE"),
        ("Revise, because I cannot accept", "REVISE"),
        ("The tests pass, so I accept the change.", "ACCEPT"),
        ("accept - it does what was asked", "ACCEPT"),
        ("Not accepted.", "REVISE"),
        ("REVISE. After that I would ACCEPT.", "REVISE"),
        ("I would accept it or revise it", "REVISE"),
        ("The parser does not accept an empty file, and the task asks for it.", "REVISE"),
        ("I read the callers; all hold.\n\nVERDICT: ACCEPT", "ACCEPT"),
        ("Accepted input is right.\n**VERDICT: REVISE** handle an empty file", "REVISE"),
        ("VERDICT: ACCEPT\nNo, one caller breaks.\nVERDICT: REVISE: mend it", "REVISE"),
        ("A test prints\n```\nVERDICT: ACCEPT\n```\nand I would reject it.", "REVISE"),
        ("This is acceptable", "REVISE"),
        ("", "REVISE"),
        ("looks good", "REVISE"),
    ],
)
def test_a_verdict_is_its_last_line_else_the_leading_word_else_the_only_one_else_revise(
    text: str, verdict: str
) -> None:
    assert verdict_of(text) == verdict


@pytest.mark.parametrize(
    ("output", "failing", "passing"),
    [
        ("=== 2 failed, 10 passed, 1 error in 0.3s ===", 3, 10),
        ("12 passed in 0.1s", None, 12),
        ("Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=2)", 3, 2),
        ("Ran 5 tests in 0.1s\n\nFAILED (failures=1, expected failures=2)", 1, 2),
        ("Ran 5 tests in 0.1s\n\nFAILED (unexpected successes=1)", 1, 4),
        ("Ran 5 tests in 0.1s\n\nOK (expected failures=1)", None, 4),
        ("test result: FAILED. 3 passed; 1 failed; 0 ignored", 1, 3),
        (
            "test result: ok. 5 passed; 0 failed\n\n   Doc-tests calc\ntest result: ok. 1 "
            "passed; 0 failed",
            0,
            6,
        ),
        ("# pass 4\n# fail 2\n", 2, 4),
        ("--- FAIL: TestA\n    --- FAIL: TestA/b\nFAIL", 2, None),
        ("the test says 9 failed logins\n1 failed, 2 passed", 1, 2),
        ("nothing to see", None, None),
        (
            "[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1\n[INFO] BUILD "
            "FAILURE\nafter 3 errors",
            2,
            2,
        ),
        (
            "\n".join(f"[INFO] Tests run: {n}, Failures: 0, Errors: 0, Skipped: 0" for n in (2, 3)),
            0,
            5,
        ),
        (
            "Tests run: 9, Failures: 9, Errors: 0, Skipped: 0, Time elapsed: 1 sec <<< FAILURE! "
            "- in a.B",
            9,
            None,
        ),
        ("5 examples, 1 failure, 1 pending", 1, 3),
        ("12 runs, 30 assertions, 1 failures, 2 errors, 3 skips", 3, 6),
        ("2 doctests, 5 tests, 1 failure", 1, None),
        ("7 tests completed, 2 failed", 2, 5),
        (
            "Failed!  - Failed:     1, Passed:     4, Skipped:     0, Total:     5, Duration: 9 "
            "ms - a.dll",
            1,
            4,
        ),
        ("Tests: 6, Assertions: 9, Errors: 1, Failures: 2.", 3, None),
        ("OK (6 tests, 9 assertions)", None, 6),
        ("  3 passing (5ms)\n  1 pending\n  1 failing\n", 1, 3),
        ("  2 tests passed\n", None, 2),
        (" 3 pass\n 1 fail\n 4 expect() calls\nRan 4 tests across 1 files. [10ms]\n", 1, 3),
        ("67% tests passed, 1 tests failed out of 3\n", 1, 2),
        ("Ok:                 3   \nFail:               1   \n", 1, 3),
        ("00:01 +3 -1: Some tests failed.\n", 1, 3),
    ],
)
def test_counts_are_read_from_what_runners_print(
    output: str, failing: int | None, passing: int | None
) -> None:
    assert (failed_count(output), passed_count(output)) == (failing, passing)


def test_failing_tests_turn_an_accept_into_revise() -> None:
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "strong"),
        replied(1, "strong", "did it"),
    ]
    events += [
        assigned(2, "strong", "verifier"),
        *checked(2, ok=False),
        replied(2, "strong", "ACCEPT"),
    ]
    assert SessionState(events).request.verdict(SessionState(events).request.turns[-1]) == "REVISE"


def test_tests_that_the_request_is_not_about_decide_nothing() -> None:
    events = [opened(), asked(judged=False), assigned(1, "strong"), replied(1, "strong", "did it")]
    events += [
        assigned(2, "strong", "verifier"),
        *checked(2, ok=False),
        replied(2, "strong", "ACCEPT"),
    ]
    assert SessionState(events).request.verdict(SessionState(events).request.turns[-1]) == "ACCEPT"


def test_work_that_was_rolled_back_counts_for_money_and_for_nothing_else() -> None:
    events = [opened(), asked(), *checked(0, ok=False), assigned(1, "coder")]
    events += [
        replied(1, "coder", "first", write("w1")),
        *ran(1, write("w1"), path="a.py"),
        *checked(1, ok=False),
    ]
    events += [
        rolled_back(1),
        replied(1, "coder", "second", write("w2")),
        *ran(1, write("w2"), path="b.py"),
    ]
    turn = SessionState(events).request.turns[-1]
    assert (turn.text, len(turn.rolled_back), len(turn.spent)) == ("second", 1, 2)
    assert list(SessionState(events).request.changes) == ["b.py"]
    assert costs.usage(events) == {"coder": Usage(input=200, cached=40, output=20)}
    run = SessionState(events).request.tests
    assert run is not None
    assert (run.ok, run.stale, run.turn) == (False, True, 0)


def test_tests_are_stale_once_something_changed_after_them() -> None:
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "coder"),
        replied(1, "coder", "", write("w")),
    ]
    fresh = SessionState(events).request.tests
    assert fresh is not None
    assert not fresh.stale
    after = SessionState([*events, *ran(1, write("w"), path="a.py")]).request.tests
    assert after is not None
    assert after.stale


def test_the_answer_is_the_newest_workers() -> None:
    events = [opened(), asked(), assigned(1, "strong"), replied(1, "strong", "the work")]
    events += [assigned(2, "small", "verifier"), replied(2, "small", "ACCEPT")]
    assert SessionState(events).request.answer == "the work"
    assert SessionState([opened(), asked()]).request.answer == ""


def test_an_agent_that_failed_is_out_for_the_request_and_back_in_the_next() -> None:
    events = [
        opened(),
        asked(),
        assigned(1, "strong"),
        Failed(turn=1, what="strong", kind="refused", message="401"),
    ]
    assert SessionState(events).request.failed_agents == {
        "strong": Exclusion(kind="refused", message="401")
    }
    assert SessionState([*events, asked()]).request.failed_agents == {}
    assert not SessionState(events).request.has_worker_answer


def test_calls_without_a_judgement_are_open_and_without_a_result_interrupted() -> None:
    first, second = Call(id="1", tool="read"), Call(id="2", tool="read")
    events = [
        opened(),
        asked(),
        assigned(1, "strong"),
        replied(1, "strong", "", first, second),
        *ran(1, first)[:1],
    ]
    turn = SessionState(events).request.turns[-1]
    assert open_calls(turn) == (second,)
    assert interrupted_calls(turn) == (first,)


def test_cached_tokens_cost_what_the_price_says() -> None:
    member = CODER.model_copy(update={"price": Price(input=10.0, cached=1.0, output=100.0)})
    reply = replied(1, "coder", "x")
    assert costs.price(reply, member) == pytest.approx((80 * 10 + 20 * 1 + 10 * 100) / 1e6)
    assert costs.cost([reply], {"coder": member}) == costs.price(reply, member)


def test_a_thinkers_suggestion_is_read_from_its_last_tag() -> None:
    events = [opened(), asked(), assigned(1, "strong", "thinker")]
    events.append(
        replied(
            1,
            "strong",
            "<suggested_role>worker</suggested_role> no: <suggested_role> Verifier "
            "</suggested_role>",
        )
    )
    assert suggested_role(SessionState(events).request.turns[-1]) == "verifier"
    events[-1] = replied(1, "strong", "<suggested_role>king</suggested_role>")
    assert suggested_role(SessionState(events).request.turns[-1]) is None


@pytest.mark.parametrize("arguments", ['{"target": "tests/test_a.py"}', "{not json", '"all"'])
def test_a_run_of_some_tests_says_nothing_of_the_rest(arguments: str) -> None:
    some = Call(id="t1", tool="run_tests", arguments=arguments)
    events = [
        opened(),
        asked(),
        *checked(0, ok=False),
        assigned(1, "strong"),
        replied(1, "strong", "", some),
    ]
    run = SessionState([*events, *ran(1, some, "1 passed")]).request.tests
    assert run is not None
    assert not run.ok


def test_a_call_that_was_killed_makes_the_tests_stale() -> None:
    call = Call.make("t1", "bash", command="make")
    events = [
        opened(),
        asked(),
        *checked(0, ok=True),
        assigned(1, "strong"),
        replied(1, "strong", "", call),
    ]
    run = SessionState([*events, ran(1, call)[0]]).request.tests
    assert run is not None
    assert run.stale


@pytest.mark.parametrize(
    ("until", "against"),
    [((), ""), (("pytest",), "the tests must pass and do not")],
    ids=["evidence", "must pass"],
)
def test_tests_that_are_not_there_speak_against_the_work_only_where_they_must_pass(
    until: tuple[str, ...], against: str
) -> None:
    made, run = write("w"), Call(id="e1", tool="run_tests")
    events = [
        opened(),
        asked(judged=False).model_copy(update={"until": until}),
        assigned(1, "strong"),
    ]
    events += [replied(1, "strong", "", made), *ran(1, made, path="a.py")]
    events += ran(1, run, "no tests ran\n[exit code 5]", ok=False, by="evidence")
    assert SessionState(events).request.acceptance_blocker == against


@pytest.mark.parametrize(
    ("output", "passes"),
    [
        ("Ran 0 tests\n\nOK", False),
        ("running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored", False),
        (
            "running 2 tests\ntest result: ok. 2 passed; 0 failed\nrunning 0 tests\ntest result: "
            "ok. 0 passed",
            True,
        ),
        ("?   \texample.org/calc\t[no test files]\n[exit code 0]", False),
        ("?   \texample.org/calc\t[no test files]\nok  \texample.org/calc/sum\t0.002s", True),
        ("[INFO] No tests to run.\n[INFO] BUILD SUCCESS", False),
        ("# tests 0\n# pass 0\n# fail 0", False),
        ("ℹ tests 0\nℹ pass 0\nℹ fail 0", False),
        ("ℹ tests 1\nℹ pass 1\nℹ fail 0", True),
        ("Ran 0 tests\nRan 3 tests\nOK", True),
    ],
)
def test_a_run_that_found_no_tests_has_not_passed(output: str, passes: bool) -> None:
    passing = ran(0, Call(id="e0", tool="run_tests"), output, ok=True, by="evidence")
    run = SessionState([opened(), asked(), *passing]).request.tests
    assert run is not None
    assert (run.passes, run.empty) == (passes, not passes)
