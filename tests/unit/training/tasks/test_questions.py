import asyncio

import pytest

from fugu_cli.errors import ConfigError
from fugu_cli.training.tasks import Question
from fugu_cli.training.tasks.questions import (
    final_answer,
    is_right,
    number_prompt,
    question_as_task,
)

SUM = Question(
    id="q", source="own", kind="number", prompt=number_prompt("How many are 2 + 2?"), answer="1,004"
)
CODE = Question(
    id="c",
    source="own",
    kind="code",
    prompt="Show it.",
    tests=("import math", "assert square(3) == 9", "assert True"),
)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("4 + 1000 = 1004\nAnswer: 1004", True),
        ("**Answer: $1,004.00**", True),
        ("so it is \\boxed{1004}", True),
        ("Therefore, the answer is:\n\\[\n\\boxed{1004}\n\\]", True),
        ("Answer: see below.\n\n\\[\n\\boxed{1004}\n\\]", True),
        ("The answer is clear.\n\nIt is 1004.\n\\]", True),
        ("Therefore, the answer is:\n\\[\n\\boxed{5}\n\\]", False),
        ("7 apples\n#### 1004\n", True),
        ("That makes 1004 in the end.", True),
        ("Answer: 1004, not 7", False),
        ("Answer: 1005", False),
        (f"Answer: 1004.{'0' * 30}", True),
        (f"Answer: 1004.{'0' * 30}1", False),
        ("I cannot say.", False),
        ("", False),
    ],
)
def test_the_number_of_the_answer_is_compared_as_a_number(reply: str, expected: bool) -> None:
    assert asyncio.run(is_right(SUM, reply)) is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Here:\n```python\ndef square(n):\n    return n * n\n```\n", True),
        ("def square(n):\n    return n * n\n", True),
        ("```python\ndef square(n):\n    return n + n\n```", False),
        ("```python\nimport os\nos._exit(0)\n```", False),
        ("I do not know.", False),
    ],
)
def test_code_is_run_against_the_tests_like_any_other(reply: str, expected: bool) -> None:
    assert asyncio.run(is_right(CODE, reply)) is expected


@pytest.mark.parametrize(
    ("body", "expected"), [("len(set(found)) < len(found)", True), ("False", False)]
)
def test_code_may_be_named_like_a_test(body: str, expected: bool) -> None:
    tests = ("assert test_duplicate([1, 1])", "assert not test_duplicate([])")
    question = CODE.model_copy(update={"tests": tests})
    assert (
        asyncio.run(is_right(question, f"def test_duplicate(found):\n    return {body}\n"))
        is expected
    )


def test_the_last_mark_counts_and_else_the_last_line() -> None:
    assert final_answer("Answer: 3\nNo.\nAnswer: **4**\n") == "4"
    assert final_answer("one\n\ntwo\n\n") == "two"
    assert final_answer("The answer to question 1 is **7**") == "7"
    assert final_answer("Answer:\n42\n") == "42"


@pytest.mark.parametrize("told", ["\\boxed{7}", "#### 7", "The total is 7."])
def test_a_word_about_answering_is_no_mark_of_an_answer(told: str) -> None:
    assert asyncio.run(
        is_right(
            SUM.model_copy(update={"answer": "7"}), f"To answer this, add 3 and 4.\n\n{told}\n"
        )
    )
    assert asyncio.run(
        is_right(SUM.model_copy(update={"answer": "7"}), f"I answered 12 before.\n{told}\n")
    )


def test_a_question_becomes_a_repository_that_holds_only_itself() -> None:
    task = question_as_task(SUM)
    assert (task.id, task.prompt, dict(task.files)) == (
        "q",
        SUM.prompt,
        {"QUESTION.md": f"{SUM.prompt}\n"},
    )


def test_generated_questions_are_the_same_each_time_and_scored_by_their_maker() -> None:
    pytest.importorskip("reasoning_gym")
    from fugu_cli.training.tasks import questions

    first, second = (
        questions.load_generated("gym:chain_sum:2:7"),
        questions.load_generated("gym:chain_sum:2:7"),
    )
    assert first == second
    assert [question.id for question in first.questions] == [
        "gym-chain_sum-7-0",
        "gym-chain_sum-7-1",
    ]
    question = first.questions[0]
    assert asyncio.run(is_right(question, f"It is easy.\nAnswer: {question.answer}"))
    assert not asyncio.run(is_right(question, "Answer: nothing"))


@pytest.mark.parametrize(
    ("words", "said"),
    [("gym:mini_sudoku:1", "answers are not one line"), ("gym:composite", "no such generator")],
)
def test_generators_whose_right_answers_could_not_be_graded_right_are_refused(
    words: str, said: str
) -> None:
    pytest.importorskip("reasoning_gym")
    from fugu_cli.training.tasks import questions

    with pytest.raises(ConfigError, match=said):
        questions.load_generated(words)


def test_no_questions_at_all_are_not_what_was_meant() -> None:
    from fugu_cli.training.tasks import questions

    with pytest.raises(ConfigError, match="names no questions"):
        questions.load_generated("gym:chain_sum:0")
