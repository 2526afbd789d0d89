"""A run that passes because tests went missing has not passed."""

import asyncio
from pathlib import Path

import pytest
from fugu_cli.loop.missing_tests import compared, ran

from fugu_cli import orchestrator
from fugu_cli.events import Asked, Event, Finished, Member, Opened, Permitted, ToolRan
from fugu_cli.log import Log
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.tools import Result
from tests.reacting import Reacting, Stage, calls, repository, results, role

STRONG = Member(name="strong", provider="openai", model="s", slot="strong")
ALL = Call.make("e0-0", "run_tests")
ONE = Call.make("c1", "run_tests", target="tests/test_a.py")
COMMAND = "python -m pytest -q"
FAILED = "FAILED test_a.py::test_one - assert 1 == 2\n1 failed, 2 passed\n(exit code 1)"


def begun(
    text: str = "fix the failing tests", command: str = COMMAND, output: str = FAILED, *, judged: bool = True
) -> list[Event]:
    return [
        Opened(version="1", repo="/r", pool=()),
        Asked(text=text, test_command=command, judged=judged),
        Permitted(turn=0, call=ALL, allowed=True, by="evidence"),
        ToolRan(turn=0, call=ALL, output=output, ok=False),
    ]


def test_fewer_tests_than_before_the_request_do_not_pass_and_the_agent_is_told() -> None:
    said = "[3 tests ran before this request, 2 now. Tests that went missing do not pass: put them back.]"
    assert compared(begun(), ALL, Result(text="2 passed")) == Result(text=f"2 passed\n{said}", ok=False)


def test_a_test_that_is_skipped_instead_of_mended_is_missing() -> None:
    assert not compared(begun(), ALL, Result(text="2 passed, 1 skipped")).ok


@pytest.mark.parametrize(
    ("command", "before", "now", "ok"),
    [
        ("python -m unittest", "Ran 3 tests\n\nFAILED (failures=1)", "Ran 3 tests\n\nOK (skipped=1)", False),
        ("python -m unittest", "Ran 3 tests\n\nFAILED (failures=1, skipped=1)", "Ran 3 tests\n\nOK (skipped=1)", True),
        ("node --test", "# tests 2\n# pass 1\n# fail 1", "# tests 1\n# pass 1\n# fail 0", False),
        ("node --test", "# tests 2\n# pass 1\n# fail 1", "# tests 2\n# pass 2\n# fail 0", True),
        ("cargo test", "test result: FAILED. 0 passed; 1 failed; 0", "test result: ok. 0 passed; 0 failed; 0", False),
        ("cargo test", "test result: FAILED. 3 passed; 1 failed; 0", "test result: ok. 2 passed; 0 failed; 0", True),
        ("go test ./...", "--- FAIL: TestOne", "ok  a  0.01s", True),
    ],
)
def test_every_runner_that_counts_is_believed(command: str, before: str, now: str, ok: bool) -> None:
    assert compared(begun("fix it", command, before), ALL, Result(text=now)).ok is ok


@pytest.mark.parametrize(
    ("text", "ok"), [("add a function plus", False), ("remove the function add", True), ("make add faster", False)]
)
def test_what_a_request_takes_away_may_take_its_tests_along(text: str, ok: bool) -> None:
    assert compared(begun(text, judged=False), ALL, Result(text="2 passed")).ok is ok


@pytest.mark.parametrize("output", ["3 passed", "4 passed", "2 passed, 1 failed", "no counts at all"])
def test_as_many_or_more_are_left_as_they_are(output: str) -> None:
    assert compared(begun(), ALL, Result(text=output)) == Result(text=output)


def test_a_run_of_some_tests_says_nothing_of_the_rest() -> None:
    assert compared(begun(), ONE, Result(text="1 passed")) == Result(text="1 passed")


@pytest.mark.parametrize(
    "text", ["Remove the obsolete tests", "replace test_a by a simpler test", "skip the slow test"]
)
def test_whoever_wants_tests_gone_gets_that(text: str) -> None:
    assert compared(begun(text), ALL, Result(text="2 passed")).ok


def test_without_a_run_before_the_request_there_is_nothing_to_compare() -> None:
    assert compared(begun()[:2], ALL, Result(text="2 passed")).ok


@pytest.mark.parametrize(
    ("command", "output", "count"),
    [
        (COMMAND, "F.\n1 failed, 2 passed, 1 skipped", 3),
        (COMMAND, "it says 9 passed\n=== 2 passed, 1 error ===", 2),
        (COMMAND, "no tests ran", None),
        ("python -m unittest", "Ran 12 tests\n\nOK", 12),
        ("cargo test", "test result: ok. 3 passed; 0 failed\ntest result: ok. 0 passed; 0 failed", 3),
        ("mvn -B -ntp test", "[INFO] Tests run: 4, Failures: 1, Errors: 0, Skipped: 1\n", 3),
        ("./mvnw test", "[ERROR] COMPILATION ERROR", None),
        ("npm test", "Tests: 1 failed, 2 passed, 3 total", None),
    ],
)
def test_tests_are_counted_where_a_runner_counts_all_of_them_in_one_place(
    command: str, output: str, count: int | None
) -> None:
    assert ran(command, output) == count


def test_an_agent_that_takes_a_failing_test_away_is_not_accepted_though_a_verifier_would(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", {"calc.txt": "broken\n", "pytest": "1 failed, 2 passed\n"})

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        tools = [result.tool for result in results(prompt)]
        if not tools:
            return calls(Call.make("1", "read", path="calc.txt"), Call.make("2", "read", path="pytest"))
        if "write" in tools:
            return Reply(text="done")
        fixed = Call.make("3", "write", path="calc.txt", content="fixed\n")
        return calls(fixed, Call.make("4", "write", path="pytest", content="2 passed\n"), text="mended")

    command = "cat ./pytest && grep -q fixed calc.txt"  # stands for a runner of that name
    stage = Stage(root, tmp_path / "store", (STRONG,), {"strong": Reacting("strong", react)}, test_command=command)
    log = Log.memory()

    async def whole() -> Finished:
        await stage.begin(log)
        return await orchestrator.run(log, stage.crew(), stage.bench())

    end = asyncio.run(whole())
    assert end.reason == "turn_limit"
    assert "The tests do not pass." in end.message
    runs = [event for event in log.events if isinstance(event, ToolRan) and event.call.tool == "run_tests"]
    assert [run.ok for run in runs[:2]] == [False, False]
    assert runs[1].output.endswith("Tests that went missing do not pass: put them back.]")
