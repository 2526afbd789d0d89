import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from fugu_cli.errors import StorageError
from fugu_cli.safety.sandbox.command_sandbox import Sandbox, SandboxSettings
from fugu_cli.system import temp_dirs
from fugu_cli.tools.result import truncate
from fugu_cli.training.tasks import Grade, Task
from fugu_cli.training.tasks.grading import grade
from fugu_cli.training.tasks.repository import create_repository, write_files

PASS_ALL = (
    "import pytest\n\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport(item, "
    "call):\n"
    "    report = yield\n    report.outcome = 'passed'\n    return report\n"
)


def graded(task: Task, folder: Path, changes: Mapping[str, str]) -> Grade:
    async def steps() -> Grade:
        await create_repository(task, folder)
        write_files(changes, folder)
        return await grade(task, folder)

    return asyncio.run(steps())


def checked_by(task: Task, script: str, timeout: float = 30) -> Task:
    """The task judged by a shell script of its own."""
    update = {"hidden": {"check.sh": script}, "grade_command": "sh check.sh", "timeout": timeout}
    return task.model_copy(update=update)


def test_the_untouched_task_is_unsolved_and_the_output_says_why(task: Task, tmp_path: Path) -> None:
    result = graded(task, tmp_path / "repo", {})
    assert not result.ok
    assert "assert 5 == 4" in result.output


def test_the_solution_passes_and_nothing_is_written_beside_it(task: Task, tmp_path: Path) -> None:
    assert graded(task, tmp_path / "repo", task.solution).ok
    assert sorted(path.name for path in (tmp_path / "repo").iterdir()) == [
        ".git",
        "double.py",
        "test_double.py",
    ]


def test_an_answer_that_only_satisfies_the_visible_tests_fails(task: Task, tmp_path: Path) -> None:
    assert not graded(task, tmp_path / "repo", {"double.py": "def double(n):\n    return 4\n"}).ok


@pytest.mark.parametrize(
    "planted",
    [
        {"conftest.py": PASS_ALL},
        {
            "pytest.py": "print('1 passed')\n",
            "json.py": "import os\nprint('1 passed', flush=True)\nos._exit(0)\n",
        },
        {"cheat-1.dist-info/entry_points.txt": "[pytest11]\ncheat = cheat\n", "cheat.py": PASS_ALL},
        {
            "test_double.py": "def test_two():\n    pass\n",
            "test_hidden.py": "def test_text():\n    pass\n",
        },
        {"double.py": "import os\nos._exit(0)\n"},
    ],
    ids=lambda planted: " ".join(planted),
)
def test_what_changes_the_judge_instead_of_the_code_does_not_count(
    task: Task, tmp_path: Path, planted: dict[str, str]
) -> None:
    assert not graded(task, tmp_path / "repo", planted).ok


def test_files_that_steer_a_test_run_are_left_behind_and_all_others_are_kept(
    task: Task, tmp_path: Path
) -> None:
    steering = [
        *(
            "conftest.py",
            "deep/conftest.py",
            "pytest.ini",
            ".pytest.ini",
            "pytest.toml",
            "tox.ini",
            "setup.cfg",
        ),
        *(
            "pyproject.toml",
            "sitecustomize.py",
            "usercustomize.py",
            "package.json",
            "build.rs",
            "deep/Cargo.toml",
        ),
        *(
            "jest.config.ts",
            "web/vitest.config.mjs",
            ".mocharc.json",
            ".babelrc",
            "jest.setup.js",
            "src/setupTests.ts",
        ),
        *(
            "pom.xml",
            ".mvn/maven.config",
            "gradle.properties",
            "build.gradle.kts",
            ".rspec",
            "phpunit.xml",
        ),
        *(
            "_pytest/__init__.py",
            "pluggy.py",
            "random.py",
            "json.so",
            "x.pth",
            "x.egg-info/entry_points.txt",
        ),
        *("justfile", "Taskfile.yml", "deno.json", "rules.mk", "email/__init__.py"),
        *(
            "__pycache__/double.cpython-311.pyc",
            "double.pyc",
            ".cargo/config.toml",
            "node_modules/x/index.js",
        ),
    ]
    kept = [
        "double.py",
        "config.js",
        "vite.md",
        "jest.md",
        "new.py",
        "deep/random.py",
        "notes.txt",
        "conftest/readme.md",
        "src/__init__.py",
        "double.ts",
        "types.ts",
        "html/index.html",
    ]
    listed = checked_by(task, "find . -type f | LC_ALL=C sort\n")
    tests = {
        "files": {**task.files, "double.test.ts": ""},
        "test_files": (*task.test_files, "double.test.ts"),
    }
    listed = listed.model_copy(update=tests)
    result = graded(listed, tmp_path / "repo", dict.fromkeys([*steering, *kept], ""))
    expected = sorted(
        f"./{name}" for name in [*kept, "check.sh", "double.test.ts", "test_double.py"]
    )
    assert result.output.splitlines() == expected


