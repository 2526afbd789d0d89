import json
from pathlib import Path

import pytest

from fugu_cli.errors import ConfigError
from fugu_cli.training.tasks import LoadedTasks, SkippedTask, Task
from fugu_cli.training.tasks.loading import load_tasks

ROW = {
    "id": "own-1",
    "source": "own",
    "licence": "MIT",
    "language": "python",
    "kind": "fix",
    "instruction": "Fix it.",
    "test_command": "sh check.sh",
    "timeout_s": 20,
    "test_files": ["check.sh"],
    "repo": {"a.py": "x = 1\n", "check.sh": "false\n"},
    "hidden": {"more.sh": "true\n"},
    "solution": {"a.py": "x = 2\n"},
}


def written(folder: Path, name: str, *rows: object) -> Path:
    file = folder / f"{name}.jsonl"
    file.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return file


def test_a_line_becomes_a_task_and_grading_defaults_to_the_test_command(tmp_path: Path) -> None:
    written(tmp_path, "own", ROW)
    expected = Task(
        id="own-1",
        source="own",
        language="python",
        kind="fix",
        prompt="Fix it.",
        files={"a.py": "x = 1\n", "check.sh": "false\n"},
        hidden={"more.sh": "true\n"},
        solution={"a.py": "x = 2\n"},
        test_files=("check.sh",),
        test_command="sh check.sh",
        grade_command="sh check.sh",
        timeout=20,
    )
    assert load_tasks(tmp_path) == LoadedTasks((expected,), ())
    assert expected.sources == ("a.py",)


def test_a_task_that_runs_pytest_needs_it(tmp_path: Path) -> None:
    written(tmp_path, "own", ROW | {"grade_command": "python -m pytest -q"})
    (task,) = load_tasks(tmp_path).tasks
    assert task.needs == ("pytest",)


def test_what_needs_something_that_is_missing_is_left_out_with_the_reason(tmp_path: Path) -> None:
    written(tmp_path, "own", ROW | {"needs": ["no_such_program_anywhere", "sh"]})
    assert load_tasks(tmp_path) == LoadedTasks(
        (),
        (SkippedTask("own-1", "needs no_such_program_anywhere, not found on this machine"),),
    )


def test_only_the_named_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    written(tmp_path, "b", ROW | {"id": "in-b"})
    written(tmp_path, "a", ROW | {"id": "in-a"})
    written(tmp_path, "broken", "no json")
    assert [task.id for task in load_tasks(tmp_path, only=["b", "a"]).tasks] == ["in-a", "in-b"]


def test_one_file_can_be_given_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    file = written(tmp_path, "own", "", ROW, "  ")
    assert [task.id for task in load_tasks(file).tasks] == ["own-1"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "the line: "),
        (ROW | {"kind": "break"}, "kind: "),
        (ROW | {"timeout_s": 0}, "timeout_s: "),
        (ROW | {"id": "../up"}, "id: "),
        (ROW | {"repo": {}}, "repo: "),
        (ROW | {"repo": {"../up.py": ""}}, "'../up.py' does not stay inside the repository"),
        (
            ROW | {"hidden": {".git/config": ""}},
            "'.git/config' does not stay inside the repository",
        ),
        (
            ROW | {"solution": {"/etc/passwd": ""}},
            "'/etc/passwd' does not stay inside the repository",
        ),
        (ROW | {"test_files": ["absent.py"]}, "test_files names 'absent.py', which is not in repo"),
        ({"question": "no id"}, "id: "),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(
    tmp_path: Path, row: object, message: str
) -> None:
    file = written(tmp_path, "own", ROW | {"id": "good"}, row)
    with pytest.raises(ConfigError) as caught:
        load_tasks(tmp_path)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert message in str(caught.value)


def test_an_id_given_twice_is_refused_and_both_places_are_named(tmp_path: Path) -> None:
    first = written(tmp_path, "a", ROW)
    second = written(tmp_path, "b", ROW)
    with pytest.raises(ConfigError) as caught:
        load_tasks(tmp_path)
    assert str(caught.value) == f"{second}:1: the id 'own-1' was given before, in {first}:1"


def test_a_folder_without_tasks_an_unknown_name_and_bytes_that_are_no_text_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="no task files here"):
        load_tasks(tmp_path)
    (tmp_path / "own.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"no other\.jsonl here; there are own"):
        load_tasks(tmp_path, only=["other"])
    with pytest.raises(ConfigError, match=r"own\.jsonl: cannot be read"):
        load_tasks(tmp_path)


def test_a_line_that_says_nothing_of_tests_has_them_found_by_their_names(tmp_path: Path) -> None:
    row = ROW | {"test_files": [], "repo": {"a.py": "", "test_a.py": ""}}
    (task,) = load_tasks(written(tmp_path, "own", row)).tasks
    assert task.test_files == ("test_a.py",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"repo": {"a\0b": "", "check.sh": ""}}, r"it has a NUL in 'a\x00b'"),
        ({"test_command": "true\0"}, r"it has a NUL in 'true\x00'"),
        ({"repo": {"a": "", "a/b": "", "check.sh": ""}}, "a is a file, and a folder for a/b"),
        ({"solution": {"a.py/b": ""}}, "a.py is a file, and a folder for a.py/b"),
        ({"hidden": {"x": "", "x/y/z": ""}}, "x is a file, and a folder for x/y/z"),
        (
            {"repo": {"d/" + "n" * 300: "", "check.sh": ""}},
            f"it has a name of 300 bytes, {'n' * 20}..., and none can be longer than 255",
        ),
        (
            {"id": "i" * 260},
            f"it has a name of 315 bytes, {'i' * 20}..., and none can be longer than 255",
        ),
        ({"repo": {"a": "\ud800", "check.sh": ""}}, "it holds half a character (a lone surrogate)"),
        ({"instruction": " \n"}, "it has no prompt"),
    ],
)
def test_a_task_that_nobody_can_be_given_is_left_out_and_the_others_kept(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    loaded = load_tasks(written(tmp_path, "own", ROW, ROW | {"id": "bad"} | change))
    assert [task.id for task in loaded.tasks] == ["own-1"]
    (skipped,) = loaded.skipped
    assert skipped.reason == reason


def test_a_question_that_asks_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="question: "):
        load_tasks(written(tmp_path, "own", {"id": "q", "question": " ", "answer": 4}))


def test_only_holds_for_a_file_too(tmp_path: Path) -> None:
    file = written(tmp_path, "own", ROW)
    assert load_tasks(file, only=["own"]).tasks
    with pytest.raises(ConfigError, match=r"own\.jsonl: there is no other in it; it is own"):
        load_tasks(file, only=["other"])
