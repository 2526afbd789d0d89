"""Tasks: what is asked, in which repository, and when it counts as solved. Values only. A task
knows nothing of agents, logs or coordinators.

`loading.py` reads them from files and folders, `repository.py` puts one on the disk, `grading.py`
judges what an agent left there, `questions.py` an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

from fugu_cli.messages import Value


class Task(Value):
    """One repository with a request. Paths are relative, with forward slashes; contents are text.

    `files` is what the agent finds, with `binaries` for what is no text; `hidden` is laid over it
    for grading only, `solution` is a known answer (files written over `files`). `test_files` are
    put back before grading. `executable` names files to be marked so. `needs` are the modules or
    programs without which the task cannot run here.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    id: str
    source: str
    language: str
    kind: Literal["fix", "implement"]
    prompt: str
    files: Mapping[str, str]
    hidden: Mapping[str, str] = {}
    solution: Mapping[str, str] = {}
    test_files: tuple[str, ...] = ()
    test_command: str
    grade_command: str
    timeout: float
    needs: tuple[str, ...] = ()
    binaries: Mapping[str, bytes] = {}
    executable: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that are not tests, in a fixed order: a solution may change them."""
        return tuple(sorted(set(self.files) - set(self.test_files)))


class Question(Value):
    """A question whose answer can be checked. `prompt` is all that is asked.

    `question` is it without the words about its form. `number`: the answer's last number is
    compared with `answer`. `code`: the answer's Python must pass `tests`, lines of it. `gym`: the
    generator of `dataset` scores it by `entry`, its own JSON.
    """

    id: str
    source: str
    kind: Literal["number", "code", "gym"]
    prompt: str
    question: str = ""
    answer: str = ""
    tests: tuple[str, ...] = ()
    dataset: str = ""
    entry: str = ""
    timeout: float = 60.0


Problem = Task | Question
"""A task or question that a pool can be given and judged by."""


@dataclass(frozen=True)
class SkippedTask:
    """A line that gave no task, or a task that cannot run here, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class LoadedTasks:
    """The content of a folder in the files' order: tasks and questions to run, and what was left
    out.
    """

    tasks: tuple[Task, ...]
    skipped: tuple[SkippedTask, ...]
    questions: tuple[Question, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Tasks, then questions."""
        return (*self.tasks, *self.questions)


@dataclass(frozen=True)
class Grade:
    """Solved or not; `output` is what the grading command printed (clipped), `seconds` how long it
    took.

    `passed` and `failed` count tests where the runner says so (`failed`: cargo and node), `tests`
    are those a recorder saw (run_recorder.py), each with the mark of its code; `code` is the
    command's exit code, None when its time was up.
    """

    ok: bool
    output: str
    seconds: float
    passed: int = 0
    failed: int = 0
    tests: Mapping[str, str] = field(default_factory=dict)
    code: int | None = None
    timed_out: bool = False


class ExpectedTests(Value):
    """The known tests of a task before anybody works.

    `least` is how many an answer must pass, 0 if unknown. `tests` are the tests found, with a
    digest of their code ("" if the code may differ).
    """

    least: int = 0
    tests: Mapping[str, str] = {}
