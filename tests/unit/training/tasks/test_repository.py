import asyncio
import subprocess
from pathlib import Path

import pytest

from fugu_cli.errors import StorageError, UsageError
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.repository import create_repository, write_files


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_a_task_gives_the_same_single_commit_wherever_it_is_written(
    task: Task, tmp_path: Path
) -> None:
    first = asyncio.run(create_repository(task, tmp_path / "one"))
    second = asyncio.run(create_repository(task, tmp_path / "deep" / "two"))
    assert git(first, "log", "--format=%H %an %aI") == git(second, "log", "--format=%H %an %aI")
    assert (
        git(first, "log", "--format=%an %aI %s") == "fugu 2025-01-01T00:00:00+00:00 task double\n"
    )
    assert git(first, "ls-files").split() == ["double.py", "test_double.py"]
    assert git(first, "status", "--porcelain") == ""


def test_hidden_files_and_the_solution_stay_away(task: Task, tmp_path: Path) -> None:
    folder = asyncio.run(create_repository(task, tmp_path / "repo"))
    assert sorted(path.name for path in folder.iterdir()) == [".git", "double.py", "test_double.py"]
    assert (folder / "double.py").read_text() == task.files["double.py"]


def test_files_are_written_byte_for_byte_and_ignored_ones_are_committed_too(
    task: Task, tmp_path: Path
) -> None:
    files = {".gitignore": "*.log\n", "a.log": "one\r\ntwo\r\n", "deep/er/ü.txt": "é\n"}
    folder = asyncio.run(
        create_repository(task.model_copy(update={"files": files}), tmp_path / "repo")
    )
    assert (folder / "a.log").read_bytes() == b"one\r\ntwo\r\n"
    assert git(folder, "ls-files", "-z").split("\0")[:-1] == [
        ".gitignore",
        "a.log",
        "deep/er/ü.txt",
    ]


def test_what_a_test_run_leaves_behind_is_no_change(task: Task, tmp_path: Path) -> None:
    folder = asyncio.run(create_repository(task, tmp_path / "repo"))
    write_files({"__pycache__/double.cpython-311.pyc": "", "new.py": ""}, folder)
    assert git(folder, "status", "--porcelain") == "?? new.py\n"


def test_a_folder_with_something_in_it_and_one_that_cannot_be_made_are_refused(
    task: Task, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not empty"):
        asyncio.run(create_repository(task, tmp_path))
    with pytest.raises(StorageError, match="cannot write the task double into"):
        asyncio.run(create_repository(task, tmp_path / "file" / "below"))