def test_a_changed_or_deleted_configuration_of_the_task_is_put_back(
    task: Task, tmp_path: Path
) -> None:
    own = (
        "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef _own():\n    raise "
        "RuntimeError('the task\\'s own')\n"
    )
    configured = task.model_copy(update={"files": {**task.files, "conftest.py": own}})
    result = graded(configured, tmp_path / "repo", {"conftest.py": "", **task.solution})
    assert not result.ok
    assert "the task's own" in result.output


def test_files_of_the_task_in_folders_that_tools_make_are_there_and_count_as_they_should(
    task: Task, tmp_path: Path
) -> None:
    script = (
        "cat src/target/own.txt src/target/new.txt .cargo/config.toml; cmp -s target.bin "
        "tests/data.bin\n"
    )
    files = {**task.files, "src/target/own.txt": "a\n", ".cargo/config.toml": "the task's\n"}
    binaries = {"tests/data.bin": b"\xff", "target.bin": b"\xff"}
    listed = checked_by(task, script).model_copy(
        update={"files": files, "binaries": binaries, "solution": {}}
    )
    changes = {
        "src/target/own.txt": "b\n",
        "src/target/new.txt": "c\n",
        ".cargo/config.toml": "mine\n",
    }
    result = graded(listed, tmp_path / "repo", {**changes, "tests/data.bin": "mine"})
    assert (result.ok, result.output.splitlines()) == (True, ["b", "c", "the task's"])


def test_a_judging_script_may_be_run_again_when_it_is_put_back(task: Task, tmp_path: Path) -> None:
    files = {**task.files, "run_tests.sh": "#!/bin/sh\nexit 0\n"}
    update = {
        "files": files,
        "executable": ("run_tests.sh",),
        "grade_command": "./run_tests.sh",
        "hidden": {},
    }

    async def steps() -> bool:
        run = task.model_copy(update=update)
        await create_repository(run, tmp_path / "repo")
        (tmp_path / "repo" / "run_tests.sh").unlink()
        return (await grade(run, tmp_path / "repo")).ok

    assert asyncio.run(steps())


def test_a_configuration_that_the_solution_changes_may_be_changed(
    task: Task, tmp_path: Path
) -> None:
    hidden = {"test_hidden.py": "def test_argument(configured):\n    assert configured == 'yes'\n"}
    conftest = "import pytest\n\n\n@pytest.fixture\ndef configured():\n    return 'yes'\n"
    solution = {**task.solution, "conftest.py": conftest}
    configurable = task.model_copy(update={"hidden": hidden, "solution": solution})
    assert graded(configurable, tmp_path / "repo", solution).ok


def test_new_modules_of_the_agents_own_are_kept(task: Task, tmp_path: Path) -> None:
    changes = {
        "double.py": "from arithmetic.twice import twice as double\n",
        "arithmetic/twice.py": "twice = 2 .__mul__",
    }
    hidden = {
        "test_hidden.py": "from arithmetic import twice\n\n\ndef test_kept():\n    assert twice\n"
    }
    assert graded(task.model_copy(update={"hidden": hidden}), tmp_path / "repo", changes).ok


