import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.errors import ConfigError
from fugu_cli.session import recognized_tests
from fugu_cli.training.tasks import LoadedTasks, SkippedTask, Task
from fugu_cli.training.tasks.grading import (
    TaskCheck,
    check_task,
    judge_files,
    problem_sha,
    runner_versions,
)
from fugu_cli.training.tasks.loading import EXAMPLE_TASKS, TaskDefaults, load_tasks
from fugu_cli.training.tasks.repository import create_repository

CHECK = "grep -q right answer.txt\n"


def put(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def own(
    folder: Path, toml: str = 'prompt = "Make it right."\ntest_command = "sh tests/check.sh"\n'
) -> Path:
    put(
        folder / "one",
        task_dot_toml=toml,
        repo__answer_dot_txt="wrong\n",
        repo__tests__check_dot_sh=CHECK,
    )
    return put(
        folder / "one", repo__logo_dot_png=b"\x89\xff", solution__answer_dot_txt="right\n"
    ).parent


def test_a_folder_of_repositories_is_a_folder_of_tasks(tmp_path: Path) -> None:
    (task,) = load_tasks(own(tmp_path)).tasks
    assert task == Task(
        id="one",
        source=tmp_path.name,
        language="",
        kind="fix",
        prompt="Make it right.",
        files={"answer.txt": "wrong\n", "tests/check.sh": CHECK},
        binaries={"logo.png": b"\x89\xff"},
        solution={"answer.txt": "right\n"},
        test_files=("tests/check.sh",),
        test_command="sh tests/check.sh",
        grade_command="sh tests/check.sh",
        timeout=120.0,
    )
    folder = asyncio.run(create_repository(task, tmp_path / "fresh"))
    assert (folder / "logo.png").read_bytes() == b"\x89\xff"
    assert Task.model_validate_json(task.model_dump_json()) == task
    assert asyncio.run(check_task(task)) == TaskCheck(
        task="one", sha=problem_sha(task), runner=runner_versions()
    )


def test_a_git_repository_is_taken_as_committed_and_without_its_history(tmp_path: Path) -> None:
    repository = put(tmp_path / "two", answer_dot_txt="wrong\n", run_dot_sh="true\n")
    (repository / "run.sh").chmod(0o755)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    put(repository, answer_dot_txt="not committed\n")
    (task,) = load_tasks(
        tmp_path, defaults=TaskDefaults(prompt="Fix it.", test_command="sh run.sh")
    ).tasks
    assert (dict(task.files), task.executable) == (
        {"answer.txt": "wrong\n", "run.sh": "true\n"},
        ("run.sh",),
    )
    folder = asyncio.run(create_repository(task, tmp_path / "fresh"))
    log = subprocess.run(
        ["git", "log", "--format=%s"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    assert log == "task two\n"
    assert (folder / "run.sh").stat().st_mode & 0o100


@pytest.mark.parametrize("name", ["two", "repo", "hidden", "solution"])
@pytest.mark.parametrize("committed", [False, True])
def test_what_says_the_task_and_solves_it_is_no_part_of_it(
    tmp_path: Path, name: str, *, committed: bool
) -> None:
    said = 'prompt = "Fix it."\ntest_command = "sh run.sh"\n'
    folder = put(
        tmp_path / name,
        task_dot_toml=said,
        answer_dot_txt="wrong\n",
        below__hidden__a_dot_txt="kept\n",
    )
    put(
        folder,
        hidden__hidden__check_dot_sh="true\n",
        solution__answer_dot_txt="right\n",
        prompt_dot_md="Fix it.",
    )
    for words in (
        (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]) if committed else ()
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (task,) = load_tasks(tmp_path).tasks
    assert dict(task.files) == {"answer.txt": "wrong\n", "below/hidden/a.txt": "kept\n"}
    assert dict(task.hidden) == {"hidden/check.sh": "true\n"}
    assert dict(task.solution) == {"answer.txt": "right\n"}


def test_what_a_repository_leaves_out_of_its_releases_is_there(tmp_path: Path) -> None:
    toml = 'prompt = "Make it right."\ntest_command = "sh tests/check.sh"\n'
    repository = own(tmp_path, toml) / "one" / "repo"
    (repository / ".gitattributes").write_text("/tests export-ignore\nanswer.txt export-subst\n")
    (repository / "answer.txt").write_text("$Format:%H$\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    before = sorted(path.name for path in (repository / ".git").rglob("*"))
    (task,) = load_tasks(tmp_path).tasks
    assert (task.files["answer.txt"], task.test_files) == ("$Format:%H$\n", ("tests/check.sh",))
    assert sorted(path.name for path in (repository / ".git").rglob("*")) == before


def committed(repository: Path, *init: str) -> None:
    for words in (["init", "-q", *init], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=repository, check=True)


def test_reading_a_repository_runs_nothing_that_it_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    repository = own(tmp_path / "tasks") / "one" / "repo"
    put(
        repository,
        _dot_gitattributes="* filter=own\n",
        bin__git=f"#!/bin/sh\ntouch {mark}\nexit 1\n",
    )
    (repository / "bin" / "git").chmod(0o755)
    committed(repository)
    for name in (
        "filter.own.smudge",
        "core.fsmonitor",
        "core.pager",
        "core.sshCommand",
        "alias.ls-tree",
    ):
        subprocess.run(
            ["git", "config", name, f"!touch {mark}" if "alias" in name else f"touch {mark}; cat"],
            cwd=repository,
        )
    monkeypatch.setenv("PATH", f"{repository / 'bin'}:{os.environ['PATH']}")
    read = "import sys; from pathlib import Path; from fugu_cli.training.tasks.loading import load_tasks; "
    read += "print(load_tasks(Path(sys.argv[1])).tasks[0].files['answer.txt'])"
    done = subprocess.run(
        [sys.executable, "-c", read, tmp_path / "tasks"], check=True, capture_output=True, text=True
    )
    assert (done.stdout, mark.exists()) == ("wrong\n\n", False)


def test_objects_that_are_missing_are_not_fetched(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    repository = own(tmp_path / "tasks") / "one" / "repo"
    committed(repository)
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "o"),
        ("remote.o.promisor", "true"),
        ("remote.o.url", str(tmp_path)),
        ("remote.o.uploadpack", f"touch {mark}; false"),
    ):
        subprocess.run(["git", "config", name, value], cwd=repository, check=True)
    named = ["git", "rev-parse", "HEAD:answer.txt"]
    blob = subprocess.run(
        named, cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (skipped,) = load_tasks(tmp_path / "tasks").skipped
    assert (skipped.reason.startswith("its repository is broken: "), mark.exists()) == (True, False)


@pytest.mark.parametrize("kind", ["sha256", "worktree", "bare", "unborn", "variables"])
def test_every_kind_of_repository_is_read_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    repository = own(tmp_path / "tasks") / "one" / "repo"
    if kind == "unborn":
        subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
        (skipped,) = load_tasks(tmp_path / "tasks").skipped
        assert skipped.reason == "its repository is broken: fatal: Not a valid object name HEAD"
        return
    committed(repository, *(["--object-format=sha256"] if kind == "sha256" else []))
    if kind == "worktree":
        repository.rename(tmp_path / "main")
        subprocess.run(
            ["git", "worktree", "add", "-q", str(repository)], cwd=tmp_path / "main", check=True
        )
    if kind == "bare":
        subprocess.run(["git", "config", "core.bare", "true"], cwd=repository, check=True)
    if kind == "variables":  # as a hook that starts fugu has them
        for name in ("DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY", "COMMON_DIR"):
            monkeypatch.setenv(f"GIT_{name}", str(tmp_path / "elsewhere"))
    (task,) = load_tasks(tmp_path / "tasks").tasks
    assert (task.files["answer.txt"], task.binaries) == ("wrong\n", {"logo.png": b"\x89\xff"})


def test_a_tree_that_would_be_written_elsewhere_is_refused(tmp_path: Path) -> None:
    repository = own(tmp_path / "tasks") / "one" / "repo"
    committed(repository)

    def git(*words: str, given: bytes = b"") -> str:
        return (
            subprocess.run(
                ["git", *words], cwd=repository, check=True, input=given, capture_output=True
            )
            .stdout.decode()
            .strip()
        )

    blob = git("rev-parse", "HEAD:answer.txt")
    inner = git("mktree", given=f"100644 blob {blob}\tconfig\n".encode())
    for name in ("..", ".GIT"):
        held = bytes.fromhex(inner)
        tree = git(
            "hash-object",
            "-t",
            "tree",
            "-w",
            "--stdin",
            "--literally",
            given=b"40000 " + name.encode() + b"\0" + held,
        )
        commit = git("commit-tree", tree, "-m", "x")
        put(
            tmp_path / "tasks" / "one",
            task_dot_toml=f'prompt = "x"\ntest_command = "x"\ncommit = "{commit}"\n',
        )
        (skipped,) = load_tasks(tmp_path / "tasks").skipped
        assert skipped.reason == (
            f"its repository is broken: the path '{name}/config' does not stay inside the "
            f"repository"
        )


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ("", "it has no prompt: write one into one/task.toml, or give --prompt"),
        (
            'prompt = "x"',
            "it has no test command: write one into one/task.toml, or give --test-command",
        ),
        ("prompt = ", "task.toml is no TOML: "),
        ('promt = "x"', "task.toml: promt: Extra inputs are not permitted"),
    ],
)
def test_a_folder_that_cannot_be_a_task_is_left_out_with_the_reason(
    tmp_path: Path, toml: str, reason: str
) -> None:
    loaded = load_tasks(own(tmp_path, toml))
    assert loaded.tasks == ()
    (skipped,) = loaded.skipped
    assert skipped.id == "one"
    assert skipped.reason.startswith(reason)


def test_a_broken_repository_and_an_empty_one_are_named_and_the_others_kept(tmp_path: Path) -> None:
    own(tmp_path)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "around all of them"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    put(tmp_path / "broken", _dot_git__HEAD="nonsense\n")
    (tmp_path / "nothing").mkdir()
    loaded = load_tasks(tmp_path, defaults=TaskDefaults(prompt="Fix it.", test_command="true"))
    assert [task.id for task in loaded.tasks] == ["one"]
    broken, nothing = loaded.skipped
    assert broken.reason.startswith("its repository is broken: fatal: not a git repository: ")
    assert nothing == SkippedTask("nothing", "its repository is empty")


def test_only_some_folders_can_be_asked_for(tmp_path: Path) -> None:
    own(tmp_path)
    assert load_tasks(tmp_path, only=["one"]).tasks[0].id == "one"
    with pytest.raises(ConfigError, match="no folder other here; there are one"):
        load_tasks(tmp_path, only=["other"])


def refused(task: Task) -> str:
    return asyncio.run(check_task(task)).refused


def test_tests_run_with_the_users_own_python_and_not_with_the_one_that_runs_fugu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python"
    program.write_text('#!/bin/sh\necho "$0: No module named pytest" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (task,) = load_tasks(own(tmp_path / "tasks")).tasks
    mine = task.model_copy(update={"solution": {}, "grade_command": "python -m pytest -q"})
    assert refused(mine).endswith(f"`python -m pytest -q` says: {program}: No module named pytest")


def test_tasks_that_are_none_are_refused_and_say_why(tmp_path: Path) -> None:
    (task,) = load_tasks(own(tmp_path)).tasks
    passes = task.model_copy(update={"files": {**task.files, "answer.txt": "right\n"}})
    assert refused(passes) == "its tests pass before any work: there is nothing to solve"
    unsolved = task.model_copy(update={"solution": {"answer.txt": "no\n"}})
    assert refused(unsolved) == "its tests fail with the known solution, too: nothing"
    hangs = task.model_copy(update={"grade_command": "sleep 30", "timeout": 0.3})
    assert (
        refused(hangs)
        == "its tests hang: with the known solution, too, they do not end within 0.3 s"
    )
    cannot = task.model_copy(update={"solution": {}, "grade_command": "no-such-program"})
    assert "its tests cannot be run: `no-such-program` says: " in refused(cannot)
    empty = task.model_copy(update={"solution": {}, "grade_command": "python -m pytest -q"})
    assert "its tests cannot be run: `python -m pytest -q` says: no tests ran" in refused(empty)
    for command, said in (
        ("python -S -m pytest -q", "No module named pytest"),
        ("no-such-program || exit 1", "not found"),
    ):
        assert said in refused(task.model_copy(update={"solution": {}, "grade_command": command}))


def test_the_tasks_that_ship_are_tasks() -> None:
    tasks = load_tasks(EXAMPLE_TASKS).tasks
    assert len(tasks) == 10
    assert [task.id for task in tasks if refused(task)] == []


def test_tests_that_hang_before_any_work_may_be_the_fault_and_are_noted(tmp_path: Path) -> None:
    (task,) = load_tasks(own(tmp_path)).tasks
    hangs = task.model_copy(update={"solution": {}, "grade_command": "sleep 30", "timeout": 0.3})
    checked = asyncio.run(check_task(hangs))
    assert checked.refused == ""
    assert (
        checked.note
        == "its tests do not end within 0.3 s before any work; every try may take as long"
    )


def test_an_answer_must_pass_as_many_tests_as_the_known_solution(task: Task) -> None:
    checked = asyncio.run(check_task(task))
    assert (checked.refused, checked.least) == ("", 2)
    assert list(checked.tests) == ["test_double.py::test_two", "test_hidden.py::test_text"]


def test_a_check_holds_for_the_same_contents_and_the_same_runner(task: Task) -> None:
    checked = asyncio.run(check_task(task))
    assert checked.holds(task)
    assert not checked.holds(task.model_copy(update={"prompt": "Another."}))
    assert not checked.model_copy(update={"runner": "python 3.9.0, pytest 5.0.0"}).holds(task)


def test_files_that_a_pattern_names_must_be_there(tmp_path: Path) -> None:
    toml = (
        'prompt = "x"\ntest_command = "sh tests/check.sh"\ntest_files = ["tests/*.sh", '
        '"checkk.sh"]\n'
    )
    (skipped,) = load_tasks(own(tmp_path, toml)).skipped
    assert (
        skipped.reason == "test_files names 'checkk.sh', and no file of the repository is called so"
    )


def test_tests_are_found_by_their_names() -> None:
    named = [
        *(
            "test_a.py",
            "a_test.go",
            "src/a.test.tsx",
            "a.spec.mjs",
            "shop/tests.py",
            "a_spec.rb",
            "ATest.java",
        ),
        *("tests/data.json", "conftest.py"),
    ]
    assert (
        recognized_tests.tests_among([*named, "a.py", "latest.py", "contest.py", "attestation.ts"])
        == named
    )


@pytest.mark.parametrize("committed", [False, True])
def test_links_that_stay_inside_are_followed_and_one_that_leads_out_is_refused(
    tmp_path: Path, committed: bool
) -> None:
    def added(repository: Path) -> None:
        if committed:
            for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
                subprocess.run(["git", *words], cwd=repository, check=True)

    toml = 'prompt = "Make it right."\ntest_command = "./check.sh"\n'
    inside = own(tmp_path / "inside", toml) / "one" / "repo"
    (inside / "tests" / "check.sh").chmod(0o755)
    (inside / "run").symlink_to("tests/check.sh")
    (inside / "check.sh").symlink_to("run")
    (inside / "more").symlink_to("tests")
    (inside / "gone").symlink_to("nowhere")
    added(inside)
    (task,) = load_tasks(tmp_path / "inside").tasks
    linked = ["check.sh", "more/check.sh", "run", "tests/check.sh"]
    assert sorted(task.files) == sorted(["answer.txt", *linked])
    assert {task.files[name] for name in linked} == {CHECK}
    assert sorted(task.executable) == linked
    out = own(tmp_path / "out", toml) / "one" / "repo"
    put(tmp_path, elsewhere_dot_sh=CHECK)
    (out / "check.sh").symlink_to("../../../elsewhere.sh")
    added(out)
    (skipped,) = load_tasks(tmp_path / "out").skipped
    assert skipped.reason == "its repository has a link to what is outside it: check.sh"


def test_what_the_test_command_names_judges_where_it_looks_so_and_is_noted_where_not(
    tmp_path: Path,
) -> None:
    toml = 'prompt = "x"\ntest_command = "{}"\ntest_files = ["tests/*"]\n'
    one = own(tmp_path, toml.format("sh ./run_tests.sh && sh accept.py")) / "one"
    put(one / "repo", run_tests_dot_sh="true\n", accept_dot_py=CHECK)
    (one / "solution" / "answer.txt").unlink()
    (task,) = load_tasks(tmp_path).tasks
    assert judge_files(task) == {"tests/check.sh", "run_tests.sh"}
    said = (
        "agents may change accept.py, which its test command names; if it is a test, name it in "
        "test_files"
    )
    assert asyncio.run(check_task(task)).note == said
    solved = task.model_copy(update={"solution": {"answer.txt": "right\n"}})
    assert judge_files(solved) == {"tests/check.sh", "run_tests.sh", "accept.py"}
    assert judge_files(task.model_copy(update={"solution": {"accept.py": "true\n"}})) == {
        "tests/check.sh",
        "run_tests.sh",
    }


def test_questions_and_tasks_are_read_from_one_folder(tmp_path: Path) -> None:
    (tmp_path / "maths.jsonl").write_text('{"id": "m-1", "question": "2 + 2?", "answer": "4"}\n')
    (tmp_path / "code.jsonl").write_text(
        '{"id": "c-1", "question": "f", "imports": ["import math"], "tests": ["x"]}\n'
    )
    loaded = load_tasks(tmp_path)
    assert loaded == LoadedTasks((), (), loaded.questions)
    assert [(found.id, found.source, found.kind, found.tests) for found in loaded.problems] == [
        ("c-1", "code", "code", ("import math", "x")),
        ("m-1", "maths", "number", ()),
    ]
    (tmp_path / "bad.jsonl").write_text('{"id": "b-1", "question": "Why?", "answer": "because"}\n')
    with pytest.raises(
        ConfigError,
        match=r"bad\.jsonl:1: a question needs `tests`, or an `answer` that is a number",
    ):
        load_tasks(tmp_path)
