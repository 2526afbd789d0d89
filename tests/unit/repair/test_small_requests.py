"""What a small model may do follows from the request: in the real loop, with a repository and its
tests.
"""

from pathlib import Path

import pytest

from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session.events import Permitted, Undone
from tests.reacting import calls, repository, role, says
from tests.unit.engine.test_orchestrator import SMALL, play, shown


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def test_failing_tests_that_all_pass_are_told_and_nothing_is_changed(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    found = play(root, (SMALL, says("All tests pass.")))
    assert found.run("fix the failing tests").reason == "answered"
    assert [prompt.tools for prompt in shown(found, "small")] == [()]


@pytest.mark.parametrize("judged", [True, False])
def test_a_request_for_tests_lets_a_small_model_write_them_where_none_fails(
    judged: bool, root: Path
) -> None:
    (root / "calc.txt").write_text("fixed\n")
    new = Call.make(
        "1", "write", path="test_more.py", content="def test_more():\n    assert True\n"
    )

    def react(prompt: Prompt) -> Reply:
        return Reply(text="ACCEPT") if role(prompt) == "verifier" else calls(new)

    found = play(root, (SMALL, react))
    assert found.run("write tests for calc", judged=judged).reason == "accepted"
    assert (root / "test_more.py").exists()


def test_while_tests_fail_a_small_model_may_not_write_others(root: Path) -> None:
    new = Call.make(
        "1", "write", path="test_more.py", content="def test_more():\n    assert True\n"
    )
    found = play(root, (SMALL, lambda prompt: calls(new)))
    found.run("write tests for calc")
    made = [
        fact
        for fact in found.of(Permitted)
        if isinstance(fact, Permitted) and fact.call.tool == "write"
    ]
    assert made and not any(fact.allowed for fact in made)


@pytest.mark.parametrize(
    ("request_", "offered"),
    [
        ("A table has 4 legs and 9 have more. Calculate the number of all legs", False),
        ("Is 7 a prime?", False),
        ("Does calc.txt hold a number?", False),
        ("Calculate the sum in calc.txt", True),
        ("Let calc.txt say more", True),
    ],
)
def test_a_small_model_that_is_only_asked_something_is_told_of_no_files_to_write(
    request_: str, offered: bool, root: Path
) -> None:
    found = play(root, (SMALL, says("It is 40.")))
    found.run(request_, judged=False)
    assert bool(shown(found, "small")[0].tools) is offered


RATE = "def rate():\n    return {}\n"
FOLLOWS = (
    'code=$(grep -o "[0-9]\\+$" rate.py); expected=$(grep -o "[0-9]\\+$" test_rate.py)\n'
    'if [ -z "$expected" ]; then echo 1 passed; elif [ "$code" = "$expected" ]; then echo 2 '
    "passed;\n"
    'else echo "E assert $code == $expected"; echo "E  +  where $code = rate()"\n'
    'echo "test_rate.py:2: AssertionError"\n'
    'echo "1 failed, 1 passed"; exit 1; fi\n'
)


def test_a_change_that_tests_contradict_is_taken_back(root: Path) -> None:
    (root / "rate.py").write_text(RATE.format(19))
    (root / "test_rate.py").write_text("def test_rate():\n    assert rate() == 19\n")
    (root / "check.sh").write_text(FOLLOWS)
    found = play(
        root,
        (
            SMALL,
            lambda prompt: calls(Call.make("1", "write", path="rate.py", content=RATE.format(7))),
        ),
    )
    assert found.run("change the rate in rate.py to 7", judged=False).reason == "turn_limit"
    assert {fact.reason for fact in found.of(Undone) if isinstance(fact, Undone)} == {
        "tests that passed before fail"
    }
    assert (root / "rate.py").read_text() == RATE.format(19)
