"""Reads tasks and questions from JSONL files and from folders of repositories. Only this module
knows the field names of data sets.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import os
import posixpath
import shutil
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fugu_cli.errors import ConfigError, FuguError
from fugu_cli.safety.git_process import git_command
from fugu_cli.session.recognized_tests import tests_among
from fugu_cli.snapshots.git_repositories import (
    GIT_OPTIONS,
    Repository,
    find_repository,
    user_git,
)
from fugu_cli.training.tasks import LoadedTasks, Question, SkippedTask, Task, questions
from fugu_cli.training.tasks.repository import unwritable_reason

EXAMPLE_TASKS = Path(__file__).parent / "examples.jsonl"
"""Ten small tasks that come with the package."""
LARGEST_REPOSITORY = 64 * 1024 * 1024
"""Bytes of a repository that are taken at most: each try writes them again."""
TASK_FILES = frozenset({"task.toml", "prompt.md", "hidden", "solution"})
BY_PRODUCTS = frozenset(
    {".git", "__pycache__", ".pytest_cache", "node_modules", "target", ".venv", "venv"}
)


class TaskDefaults(BaseModel):
    """Defaults for repositories that do not set these fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str = ""
    test_command: str = ""
    timeout_s: Annotated[float, Field(gt=0)] = 120.0


