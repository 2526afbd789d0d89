"""Tasks: a request, a repository, and the tests that decide whether it is solved. Values only.

`loading.py` reads tasks from files and folders, `repository.py` writes one to the disk,
`grading.py` judges an agent's files, `questions.py` an answer.
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
    """A question whose answer can be checked.

    `prompt` is the whole text, `question` the text without the words about the form of the answer.
    The kind says how an answer is judged: `number` compares its last number with `answer`; `code`
    runs its Python against `tests`, lines of Python; `gym` lets the generator of `dataset` score it
    by `entry`, its own JSON.
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
    """A line that holds no task, or a task that cannot run here, and the reason."""

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
    """The result of grading.

    `output` is what the grading command printed (clipped), `seconds` its time, `code` its exit code
    (None if its time was up). `passed` and `failed` count tests if the runner prints counts
    (`failed`: cargo and node only). `tests` are those that a recorder saw (run_recorder.py), each
    with a digest of its code.
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