def test_links_are_not_followed_when_tests_are_put_back(task: Task, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("untouched")

    async def steps() -> Grade:
        folder = await create_repository(task, tmp_path / "repo")
        write_files(task.solution, folder)
        (folder / "test_double.py").unlink()
        (folder / "test_double.py").symlink_to(outside)
        (folder / "test_hidden.py").mkdir()
        (folder / "test_hidden.py" / "in_the_way.txt").write_text("")
        (folder / "loop").symlink_to(folder)
        return await grade(task, folder)

    assert asyncio.run(steps()).ok
    assert outside.read_text() == "untouched"


def test_a_command_that_never_ends_is_stopped_with_all_it_started(
    task: Task, tmp_path: Path
) -> None:
    endless = checked_by(task, "sleep 300.4711 &\necho begun\nwait\n", timeout=1)
    result = graded(endless, tmp_path / "repo", {})
    said = [
        line for line in result.output.splitlines() if line not in ("", "Terminated")
    ]  # what a shell may add
    assert (result.ok, said) == (False, ["begun", "(stopped after 1 s)"])
    left = subprocess.run(
        ["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    assert [
        line for line in left.splitlines() if "sleep 300.4711" in line and line[0] not in "ZX"
    ] == []


def test_a_test_run_writes_nowhere_but_into_its_copy(task: Task, tmp_path: Path) -> None:
    copy = Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else tmp_path
    outside = copy / f"fugu-outside-{os.getpid()}"
    graded(checked_by(task, f"echo gone > {outside}\necho here > inside\n"), tmp_path / "repo", {})
    held = Sandbox(tmp_path, tmp_path / "store", SandboxSettings()).mechanism.kind != "none"
    assert outside.exists() is not held
    outside.unlink(missing_ok=True)


def test_a_child_left_running_does_not_hold_up_the_judgement(task: Task, tmp_path: Path) -> None:
    result = graded(checked_by(task, "sleep 300 &\necho done\n"), tmp_path / "repo", {})
    assert (result.ok, result.output) == (True, "done\n")


def test_output_without_end_is_cut_in_the_middle(task: Task, tmp_path: Path) -> None:
    script = (
        "echo first\ni=0\nwhile [ $i -lt 40000 ]; do echo 0123456789; i=$((i+1)); done\necho last\n"
    )
    result = graded(checked_by(task, script), tmp_path / "repo", {})
    whole = "first\n" + "0123456789\n" * 40000 + "last\n"
    assert (result.ok, result.output) == (True, truncate(whole, 8000))


def test_the_environment_of_the_agent_does_not_reach_the_judge(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    result = graded(checked_by(task, 'echo "$PYTEST_ADDOPTS:$PYTHONPATH"\n'), tmp_path / "repo", {})
    assert result.ok
    assert "--collect-only" not in result.output
    assert "/nowhere" not in result.output


def test_a_folder_that_is_gone_is_unsolved(task: Task, tmp_path: Path) -> None:
    assert not asyncio.run(grade(task, tmp_path / "absent")).ok


def test_a_copy_that_cannot_be_made_is_our_worlds_failure(task: Task, tmp_path: Path) -> None:
    blocked = task.model_copy(update={"hidden": {"x" * 300: ""}})
    with pytest.raises(StorageError, match="cannot copy"):
        asyncio.run(grade(blocked, tmp_path))


@pytest.mark.parametrize("without_it", [True, False])
def test_a_run_that_failed_on_a_full_disk_is_not_taken_for_a_wrong_answer(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_it: bool
) -> None:
    """A disk that the run filled itself is another matter: its files go with it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(temp_dirs, "is_disk_full", lambda place: place != tmp_path or without_it)
    (tmp_path / "repo").mkdir()
    if without_it:
        with pytest.raises(StorageError, match="is full: double cannot be graded") as raised:
            asyncio.run(grade(task, tmp_path / "repo"))
        assert "set TMPDIR" in raised.value.hint
    else:
        assert not asyncio.run(grade(task, tmp_path / "repo")).ok


def test_a_right_answer_is_right_on_a_full_disk_too(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temp_dirs, "is_disk_full", lambda _place: True)
    assert graded(task, tmp_path / "repo", task.solution).ok
