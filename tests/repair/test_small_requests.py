"""What a small model may do follows from the request: in the real loop, with a repository and its tests."""

from pathlib import Path

import pytest

from fugu_cli.events import Finished, Permitted, Undone
from fugu_cli.messages import Call, FromUser, Prompt, Reply
from fugu_cli.repair.filling import filled
from fugu_cli.tools import search
from tests.reacting import calls, repository, role, says
from tests.test_orchestrator import SMALL, Play, play, shown


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


def test_failing_tests_that_all_pass_are_told_and_nothing_is_changed(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    found = play(root, (SMALL, says("All tests pass.")))
    assert found.run("fix the failing tests").reason == "answered"
    assert [prompt.tools for prompt in shown(found, "small")] == [()]


def test_a_request_for_tests_lets_a_small_model_write_them_where_none_fails(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    new = Call.make("1", "write", path="test_more.py", content="def test_more():\n    assert True\n")

    def react(prompt: Prompt) -> Reply:
        return Reply(text="ACCEPT") if role(prompt) == "verifier" else calls(new)

    found = play(root, (SMALL, react))
    assert found.run("write tests for calc").reason == "accepted"
    assert (root / "test_more.py").exists()


def test_while_tests_fail_a_small_model_may_not_write_others(root: Path) -> None:
    new = Call.make("1", "write", path="test_more.py", content="def test_more():\n    assert True\n")
    found = play(root, (SMALL, lambda prompt: calls(new)))
    found.run("write tests for calc")
    made = [fact for fact in found.of(Permitted) if isinstance(fact, Permitted) and fact.call.tool == "write"]
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


def test_a_small_model_that_is_asked_about_a_commit_is_shown_it(root: Path) -> None:
    found = play(root, (SMALL, says("calc.txt was added.")))
    assert found.run("what changed in the last commit?", judged=False).reason == "answered"
    brief = shown(found, "small")[0].messages[0]
    assert isinstance(brief, FromUser)
    assert "`git show --stat --patch HEAD` prints:\n```\ncommit " in brief.text and "+broken" in brief.text


LOOKED_FOR = [
    (
        "is there a test for shout?",
        "All tests were searched for `shout`. Found:\n```\ntest_loud.py:1:from loud import shout\n",
    ),
    (
        "Is whisper tested?",
        "All tests were searched for `whisper`. Found:\n```\n(nothing)\n```\n\nIs whisper tested? Answer",
    ),
    ("where is whisper used?", "All files were searched for `whisper`. Found:\n```\nloud.py-1-def shout"),
    ("who calls yell?", "All files were searched for `yell`. Found:\n```\n(nothing)\n```\n\nwho calls yell? Answer"),
]


@pytest.mark.parametrize(("request_", "expected"), LOOKED_FOR)
def test_a_small_model_that_is_asked_what_is_tested_or_used_is_shown_the_lines(
    request_: str, expected: str, root: Path
) -> None:
    (root / "loud.py").write_text("def shout(text):\n    return whisper(text).upper()\n")
    (root / "test_loud.py").write_text("from loud import shout\n\n\ndef test_loud():\n    assert shout('a') == 'A'\n")
    found = play(root, (SMALL, says("I see.")))
    assert found.run(request_, judged=False).reason == "answered"
    brief = shown(found, "small")[0].messages[0]
    assert isinstance(brief, FromUser)
    assert expected in brief.text


def test_where_nothing_can_be_searched_the_question_is_asked_as_any_other(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ripgrep", lambda root: None)
    found = play(root, (SMALL, says("I see.")))
    assert found.run("is there a test for shout?", judged=False).reason == "answered"
    brief = shown(found, "small")[0].messages[0]
    assert isinstance(brief, FromUser)
    assert brief.text.startswith("is there a test for shout?") and "searched" not in brief.text


def test_a_change_with_a_test_is_written_file_by_file_and_judged_when_both_are_there(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    (root / "add.py").write_text("def add(a, b):\n    return a + b\n")
    code = Call.make("1", "write", path="add.py", content="def add(a, b):\n    return a + b\n\n\ndef sub(): ...\n")
    test = Call.make("2", "write", path="test_add.py", content="def test_sub():\n    assert True\n")

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        return calls(test if prompt.target == "test_add.py" else code)

    found = play(root, (SMALL, react))
    assert found.run("add a function sub to add.py with a test").reason == "accepted"
    asked = [(role(prompt), prompt.target) for prompt in shown(found, "small")]
    assert asked[:2] == [("worker", "add.py"), ("worker", "test_add.py")]
    assert [who for who, _ in asked[2:]] == ["verifier"]


def test_new_tests_that_expect_what_is_not_so_are_corrected_and_the_code_stays(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    (root / "add.py").write_text("def add(a, b):\n    return a + b\n")
    (root / "check.sh").write_text(
        "if [ ! -f test_add.py ]; then echo 1 passed; elif grep -q 3 test_add.py; then echo 2 passed;"
        " else echo 'test_add.py:1: assert 3 == 4'; echo '1 failed, 1 passed'; exit 1; fi\n"
    )

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        brief = prompt.messages[0]
        assert isinstance(brief, FromUser)
        expected = 3 if "Correct what they expect" in brief.text and "assert 3 == 4" in brief.text else 4
        content = f"def test_add():\n    assert add(1, 2) == {expected}\n"
        return calls(Call.make("1", "write", path=prompt.target, content=content))

    found = play(root, (SMALL, react))
    assert found.run("write tests for add in add.py").reason == "accepted"
    asked = [(role(prompt), prompt.target) for prompt in shown(found, "small")]
    assert asked[:2] == [("worker", "test_add.py"), ("worker", "test_add.py")]
    assert "== 3" in (root / "test_add.py").read_text()
    assert (root / "add.py").read_text() == "def add(a, b):\n    return a + b\n"


def test_where_new_tests_do_not_find_the_new_code_the_code_is_asked_for_first(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    (root / "add.js").write_text("function add() {}\nmodule.exports = { add };\n")
    (root / "check.sh").write_text(
        "if [ ! -f add.test.js ] || grep -q 'add, sub' add.js; then echo 1 passed;"
        " else echo 'add.test.js:1: sub is not a function'; echo '1 failed, 1 passed'; exit 1; fi\n"
    )
    without = "function add() {}\nfunction sub() {}\nmodule.exports = { add };\n"

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        brief = prompt.messages[0]
        assert isinstance(brief, FromUser)
        if prompt.target == "add.test.js":
            return calls(Call.make("1", "write", path="add.test.js", content='test("sub", () => { sub(); });\n'))
        content = without.replace("{ add }", "{ add, sub }") if "sub is not a function" in brief.text else without
        return calls(Call.make("2", "write", path="add.js", content=content))

    found = play(root, (SMALL, react))
    assert found.run("add a function sub to add.js with a test").reason == "accepted"
    asked = [prompt.target for prompt in shown(found, "small") if role(prompt) == "worker"]
    assert asked == ["add.js", "add.test.js", "add.js"]
    assert "{ add, sub }" in (root / "add.js").read_text()


def test_a_change_is_asked_for_behind_the_code_and_again_in_other_words(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    (root / "add.py").write_text("def add(a, b):\n    return a + b\n")
    same = Call.make("1", "write", path="add.py", content="def add(a, b):\n    return a + b\n")
    found = play(root, (SMALL, lambda prompt: calls(same)))
    assert found.run("add in add.py should take three numbers", judged=False).reason == "turn_limit"
    briefs = [prompt.messages[0] for prompt in shown(found, "small")]
    texts = [brief.text for brief in briefs if isinstance(brief, FromUser)]
    assert texts[0].startswith("The file `add.py`:")
    assert (
        texts[0]
        .rstrip()
        .endswith(
            "Now do this: add in add.py should take three numbers\nThe code above does not do it."
            " Rewrite `add.py` so that it does."
        )
    )
    assert texts[1].startswith("add in add.py should take three numbers\n")
    assert texts[1].rstrip().endswith("This is to be done: add in add.py should take three numbers")


RATE = "def rate():\n    return {}\n"
TEST_RATE = "def test_rate():\n    assert rate() == {}\n"
FOLLOWS = (
    'code=$(grep -o "[0-9]\\+$" rate.py); expected=$(grep -o "[0-9]\\+$" test_rate.py)\n'
    'if [ -z "$expected" ]; then echo 1 passed; elif [ "$code" = "$expected" ]; then echo 2 passed;\n'
    'else echo "E assert $code == $expected"; echo "E  +  where $code = rate()"\n'
    'echo "test_rate.py:2: AssertionError"\n'
    'echo "1 failed, 1 passed"; exit 1; fi\n'
)


def of_rates(root: Path) -> None:
    """A rate, and a test of it."""
    (root / "rate.py").write_text(RATE.format(19))
    (root / "test_rate.py").write_text(TEST_RATE.format(19))
    (root / "check.sh").write_text(FOLLOWS)


def rated(root: Path, test: str, text: str) -> tuple[Play, Finished]:
    """A small model that changes the rate, and then the test of it as `test`."""
    of_rates(root)

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        if prompt.target == "test_rate.py":
            return calls(Call.make("1", "write", path="test_rate.py", content=test))
        return calls(Call.make("2", "write", path="rate.py", content=RATE.format(7)))

    found = play(root, (SMALL, react))
    return found, found.run(text, judged="tests" in text)


def test_tests_that_expect_what_a_request_changes_follow_it_where_the_request_says_so(root: Path) -> None:
    found, end = rated(root, TEST_RATE.format(7), "change the rate in rate.py to 7 and update the tests")
    assert end == Finished(reason="accepted", message="accepted by small; the tests pass")
    asked = [(role(prompt), prompt.target) for prompt in shown(found, "small")]
    assert asked[:2] == [("worker", "rate.py"), ("worker", "test_rate.py")]
    assert [who for who, _ in asked[2:]] == ["verifier"]
    brief = shown(found, "small")[1].messages[0]
    assert isinstance(brief, FromUser)
    assert "assert 7 == 19" in brief.text
    assert "What the tests in `test_rate.py` expect is what the code did before" in brief.text
    assert found.of(Undone) == []


def test_of_tests_that_are_to_follow_the_expected_value_is_filled_in_first(root: Path) -> None:
    of_rates(root)

    def react(prompt: Prompt) -> Reply:
        if role(prompt) == "verifier":
            return Reply(text="ACCEPT")
        if prompt.gap is not None:
            return filled(prompt, Reply(text=" 7"))
        return calls(Call.make("1", "write", path="rate.py", content=RATE.format(7)))

    found = play(root, (SMALL.model_copy(update={"infill": True}), react))
    assert found.run("change the rate in rate.py to 7 and update the tests").reason == "accepted"
    gap = shown(found, "small")[1].gap
    assert gap is not None
    assert (gap.before, gap.place) == (
        "def test_rate():\n    # where 7 = rate()\n    assert rate() == ",
        "test_rate.py:2:22",
    )
    assert (root / "test_rate.py").read_text() == TEST_RATE.format(7)


def test_tests_that_are_to_follow_are_not_taken_out(root: Path) -> None:
    found, end = rated(root, "# no tests\n", "change the rate in rate.py to 7 and update the tests")
    assert end.reason == "turn_limit"
    assert {fact.reason for fact in found.of(Undone) if isinstance(fact, Undone)} == {"a test was taken out"}
    assert (root / "test_rate.py").read_text() == TEST_RATE.format(19)
    assert "Tests that passed before fail now." in end.message


def test_a_change_that_tests_contradict_is_taken_back_and_the_end_says_which(root: Path) -> None:
    found, end = rated(root, TEST_RATE.format(7), "change the rate in rate.py to 7")
    assert {fact.reason for fact in found.of(Undone) if isinstance(fact, Undone)} == {"tests that passed before fail"}
    assert (root / "rate.py").read_text() == RATE.format(19)
    assert end.message.endswith(
        "Every change that was tried broke tests that passed (test_rate.py:2). If what they expect is to change, say"
        ' so: "..., and update the tests". `fugu run --continue` goes on from here.'
    )


def test_a_function_that_is_named_is_asked_for_alone_and_then_with_its_file(root: Path) -> None:
    (root / "calc.txt").write_text("fixed\n")
    (root / "text.py").write_text(
        "import re\n\n\ndef slug(text):\n    return text\n\n\ndef words(text):\n    return []\n"
    )
    found = play(root, (SMALL, says("I would not.")))
    found.run("slug in text.py should raise a TypeError for numbers", judged=False)
    parts = [(prompt.target, prompt.part) for prompt in shown(found, "small")]
    assert parts[:2] == [("text.py", "def slug(text):\n    return text"), ("text.py", "")]
    brief = shown(found, "small")[0].messages[0]
    assert isinstance(brief, FromUser) and "import re\n\n\ndef slug" in brief.text and "words" not in brief.text
    assert brief.text.rstrip().endswith("The code above does not do it. Rewrite `slug` so that it does.")
