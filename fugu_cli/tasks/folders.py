"""Reads tasks from a folder of repositories: one folder each, with a prompt and a test command.

    TASKS/
      rounding/             the id of the task
        task.toml           prompt, test_command, and what else differs (`Defaults` says what is taken otherwise)
        prompt.md           in place of `prompt`
        repo/               the repository; without this folder the task's own folder is it
        hidden/             laid over it for grading only
        solution/           a known answer, laid over it to check the task

A git repository is taken as its commit stands (`commit`, HEAD), without its history: what came later is not to be found
in it. A folder that cannot be a task is left out with the reason; the others are kept. Stands beside loading.py.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fugu_cli import scratch
from fugu_cli.errors import ConfigError, FuguError
from fugu_cli.tasks import Loaded, Skipped, Task
from fugu_cli.test_paths import tests_among

LARGEST = 64 * 1024 * 1024
"""Bytes of a repository that are taken at most: each try writes them anew."""
OWN = frozenset({"task.toml", "prompt.md", "hidden", "solution"})
BY_PRODUCTS = frozenset({".git", "__pycache__", ".pytest_cache", "node_modules", "target", ".venv", "venv"})


class Defaults(BaseModel):
    """What holds for every repository that says nothing else."""

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


def load(path: Path, only: Sequence[str], defaults: Defaults) -> Loaded:
    """A task for every folder in `path`. Raises ConfigError where there is none, or none called as in `only`."""
    folders = sorted(folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith("."))
    if not folders:
        raise ConfigError(f"{path}: no task files here", hint="give a folder of *.jsonl files, or one of repositories")
    names = [folder.name for folder in folders]
    if unknown := [name for name in only if name not in names]:
        raise ConfigError(f"{path}: no folder {unknown[0]} here; there are {', '.join(names)}")
    tasks: list[Task] = []
    skipped: list[Skipped] = []
    for folder in folders:
        if only and folder.name not in only:
            continue
        try:
            tasks.append(_task(folder, path.name, defaults))
        except _Unusable as error:
            skipped.append(Skipped(folder.name, str(error)))
    return Loaded(tuple(tasks), tuple(skipped))


def _task(folder: Path, source: str, defaults: Defaults) -> Task:
    said = _description(folder)
    prompt = said.prompt or _text(folder / "prompt.md") or defaults.prompt
    command = said.test_command or defaults.test_command
    if not prompt.strip() or not command.strip():
        what = "prompt" if not prompt.strip() else "test command"
        raise _Unusable(f"it has no {what}: write one into {folder.name}/task.toml, or give --{what.replace(' ', '-')}")
    repository = folder / "repo" if (folder / "repo").is_dir() else folder
    out = OWN if repository == folder else frozenset[str]()
    found = _committed(repository, said.commit, out) if (repository / ".git").exists() else _walked(repository, out)
    if not found.files and not found.binaries:
        raise _Unusable("its repository is empty")
    grading = said.grade_command or command
    return Task(
        id=folder.name,
        source=source,
        language=said.language,
        kind=said.kind,
        prompt=prompt.strip(),
        files=found.files,
        binaries=found.binaries,
        executable=found.executable,
        hidden=_walked(folder / "hidden").files,
        solution=_walked(folder / "solution").files,
        test_files=_named(found.files, said.test_files) if said.test_files else tuple(tests_among(found.files)),
        test_command=command,
        grade_command=grading,
        timeout=said.timeout_s or defaults.timeout_s,
        needs=said.needs + (("pytest",) if "-m pytest" in grading and "pytest" not in said.needs else ()),
    )


def _description(folder: Path) -> _Description:
    text = _text(folder / "task.toml")
    try:
        return _Description.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _Unusable(f"task.toml is no TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise _Unusable(f"task.toml: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise _Unusable(f"{path.name} cannot be read: {error}") from error


def _named(files: Iterable[str], patterns: Sequence[str]) -> tuple[str, ...]:
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in files):
            raise _Unusable(f"test_files names {pattern!r}, and no file of the repository is called so")
    return tuple(name for name in files if any(fnmatch(name, pattern) for pattern in patterns))


def _committed(repository: Path, commit: str, out: Collection[str] = ()) -> _Contents:
    """As a checkout has it, without what is `out` at its top, in a folder and an index of our own: `git archive` obeys
    `export-ignore`, by which many repositories leave out their tests."""
    contents: dict[str, bytes] = {}
    executable = []
    links = {}
    with scratch.folder("commit") as temporary:
        tree, index = temporary / "tree", temporary / "index"
        _git(repository, index, "read-tree", commit)
        _git(repository, index, "checkout-index", "--all", "--quiet", f"--prefix={tree}/")
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            if name.partition("/")[0] in out:
                continue
            if path.is_symlink():
                links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), path.readlink()))
            elif path.is_file():
                contents[name] = path.read_bytes()
                executable += [name] if path.stat().st_mode & 0o100 else []
    return _sorted(*_followed(contents, executable, links))


def _git(repository: Path, index: Path, *words: str) -> None:
    """Raises _Unusable where git says no. No repository around this one is meant."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_INDEX_FILE": str(index), "GIT_CEILING_DIRECTORIES": str(repository.resolve().parent)}
    done = subprocess.run(["git", *words], cwd=repository, env=environment, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _Unusable(f"its repository is broken: git {' '.join(words[:2])}: {said[-1] if said else 'failed'}")


def _walked(folder: Path, out: Collection[str] = ()) -> _Contents:
    """What stands there, without what is `out` at its top."""
    contents: dict[str, bytes] = {}
    executable = []
    links = {}
    try:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
            below = path.relative_to(folder)
            if BY_PRODUCTS.intersection(below.parts) or below.parts[0] in out:
                continue
            if path.is_symlink():
                links[below.as_posix()] = Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
            elif path.is_file():
                contents[below.as_posix()] = path.read_bytes()
                executable += [below.as_posix()] if path.stat().st_mode & 0o100 else []
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise _Unusable(f"its repository is broken: {error}") from error
    return _sorted(*_followed(contents, executable, links))


def _followed(
    contents: Mapping[str, bytes], executable: Sequence[str], links: Mapping[str, str]
) -> tuple[Mapping[str, bytes], Sequence[str]]:
    """With a copy of what each link leads to: a file, or the files of a folder. Raises _Unusable for one that leads out
    of the repository; one that leads to nothing in it is left out."""
    found, marked = dict(contents), list(executable)
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
        found |= {copy: contents[name] for name, copy in copies.items()}
        marked += [copies[name] for name in executable if name in copies]
    return found, marked


def _sorted(contents: Mapping[str, bytes], executable: Sequence[str]) -> _Contents:
    """Texts and what is none. Raises _Unusable for a repository that is too large to be written for every try."""
    size = sum(len(content) for content in contents.values())
    if size > LARGEST:
        raise _Unusable(f"its repository is too large: {size / 2**20:.0f} MiB, {LARGEST / 2**20:.0f} can be taken")
    files: dict[str, str] = {}
    binaries: dict[str, bytes] = {}
    for name, content in contents.items():
        try:
            files[name] = content.decode("utf-8")
        except UnicodeDecodeError:
            binaries[name] = content
    return _Contents(files, binaries, tuple(executable))