class _Description(BaseModel):
    """A task.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str = ""
    test_command: str = ""
    grade_command: str = ""
    timeout_s: Annotated[float | None, Field(gt=0)] = None
    test_files: tuple[str, ...] = ()
    commit: str = "HEAD"
    language: str = ""
    kind: Literal["fix", "implement"] = "fix"
    needs: tuple[str, ...] = ()


class _Unusable(FuguError):
    """This folder gives no task."""


@dataclass(frozen=True)
class _Contents:
    files: Mapping[str, str]
    binaries: Mapping[str, bytes]
    executable: tuple[str, ...]


def load_repositories(path: Path, only: Sequence[str], defaults: TaskDefaults) -> LoadedTasks:
    """Return a task for each folder in `path`, or for those named in `only`. Raises ConfigError if
    one is missing or there is none.
    """
    folders = sorted(
        folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    )
    if not folders:
        raise ConfigError(
            f"{path}: no task files here",
            hint="give a folder of *.jsonl files, or one of repositories",
        )
    names = [folder.name for folder in folders]
    if unknown := [name for name in only if name not in names]:
        raise ConfigError(f"{path}: no folder {unknown[0]} here; there are {', '.join(names)}")
    tasks: list[Task] = []
    skipped: list[SkippedTask] = []
    for folder in folders:
        if only and folder.name not in only:
            continue
        try:
            tasks.append(_repository_task(folder, path.name, defaults))
        except _Unusable as error:
            skipped.append(SkippedTask(folder.name, str(error)))
    return LoadedTasks(tuple(tasks), tuple(skipped))


def _repository_task(folder: Path, source: str, defaults: TaskDefaults) -> Task:
    description = _description(folder)
    prompt = description.prompt or _text(folder / "prompt.md") or defaults.prompt
    command = description.test_command or defaults.test_command
    if not prompt.strip() or not command.strip():
        what = "prompt" if not prompt.strip() else "test command"
        raise _Unusable(
            f"it has no {what}: write one into {folder.name}/task.toml, or give "
            f"--{what.replace(' ', '-')}"
        )
    repository = folder / "repo" if (folder / "repo").is_dir() else folder
    left_out = TASK_FILES if repository == folder else frozenset[str]()
    if (repository / ".git").exists():
        contents = _committed_files(repository, description.commit, left_out)
    else:
        contents = _files_on_disk(repository, left_out)
    if not contents.files and not contents.binaries:
        raise _Unusable("its repository is empty")
    grading = description.grade_command or command
    test_files = tuple(tests_among(contents.files))
    if description.test_files:
        test_files = _matching_files(contents.files, description.test_files)
    needs = description.needs
    if "-m pytest" in grading and "pytest" not in needs:
        needs = (*needs, "pytest")
    return Task(
        id=folder.name,
        source=source,
        language=description.language,
        kind=description.kind,
        prompt=prompt.strip(),
        files=contents.files,
        binaries=contents.binaries,
        executable=contents.executable,
        hidden=_files_on_disk(folder / "hidden").files,
        solution=_files_on_disk(folder / "solution").files,
        test_files=test_files,
        test_command=command,
        grade_command=grading,
        timeout=description.timeout_s or defaults.timeout_s,
        needs=needs,
    )


def _description(folder: Path) -> _Description:
    text = _text(folder / "task.toml")
    try:
        return _Description.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _Unusable(f"task.toml is no TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _Unusable(
            f"task.toml: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
        ) from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise _Unusable(f"{path.name} cannot be read: {error}") from error


def _matching_files(files: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in files):
            raise _Unusable(
                f"test_files names {pattern!r}, and no file of the repository is called so"
            )
    return tuple(name for name in files if any(fnmatch(name, pattern) for pattern in patterns))


def _committed_files(repository: Path, commit: str, left_out: Collection[str] = ()) -> _Contents:
    """Return the bytes that are committed, without the names in `left_out` at its top. No filter of
    the repository runs: `git archive` obeys `export-ignore`, by which many repositories leave out
    their tests.
    """
    contents: dict[str, bytes] = {}
    executable = []
    links = {}
    for mode, name, content in _committed_blobs(repository, commit):
        if name.partition("/")[0] in left_out:
            continue
        if mode == "120000":
            links[name] = posixpath.normpath(
                posixpath.join(posixpath.dirname(name), os.fsdecode(content))
            )
        else:
            contents[name] = content
            executable += [name] if mode == "100755" else []
    return _texts_and_binaries(*_resolve_links(contents, executable, links))


def _committed_blobs(repository: Path, commit: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield mode, path and content of each file and link. Raises _Unusable if git fails."""
    git_repository = find_repository(repository.resolve())
    if git_repository is None or git_repository.top != repository.resolve():
        raise _Unusable("its repository is broken: .git is no git folder")
    listed = _git_output(
        git_repository, "ls-tree", "-r", "-l", "-z", "--full-tree", "--end-of-options", commit
    )
    heads: list[list[str]] = []
    paths: list[str] = []
    for entry in listed.split(b"\0")[:-1]:
        head, _, name_bytes = entry.partition(b"\t")
        if not head.startswith(b"160000"):  # a submodule
            heads.append(head.decode().split())
            paths.append(os.fsdecode(name_bytes))
    try:
        _check_size(sum(int(size) for *_, size in heads))
        ids = "".join(f"{name}\n" for _, _, name, _ in heads).encode()
        blobs = io.BytesIO(_git_output(git_repository, "cat-file", "--batch", standard_input=ids))
        for (mode, *_), path in zip(heads, paths, strict=True):
            size = int(blobs.readline().split()[-1])
            yield mode, _inside(path), blobs.read(size + 1)[:-1]
    except ValueError as error:  # git writes a word where an object's size would stand
        raise _Unusable(f"its repository is broken: {error}") from error


OTHER_PLACES = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_PARAMETERS": "",
}
"""Variables that would lead git elsewhere. GitPython adds to the process's variables and removes
none, so these are set to nothing.
"""


def _git_output(repository: Repository, *arguments: str, standard_input: bytes = b"") -> bytes:
    """Run git on a user's repository by GitPython and return its output.

    Its plain calls read every kind of repository; its repository class knows neither SHA-256 ids
    nor reftables. Raises _Unusable if git fails, UsageError if it is missing.
    """
    git = user_git(repository, repository.top)
    words, variables = git_command(
        repository.top, *GIT_OPTIONS, *arguments, environment=git.environment()
    )
    folders = {
        "GIT_COMMON_DIR": str(repository.common),
        "GIT_OBJECT_DIRECTORY": str(repository.objects),
    }
    with tempfile.TemporaryFile() as source:
        source.write(standard_input)
        source.seek(0)
        code, stdout, errors = (
            _gitpython(words[0])
            .Git(repository.top)
            .execute(
                words,
                istream=source,
                env={**variables, **OTHER_PLACES, **folders},
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
            )
        )
    if code:
        reason = (errors.strip() or f"git ended with exit code {code}").splitlines()[-1]
        raise _Unusable(f"its repository is broken: {reason}")
    output: bytes = stdout
    return output


