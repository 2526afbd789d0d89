import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.tasks import Task
from tests.benchmarks.one_pass import (
    OnePassAttempt,
    Tell,
    answer_targets,
    failing_output,
    measure_agent,
    newest_attempts,
    one_pass_prompt,
    parse_answer,
)

RIGHT = "```python\ndef double(n):\n    return 2 * n\n```"
WRONG = "```python\ndef double(n):\n    return n\n```"
Give = Callable[..., Any]


def text(task: Task, evidence: str = "") -> str:
    (message,) = one_pass_prompt(task, evidence).messages
    assert isinstance(message, FromUser)
    return message.text


def kept(told: list[OnePassAttempt | str]) -> Tell:
    return told.append


def test_the_prompt_holds_the_request_the_sources_and_what_the_tests_print(task: Task) -> None:
    assert text(task, "E assert 5 == 4") == (
        "`double` in `double.py` is wrong. Fix it.\n\n"
        "The file `double.py`:\n```\ndef double(n):\n    return n + n + 1\n```\n\n"
        "`sh check.sh` prints:\n```\nE assert 5 == 4\n```\n\n"
        "Answer with the file `double.py`, corrected and complete, from its first line to its "
        "last, in one fenced "
        "block. Write nothing else."
    )


def test_the_first_answer_is_greedy_and_later_ones_are_sampled_each_with_its_own_seed(
    task: Task,
) -> None:
    settings = [
        (sent.temperature, sent.seed)
        for sent in (one_pass_prompt(task, "", repeat) for repeat in range(3))
    ]
    assert settings == [(0.0, 0), (0.8, 1), (0.8, 2)]


def test_the_hidden_files_and_the_solution_are_never_shown(task: Task) -> None:
    secret = task.model_copy(
        update={"hidden": {"secret.py": "HIDDEN"}, "solution": {"double.py": "SOLUTION"}}
    )
    assert "HIDDEN" not in text(secret)
    assert "SOLUTION" not in text(secret)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Fix `a.py`.", ("a.py",)),
        ("Fix data.py, please", ("data.py",)),
        ("Fix src/a.py and b/a.py", ("src/a.py",)),
        ("Some tests fail.", ("a.py", "data.py", "src/a.py")),
    ],
)
def test_the_answer_may_replace_the_files_that_the_request_names_else_all(
    task: Task, words: str, expected: tuple[str, ...]
) -> None:
    files = {"src/a.py": "", "a.py": "", "data.py": "", "test_a.py": ""}
    assert (
        answer_targets(
            task.model_copy(update={"prompt": words, "files": files, "test_files": ("test_a.py",)})
        )
        == expected
    )


def test_several_targets_are_asked_for_with_their_paths(task: Task) -> None:
    several = task.model_copy(
        update={"prompt": "Some tests fail.", "files": {"a.py": "x = 1\n", "b.py": "y = 2\n"}}
    )
    assert "Answer with each file that must change" in text(several)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Sure!\n```python\nx = 1\n```\nDone.", {"a.py": "x = 1\n"}),
        ("```\nx\n```\nand\n```\nlonger\n```", {"a.py": "longer\n"}),
        ("```python\nx = 1\ny =", {"a.py": "x = 1\ny =\n"}),
        ("x = 1", {}),
        ("", {}),
    ],
)
def test_one_target_takes_the_longest_block(answer: str, expected: dict[str, str]) -> None:
    assert parse_answer(answer, ["a.py"]) == expected


def test_several_targets_take_the_blocks_that_name_them() -> None:
    answer = "**`a.py`**:\n\n```python\nx\n```\n```python src/b.py\ny\n```\nother.py\n```\nz\n```\n"
    assert parse_answer(answer, ["a.py", "src/b.py"]) == {"a.py": "x\n", "src/b.py": "y\n"}


def test_what_the_tests_print_is_kept_so_that_every_prompt_is_the_same(
    judged_by_pytest: Task, tmp_path: Path
) -> None:
    first = asyncio.run(failing_output(judged_by_pytest, tmp_path))
    assert first.splitlines()[0].strip("_ ") == "test_two"
    assert "E       assert 5 == 4\nE        +  where 5 = double(2)\n" in first
    assert first.splitlines()[-1] == "1 failed"
    (tmp_path / "double.txt").write_text("as it was")
    assert asyncio.run(failing_output(judged_by_pytest, tmp_path)) == "as it was"


