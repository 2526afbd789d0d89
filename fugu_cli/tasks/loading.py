"""Reads tasks and questions from `*.jsonl` files: one JSON object a line, parsed once, here.

Stands at the edge: outside it are the data sets' field names, inside it `Task`. It must not know what is done with a
task. A line that cannot be a task is the file's fault and ends the loading with its file and line; a task that
cannot run on this machine is left out with the reason.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fugu_cli.errors import ConfigError
from fugu_cli.tasks import Loaded, Question, Skipped, Task, folders, questions
from fugu_cli.tasks.repository import unlayable
from fugu_cli.test_paths import tests_among


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or ".." in parts or parts[0] == ".git":
        raise ValueError(f"the path {path!r} does not stay inside the repository")
    return path


Inside = Annotated[str, AfterValidator(_inside)]
Line = TypeVar("Line", bound=BaseModel)


class _Row(BaseModel):
    """A line as the data sets write it; fields that only say where a task is from are let through unread."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    source: str = ""
    language: str
    kind: Literal["fix", "implement"]
    instruction: str
    test_command: Annotated[str, Field(min_length=1)]
    grade_command: str = ""
    timeout_s: Annotated[float, Field(gt=0)]
    test_files: tuple[Inside, ...] = ()
    needs: tuple[str, ...] = ()
    repo: Annotated[dict[Inside, str], Field(min_length=1)]
    hidden: dict[Inside, str] = {}
    solution: dict[Inside, str] = {}


class _Question(BaseModel):
    """A question with a number for its answer, or with the lines of Python that its code must pass."""

    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    question: Annotated[str, Field(pattern=r"\S")]
    answer: str | int | float | None = None
    imports: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def load(path: Path, *, only: Sequence[str] = (), defaults: folders.Defaults | None = None) -> Loaded:
    """The tasks of one file, or of every `*.jsonl` of a folder in the order of their names; of a folder without any,
    the repositories in it (`folders.load`, with `defaults` for what they do not say themselves).

    `only` keeps the files (of repositories: the folders) whose name without the ending is in it. Raises ConfigError
    naming file and line for a line that is no task, for an id given twice, for a name in `only` that is not there, and
    for a path with nothing to read.
    """
    if path.is_dir() and not any(path.glob("*.jsonl")):
        return _runnable(folders.load(path, only, defaults or folders.Defaults()))
    tasks: list[Task] = []
    asked: list[Question] = []
    seen: dict[str, str] = {}
    for file in _files(path, only):
        for where, line in _lines(file):
            found = _parse(where, line, file.stem)
            if found.id in seen:
                raise ConfigError(f"{where}: the id {found.id!r} was given before, in {seen[found.id]}")
            seen[found.id] = where
            if isinstance(found, Question):
                asked.append(found)
            else:
                tasks.append(found)
    return _runnable(Loaded(tuple(tasks), (), tuple(asked)))


def _runnable(loaded: Loaded) -> Loaded:
    """Without the tasks that ask nothing, that no disk can hold, or that need what is not on this machine."""
    found = [(task, _unrunnable(task)) for task in loaded.tasks]
    skipped = [Skipped(task.id, why) for task, why in found if why]
    return Loaded(tuple(task for task, why in found if not why), (*loaded.skipped, *skipped), loaded.questions)


def _unrunnable(task: Task) -> str:
    missing = [need for need in task.needs if not _present(need)]
    if missing:
        return f"needs {', '.join(missing)}, not found on this machine"
    return "it has no prompt" if not task.prompt.strip() else unlayable(task)


def _files(path: Path, only: Sequence[str]) -> list[Path]:
    if path.is_file():
        if unknown := [name for name in only if name != path.stem]:
            raise ConfigError(f"{path}: there is no {unknown[0]} in it; it is {path.stem}")
        return [path]
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{path}: no task files here", hint="give a folder of *.jsonl files, or one of repositories")
    names = {file.stem for file in files}
    if unknown := [name for name in only if name not in names]:
        raise ConfigError(f"{path}: no {unknown[0]}.jsonl here; there are {', '.join(sorted(names))}")
    return [file for file in files if not only or file.stem in only]


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{file}:{number}", line


def _parse(where: str, line: str, source: str) -> Task | Question:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if isinstance(fields, dict) and "question" in fields:
        return _question(where, _validated(_Question, where, fields), source)
    row = _validated(_Row, where, fields)
    for name in row.test_files:
        if name not in row.repo:
            raise ConfigError(f"{where}: test_files names {name!r}, which is not in repo")
    return Task(
        id=row.id,
        source=row.source,
        language=row.language,
        kind=row.kind,
        prompt=row.instruction,
        files=row.repo,
        hidden=row.hidden,
        solution=row.solution,
        test_files=row.test_files or tuple(tests_among(row.repo)),
        test_command=row.test_command,
        grade_command=row.grade_command or row.test_command,
        timeout=row.timeout_s,
        needs=_needs(row),
    )


def _question(where: str, row: _Question, source: str) -> Question:
    if row.tests:
        prompt = questions.code_prompt(row.question, row.tests)
        tests = (*row.imports, *row.tests)
        return Question(id=row.id, source=source, kind="code", prompt=prompt, question=row.question, tests=tests)
    if row.answer is None or questions.number(str(row.answer)) is None:
        raise ConfigError(f"{where}: a question needs `tests`, or an `answer` that is a number")
    prompt = questions.number_prompt(row.question)
    return Question(
        id=row.id, source=source, kind="number", prompt=prompt, question=row.question, answer=str(row.answer)
    )


def _validated(model: type[Line], where: str, fields: object) -> Line:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the line"
        raise ConfigError(f"{where}: {key}: {first['msg']}") from error


def _needs(row: _Row) -> tuple[str, ...]:
    """The row's own, and pytest where the commands run it: it is not in every environment that runs fugu."""
    runs_pytest = "-m pytest" in f"{row.test_command} {row.grade_command}"
    return row.needs + (("pytest",) if runs_pytest and "pytest" not in row.needs else ())


def _present(need: str) -> bool:
    return shutil.which(need) is not None or (need.isidentifier() and importlib.util.find_spec(need) is not None)