def _gitpython(program: str) -> ModuleType:
    """Import GitPython so that it uses the git `program`. On import it runs a git, by default the
    first on PATH.
    """
    name = "GIT_PYTHON_GIT_EXECUTABLE"
    before = os.environ.get(name)
    os.environ[name] = program
    try:
        library = importlib.import_module("git")
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    if program != library.Git.GIT_PYTHON_GIT_EXECUTABLE:
        library.refresh(program)
    return library


def _files_on_disk(folder: Path, left_out: Collection[str] = ()) -> _Contents:
    """Return the contents of the folder, without the names in `left_out` at its top."""
    contents: dict[str, bytes] = {}
    executable = []
    links = {}
    try:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
            below = path.relative_to(folder)
            if BY_PRODUCTS.intersection(below.parts) or below.parts[0] in left_out:
                continue
            if path.is_symlink():
                links[below.as_posix()] = Path(
                    os.path.relpath(path.resolve(), folder.resolve())
                ).as_posix()
            elif path.is_file():
                contents[below.as_posix()] = path.read_bytes()
                executable += [below.as_posix()] if path.stat().st_mode & 0o100 else []
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise _Unusable(f"its repository is broken: {error}") from error
    return _texts_and_binaries(*_resolve_links(contents, executable, links))


def _resolve_links(
    contents: Mapping[str, bytes], executable: Sequence[str], links: Mapping[str, str]
) -> tuple[Mapping[str, bytes], Sequence[str]]:
    """Return the contents with a copy of the target of each link: a file, or the files of a folder.
    A link to nothing is left out. Raise _Unusable for one that leads out of the repository.
    """
    resolved, marked = dict(contents), list(executable)
    for link in links:
        target = links[link]
        for _ in links:  # a link may lead to a link
            target = links.get(target, target)
        if target.startswith(("/", "..")):
            raise _Unusable(f"its repository has a link to what is outside it: {link}")
        copies = {
            name: link + name.removeprefix(target)
            for name in contents
            if name == target or name.startswith(f"{target}/")
        }
        resolved |= {copy: contents[name] for name, copy in copies.items()}
        marked += [copies[name] for name in executable if name in copies]
    return resolved, marked


def _texts_and_binaries(contents: Mapping[str, bytes], executable: Sequence[str]) -> _Contents:
    """Return the contents, texts apart from binary files. Raises _Unusable if the repository is too
    large to be written for every attempt.
    """
    _check_size(sum(len(content) for content in contents.values()))
    files: dict[str, str] = {}
    binaries: dict[str, bytes] = {}
    for name, content in contents.items():
        try:
            files[name] = content.decode("utf-8")
        except UnicodeDecodeError:
            binaries[name] = content
    return _Contents(files, binaries, tuple(executable))


def _check_size(size: int) -> None:
    if size > LARGEST_REPOSITORY:
        raise _Unusable(
            f"its repository is too large: {size / 2**20:.0f} MiB, "
            f"{LARGEST_REPOSITORY / 2**20:.0f} can be taken"
        )


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if (
        not parts
        or path.startswith("/")
        or "\\" in path
        or ".." in parts
        or ".git" in map(str.lower, parts)
    ):
        raise ValueError(f"the path {path!r} does not stay inside the repository")
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]
LineModel = TypeVar("LineModel", bound=BaseModel)


