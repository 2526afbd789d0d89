import json
from pathlib import Path

import pytest

from fugu_cli.errors import ConfigError
from fugu_cli.tasks import Loaded, Skipped, Task
from fugu_cli.tasks.loading import load

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
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
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
    assert load(tmp_path) == Loaded((expected,), ())
    assert expected.sources == ("a.py",)


def test_a_task_that_runs_pytest_needs_it(tmp_path: Path) -> None:
    written(tmp_path, "own", ROW | {"grade_command": "python -m pytest -q"})
    (task,) = load(tmp_path).tasks
    assert task.needs == ("pytest",)


def test_what_needs_something_that_is_missing_is_left_out_with_the_reason(tmp_path: Path) -> None:
    written(tmp_path, "own", ROW | {"needs": ["no_such_program_anywhere", "sh"]})
    assert load(tmp_path) == Loaded(
        (),
        (Skipped("own-1", "needs no_such_program_anywhere, not found on this machine"),),
    )


def test_only_the_named_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    written(tmp_path, "b", ROW | {"id": "in-b"})
    written(tmp_path, "a", ROW | {"id": "in-a"})
    written(tmp_path, "broken", "no json")
    assert [task.id for task in load(tmp_path, only=["b", "a"]).tasks] == ["in-a", "in-b"]


def test_one_file_can_be_given_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    file = written(tmp_path, "own", "", ROW, "  ")
    assert [task.id for task in load(file).tasks] == ["own-1"]


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
        (ROW | {"hidden": {".git/config": ""}}, "'.git/config' does not stay inside the repository"),
        (ROW | {"solution": {"/etc/passwd": ""}}, "'/etc/passwd' does not stay inside the repository"),
        (ROW | {"test_files": ["absent.py"]}, "test_files names 'absent.py', which is not in repo"),
        ({"question": "no id"}, "id: "),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, row: object, message: str) -> None:
    file = written(tmp_path, "own", ROW | {"id": "good"}, row)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert message in str(caught.value)


def test_an_id_given_twice_is_refused_and_both_places_are_named(tmp_path: Path) -> None:
    first = written(tmp_path, "a", ROW)
    second = written(tmp_path, "b", ROW)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{second}:1: the id 'own-1' was given before, in {first}:1"


def test_a_folder_without_tasks_an_unknown_name_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no task files here"):
        load(tmp_path)
    (tmp_path / "own.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"no other\.jsonl here; there are own"):
        load(tmp_path, only=["other"])
    with pytest.raises(ConfigError, match=r"own\.jsonl: cannot be read"):
        load(tmp_path)