def test_long_output_keeps_its_beginning_and_the_closing_line(
    judged_by_pytest: Task, tmp_path: Path
) -> None:
    many = (
        "import pytest\n\n\n@pytest.mark.parametrize('n', range(30))\ndef test_n(n):\n    assert "
        "n < 0\n"
    )
    output = asyncio.run(
        failing_output(
            judged_by_pytest.model_copy(
                update={"files": {**judged_by_pytest.files, "test_double.py": many}}
            ),
            tmp_path,
        )
    )
    assert len(output) <= 1510
    assert "test_n[0]" in output.splitlines()[0]
    assert output.splitlines()[-2:] == ["...", "30 failed"]


def test_a_task_without_visible_tests_has_no_output(task: Task, tmp_path: Path) -> None:
    assert asyncio.run(failing_output(task.model_copy(update={"test_files": ()}), tmp_path)) == ""


def test_rows_say_who_solved_what_at_which_cost(task: Task, given: Give, tmp_path: Path) -> None:
    agent = given("small", WRONG, RIGHT, "I do not know.")
    told: list[OnePassAttempt | str] = []
    asyncio.run(measure_agent([task], agent, [0, 1, 2], tmp_path / "rows.jsonl", kept(told)))
    measured = results_folder.read_rows(tmp_path / "rows.jsonl", OnePassAttempt)
    assert measured == told
    assert [(row.agent, row.task, row.repeat, row.ok, row.reply) for row in measured] == [
        ("small", "double", 0, False, WRONG),
        ("small", "double", 1, True, RIGHT),
        ("small", "double", 2, False, "I do not know."),
    ]
    assert {(row.input, row.cached, row.output, row.stop) for row in measured} == {
        (100, 40, 20, "end")
    }
    assert len({row.prompt_sha for row in measured}) == 3


def test_a_stopped_measurement_goes_on_where_it_was(
    task: Task, given: Give, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    asyncio.run(measure_agent([task], given("small", WRONG), [0], file, kept([])))
    asyncio.run(measure_agent([task], given("small", RIGHT), [0, 1], file, kept([])))
    asyncio.run(measure_agent([task], given("other", RIGHT), [0], file, kept([])))
    cells = [
        (row.agent, row.repeat, row.ok) for row in results_folder.read_rows(file, OnePassAttempt)
    ]
    assert cells == [("small", 0, False), ("small", 1, True), ("other", 0, True)]


def test_a_prompt_in_other_words_is_asked_again_and_its_row_counts(
    task: Task, given: Give, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    asyncio.run(measure_agent([task], given("small", WRONG), [0], file, kept([])))
    reworded = task.model_copy(update={"prompt": "Please fix `double.py`."})
    asyncio.run(measure_agent([reworded], given("small", RIGHT), [0], file, kept([])))
    measured = results_folder.read_rows(file, OnePassAttempt)
    assert [(row.prompt, row.ok) for row in measured] == [
        (task.prompt, False),
        (reworded.prompt, True),
    ]
    assert newest_attempts(measured) == measured[1:]


def test_a_failure_of_infrastructure_leaves_the_cell_empty(
    task: Task, given: Give, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    told: list[OnePassAttempt | str] = []
    agent = given("small", AgentError("the server is gone", kind="network"), RIGHT)
    asyncio.run(measure_agent([task], agent, [0, 1], file, kept(told)))
    assert told[0] == "double, small, repeat 0: the server is gone"
    assert [row.repeat for row in results_folder.read_rows(file, OnePassAttempt)] == [1]


def test_three_failures_in_a_row_end_the_measurement(
    task: Task, given: Give, tmp_path: Path
) -> None:
    agent = given("small", *[AgentError("busy", kind="overloaded")] * 3, RIGHT)
    with pytest.raises(AgentError, match="busy"):
        asyncio.run(measure_agent([task], agent, range(9), tmp_path / "rows.jsonl", kept([])))
    assert len(agent.sent) == 3


def test_a_prompt_that_the_model_cannot_take_counts_as_unsolved(
    task: Task, given: Give, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    asyncio.run(
        measure_agent(
            [task], given("small", AgentError("too long", kind="invalid")), [0], file, kept([])
        )
    )
    (row,) = results_folder.read_rows(file, OnePassAttempt)
    assert (row.ok, row.error, row.stop) == (False, "too long", "refusal")