class _Row(BaseModel):
    """A line as the data sets write it; fields that only say where a task is from are let through
    unread.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    source: str = ""
    language: str
    kind: Literal["fix", "implement"]
    instruction: str
    test_command: Annotated[str, Field(min_length=1)]
    grade_command: str = ""
    timeout_s: Annotated[float, Field(gt=0)]
    test_files: tuple[RelativePath, ...] = ()
    needs: tuple[str, ...] = ()
    repo: Annotated[dict[RelativePath, str], Field(min_length=1)]
    hidden: dict[RelativePath, str] = {}
    solution: dict[RelativePath, str] = {}


class _Question(BaseModel):
    """A question with a number for its answer, or with the lines of Python that its code must
    pass.
    """

    model_config = ConfigDict(extra="ignore")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    question: Annotated[str, Field(pattern=r"\S")]
    answer: str | int | float | None = None
    imports: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def load_tasks(
    path: Path, *, only: Sequence[str] = (), defaults: TaskDefaults | None = None
) -> LoadedTasks:
    """Return the tasks of a file, or of every `*.jsonl` in a folder, in the order of their names.

    A folder without such files is read as a folder of repositories (`load_repositories`), with
    `defaults` for what they do not say themselves. `only` selects files, or repositories, by their
    name without the ending.

    Raises ConfigError with file and line for a line that is no task, for a repeated id, for a name
    in `only` that does not exist, and for a path with nothing to read.
    """
    if path.is_dir() and not any(path.glob("*.jsonl")):
        return _runnable(load_repositories(path, only, defaults or TaskDefaults()))
    tasks: list[Task] = []
    questions: list[Question] = []
    places_by_id: dict[str, str] = {}
    for file in _files(path, only):
        for where, line in _lines(file):
            problem = _parse(where, line, file.stem)
            if problem.id in places_by_id:
                raise ConfigError(
                    f"{where}: the id {problem.id!r} was given before, in {places_by_id[problem.id]}"
                )
            places_by_id[problem.id] = where
            if isinstance(problem, Question):
                questions.append(problem)
            else:
                tasks.append(problem)
    return _runnable(LoadedTasks(tuple(tasks), (), tuple(questions)))


def _runnable(loaded: LoadedTasks) -> LoadedTasks:
    """Leave out the tasks without a request, those that no disk can hold, and those that need
    something this machine lacks.
    """
    judged = [(task, _unrunnable(task)) for task in loaded.tasks]
    skipped = [SkippedTask(task.id, why) for task, why in judged if why]
    return LoadedTasks(
        tuple(task for task, why in judged if not why),
        (*loaded.skipped, *skipped),
        loaded.questions,
    )


def _unrunnable(task: Task) -> str:
    missing = [need for need in task.needs if not _present(need)]
    if missing:
        return f"needs {', '.join(missing)}, not found on this machine"
    return "it has no prompt" if not task.prompt.strip() else unwritable_reason(task)


def _files(path: Path, only: Sequence[str]) -> list[Path]:
    if path.is_file():
        if unknown := [name for name in only if name != path.stem]:
            raise ConfigError(f"{path}: there is no {unknown[0]} in it; it is {path.stem}")
        return [path]
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise ConfigError(
            f"{path}: no task files here",
            hint="give a folder of *.jsonl files, or one of repositories",
        )
    names = {file.stem for file in files}
    if unknown := [name for name in only if name not in names]:
        raise ConfigError(
            f"{path}: no {unknown[0]}.jsonl here; there are {', '.join(sorted(names))}"
        )
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
        return Question(
            id=row.id, source=source, kind="code", prompt=prompt, question=row.question, tests=tests
        )
    if row.answer is None or questions.last_number(str(row.answer)) is None:
        raise ConfigError(f"{where}: a question needs `tests`, or an `answer` that is a number")
    prompt = questions.number_prompt(row.question)
    return Question(
        id=row.id,
        source=source,
        kind="number",
        prompt=prompt,
        question=row.question,
        answer=str(row.answer),
    )


def _validated(model: type[LineModel], where: str, fields: object) -> LineModel:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the line"
        raise ConfigError(f"{where}: {key}: {first['msg']}") from error


def _needs(row: _Row) -> tuple[str, ...]:
    """Return the needs that the row names, and pytest if its commands run it, since not every
    environment with fugu has it.
    """
    runs_pytest = "-m pytest" in f"{row.test_command} {row.grade_command}"
    return row.needs + (("pytest",) if runs_pytest and "pytest" not in row.needs else ())


def _present(need: str) -> bool:
    return shutil.which(need) is not None or (
        need.isidentifier() and importlib.util.find_spec(need) is not None
    )
