import pytest

from fugu_cli.repair.intent import (
    is_about_tests,
    is_for_a_test_run,
    is_for_failing_tests,
    is_for_tests,
    is_question,
    takes_away,
    wants_change,
)


@pytest.mark.parametrize(
    "text",
    [
        "fix failing tests",
        "Fix the failing tests.",
        "`pytest -q` fails. Fix it.",
        "Implement the function `longest` in `longest.py`",
        "make CI green",
        "there is a bug in the parser",
        "How do I get rid of this error? Please fix it",
    ],
)
def test_requests_whose_success_tests_can_show(text: str) -> None:
    assert is_about_tests(text)


@pytest.mark.parametrize(
    "text",
    [
        "what does the parser do?",
        "explain why test_a exists",
        "add a docstring to main.py",
        "rename Foo to Bar",
        "Why does this fail on Windows?",
        "",
    ],
)
def test_requests_that_tests_do_not_decide(text: str) -> None:
    assert not is_about_tests(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("what does calc.txt hold?", True),
        ("explain the tests", True),
        ("why does it fail? fix it", False),
        ("fix it", False),
        ("are there any bugs?", True),
        ("Does the parser fail on empty input?", True),
        ("is add broken? fix it", False),
        ("review my code", True),
        ("Please analyse the error handling", True),
        ("review the parser and fix what is wrong", False),
        ("Review and update the README", False),
        ("help", True),
        ("help me add a flag", False),
        ("run the tests", False),
    ],
)
def test_a_question_asks_for_no_change(text: str, asks: bool) -> None:
    assert is_question(text) is asks


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("what does calc.txt hold?", True),
        ("Is add() commutative?", True),
        ("and now?", True),
        ("Can you explain the parser?", True),
        ("Can you make the parser faster?", False),
        ("Rename add to plus, ok?", False),
        ("Is it slow? Make it faster.", False),
        ("make the parser faster", False),
    ],
)
def test_a_question_of_any_form_asks_for_no_change(text: str, asks: bool) -> None:
    assert is_question(text) is asks


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Write tests for with_tax in tests/test_prices.py.", True),
        ("add a few more unit tests", True),
        ("Please create the missing regression test for the parser", True),
        ("write code so that the tests pass", False),
        ("make the new tests pass", False),
        ("Implement f and do not change the tests", False),
        ("add tests pass", False),
        ("why do we write tests?", False),
    ],
)
def test_a_request_for_tests_is_told_from_one_for_code_that_passes_them(
    text: str, wanted: bool
) -> None:
    assert is_for_tests(text) is wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fix failing tests", True),
        ("Please fix all the failing unit tests.", True),
        ("Repair my broken tests", True),
        ("fix it", True),
        ("Fix the build.", True),
        ("fix", True),
        ("fix the errors in parser.py", False),
        ("fix it so that None is handled", False),
        ("fix the parser, its tests fail", False),
        ("add failing tests", False),
    ],
)
def test_a_request_to_mend_failing_tests_is_known(text: str, expected: bool) -> None:
    assert is_for_failing_tests(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rename f to g", True),
        ("please add a docstring", True),
        ("could you move it", True),
        ("bump the version to 1.1.0", True),
        ("Write a README section that explains total", True),
        ("write docstrings for all functions", True),
        ("Write a function that adds", False),
        ("What would you change?", False),
        ("The changelog is empty", False),
    ],
)
def test_a_request_that_words_cannot_carry_out_is_known(text: str, expected: bool) -> None:
    assert wants_change(text) is expected


def test_a_request_may_mean_that_something_goes_or_is_renamed() -> None:
    texts = ["Rename f to g", "drop the cache", "Remove f", "Add a method remove(price)", "Fix f"]
    assert [takes_away(text) for text in texts] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("40 tables have 4 legs each. Calculate the total number of legs", True),
        ("Calculate the totals of the report with tax", False),
        ("Simplify the retry logic", False),
        ("Solve the flaky timeouts in the scheduler", False),
        ("Solve issue 12", False),
        ("Find and remove the 3 unused helpers", False),
        ("It has 4 legs. Find the number of all legs.", True),
        ("What is a monad?", True),
        ("How many legs has it", True),
        ("Find the bug in the cart", False),
        ("Add a function to compute the mean", False),
        ("Implement mean: calculate the sum first", False),
        ("Make the totals round", False),
    ],
)
def test_what_is_asked_or_to_be_worked_out_is_told_from_work_on_files(
    text: str, expected: bool
) -> None:
    assert is_question(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", True),
        ("Hi there!", True),
        ("Good morning, fugu", True),
        ("Thank you", True),
        ("perfect", True),
        ("hello world in Rust", False),
        ("hello.py is slow", False),
        ("Hello, dark mode for the settings", False),
        ("Hi, the parser crashes on empty input", False),
        ("thanks, now handle None as well", False),
        ("Great, next the README", False),
        ("thanks_page.html has a typo", False),
        ("thank the user on the last page", False),
        ("nice error messages for bad input", False),
        ("Name the columns", False),
        ("yes", False),
        ("", False),
    ],
)
def test_talk_is_no_work_on_files(text: str, expected: bool) -> None:
    assert is_question(text) is expected
    assert is_question(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run the tests", True),
        ("Please run all the unit tests again.", True),
        ("Do all tests pass?", True),
        ("are the tests green?", True),
        ("run the tests and fix what fails", False),
        ("make the tests pass", False),
        ("run the server", False),
    ],
)
def test_a_request_to_run_the_tests_is_no_work_on_files(text: str, expected: bool) -> None:
    assert is_for_a_test_run(text) is expected
    if expected:
        assert not (is_about_tests(text) or is_question(text) or is_question(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cart needs a remove method", True),
        ("truncate should not cut in the middle of a word", True),
        ("write tests for slugify", True),
        ("write a README for this project", True),
        ("I looked at it. Rename f to g", True),
        ("look at a.py and then add a flag", True),
        ("simplify the retry logic", True),
        ("what should f return?", False),
        ("should I use a set here?", False),
        ("tell me how this must be called", False),
        ("write a function that adds two numbers", False),
        ("fix the bug in a.py", False),
        ("make the tests in tests/a pass", False),
        ("run the tests", False),
        ("hello", False),
        ("give me an overview", False),
    ],
)
def test_a_wish_for_a_change_is_known_in_any_sentence(text: str, expected: bool) -> None:
    assert wants_change(text) == expected
