"""Finds tests of changed files that the repository's test command does not run: those of a part of
the repository with its own manifest. Returns nothing if the command may run them (make, a script).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from fugu_cli.testing.build_tools import build_tool_command
from fugu_cli.testing.javascript_tests import test_script
from fugu_cli.testing.manifests import file_names, read_text
from fugu_cli.testing.runner_commands import recognise_runner
from fugu_cli.testing.runner_discovery import has_python_tests

_PROGRAMS_OF_LANGUAGE = {
    "Python": "pytest unittest doctest manage.py tox nox hatch poe",
    "JavaScript": "node npm npx pnpm yarn bun bunx deno jest vitest mocha ava jasmine tap tape",
    "Rust": "cargo",
    "Go": "go",
    "JVM": "mvn mvnw gradle gradlew sbt lein",
    ".NET": "dotnet",
    "Ruby": "rspec rake rails ruby",
    "PHP": "composer phpunit pest artisan",
    "Elixir": "mix",
    "Erlang": "rebar3",
    "Swift": "swift",
    "Haskell": "stack cabal",
    "OCaml": "dune",
    "Zig": "zig",
    "Gleam": "gleam",
}
_LANGUAGE_OF_PROGRAM = {
    program: language
    for language, programs in _PROGRAMS_OF_LANGUAGE.items()
    for program in programs.split()
}
_SUFFIXES_OF_LANGUAGE = {
    "Python": ".py .pyi",
    "JavaScript": ".js .jsx .ts .tsx .mjs .cjs .mts .cts .vue .svelte",
    "Rust": ".rs",
    "Go": ".go",
    "JVM": ".java .kt .kts .groovy .scala .clj",
    ".NET": ".cs .fs .vb",
    "Ruby": ".rb",
    "PHP": ".php",
    "Elixir": ".ex .exs",
    "Erlang": ".erl",
    "Swift": ".swift",
    "Haskell": ".hs",
    "OCaml": ".ml .mli",
    "Zig": ".zig",
    "Gleam": ".gleam",
}
_LANGUAGE_OF_SUFFIX = {
    suffix: language
    for language, suffixes in _SUFFIXES_OF_LANGUAGE.items()
    for suffix in suffixes.split()
}
_PROSE_SUFFIXES = frozenset({".md", ".rst", ".txt", ".adoc"})
_RUNS_ANYTHING = re.compile(
    r"\b(?:turbo|nx|lerna|moon|rush|make|just|bazel|wireit|concurrently|npm-run-all|run-[sp]|sh"
    r"|bash|docker)\b|[;&|]"
)
"""Words in the test script of a package.json that may run the tests of other languages."""
_MANIFESTS_OF_LANGUAGE = {
    "Python": "pyproject.toml setup.py setup.cfg",
    "JavaScript": "package.json deno.json deno.jsonc",
    "Rust": "Cargo.toml",
    "Go": "go.mod",
    "JVM": "pom.xml build.gradle build.gradle.kts build.sbt project.clj",
    ".NET": "*.csproj *.fsproj *.vbproj",
    "Ruby": "Gemfile *.gemspec",
    "PHP": "composer.json",
    "Elixir": "mix.exs",
    "Erlang": "rebar.config",
    "Swift": "Package.swift",
    "Haskell": "*.cabal",
    "OCaml": "dune-project",
    "Zig": "build.zig",
    "Gleam": "gleam.toml",
}
"""The files that make a folder a part of its own."""
_LINKING_FILES = (
    "*.sln",
    "*.slnx",
    "settings.gradle",
    "settings.gradle.kts",
    "cabal.project",
    "stack.yaml",
    "Rakefile",
    "pnpm-workspace.yaml",
    ".mocharc.*",
    "pytest.ini",
    "tox.ini",
)
"""Further files by which a test command may reach the parts below its folder."""
_ROOT = PurePosixPath(".")


@dataclass(frozen=True)
class _Part:
    """A folder, and the command that runs its tests in it."""

    folder: PurePosixPath
    test_command: str


def untested_commands(
    root: Path, changed: Iterable[str], command: str | None, ran: Sequence[str]
) -> tuple[str, ...]:
    """Return the command lines of tests that belong to `changed` files and were not run.

    `command` is the test command that ran in `root`, None if none is known. `ran` are the shell
    commands that agents ran, without those that only read. Paths are relative to `root`.
    """
    tested_languages = _languages(command or "")
    if command is not None and (not tested_languages or _may_run_anything(root, command)):
        return ()
    lines: dict[str, None] = {}
    for path in map(PurePosixPath, changed):
        if path.is_absolute() or ".." in path.parts or path.suffix in _PROSE_SUFFIXES:
            continue
        language = _LANGUAGE_OF_SUFFIX.get(path.suffix, "")
        is_tested = language in tested_languages
        part = _part_of(root, path, language, needs_manifest=is_tested)
        if part is None:
            continue
        if is_tested:
            may_be_tested = _may_reach(root, command or "", part.folder, language)
        else:
            may_be_tested = not tested_languages.isdisjoint(_languages(part.test_command))
        if may_be_tested or _was_run(part, ran):
            continue
        line = part.test_command
        if part.folder != _ROOT:
            line = f"cd {shlex.quote(str(part.folder))} && {line}"
        lines[line] = None
    return tuple(lines)


def _part_of(
    root: Path, path: PurePosixPath, language: str, *, needs_manifest: bool
) -> _Part | None:
    """Return the nearest part above a file that has tests of its language. For a file of no
    language, the tests of any count, except those of the whole repository.
    """
    for folder in path.parents:
        command = _tests_of(root / folder, language)
        if command is None or (not language and folder == _ROOT):
            continue
        if not needs_manifest or _has_manifest(root / folder, language):
            return _Part(folder, command)
    return None


def _tests_of(folder: Path, language: str) -> str | None:
    """Return the command for the tests of a language in a folder; "" stands for any language."""
    if language == "Python":
        return "python -m pytest" if has_python_tests(folder) else None
    command = build_tool_command(folder)
    if command is None or not language:
        return command
    languages = _languages(command)
    return command if language in languages or not languages else None


def _has_manifest(folder: Path, language: str) -> bool:
    patterns = _MANIFESTS_OF_LANGUAGE.get(language, "").split()
    return any(fnmatch(name, pattern) for name in file_names(folder) for pattern in patterns)


def _may_reach(root: Path, command: str, part: PurePosixPath, language: str) -> bool:
    """Return whether a command for tests of the same language may run those in the folder `part`."""
    folder = _folder_of(command)
    if not part.is_relative_to(folder):
        return ".." in f"{command} {test_script(root / folder)}"
    below = part.relative_to(folder)
    if not below.parts:
        return True
    match language:
        case "Go":
            return False  # `./...` ends where another module begins
        case "Python":
            return _python_reaches(root / folder, command, below, root)
        case "JavaScript":
            return _javascript_reaches(root / folder, command, below, root)
        case _:
            return _is_named(below, _manifest_texts(root / folder, language))


def _python_reaches(folder: Path, command: str, below: PurePosixPath, root: Path) -> bool:
    """Return whether a command that runs in `folder` may run the tests in `below`, relative to it.

    pytest searches all folders unless it is given paths; unittest searches packages alone.
    """
    invocation = recognise_runner(command, root)
    if invocation is not None and invocation.kind == "pytest":
        paths = _paths_in(invocation.arguments, folder)
        if paths:
            return _covers(paths, below)
        texts = _manifest_texts(folder, "Python")
        return _is_named(below, texts) or not any("testpaths" in text for text in texts)
    if re.search(r"\b(?:unittest|manage\.py)\b", command):
        is_package = (folder / below.parts[0] / "__init__.py").exists()
        return is_package or _is_named(below, [command])
    return True


def _javascript_reaches(folder: Path, command: str, below: PurePosixPath, root: Path) -> bool:
    """Return whether a command that runs in `folder` may run the tests in `below`, relative to it.

    Most runners search all folders unless they are given paths; Mocha searches `test`.
    """
    invocation = recognise_runner(command, root)
    if invocation is not None:
        paths = _paths_in(invocation.arguments, folder)
        return not paths or _covers(paths, below)
    line = f"{command} {test_script(folder)}"
    if re.search(r" --workspaces\b|\bmocha\b", line):
        return _is_named(below, [line, "test", *_manifest_texts(folder, "JavaScript")])
    return True


def _folder_of(command: str) -> PurePosixPath:
    """Return the folder that a command like `cd web && npm test` runs in."""
    move = re.match(r"cd ('[^']*'|\S+) && ", command)
    return PurePosixPath(move.group(1).strip("'")) if move is not None else _ROOT


_OPTION_WITH_VALUE = re.compile(r"-(?!-?(?:[qvxsl]+|verbose|quiet|run|test|ci|coverage)$)[^=]*")
"""An option whose value may be the next word: any but well-known switches."""


def _paths_in(arguments: Sequence[str], folder: Path) -> list[str]:
    """Return the arguments that are paths in the folder, or patterns of paths. A word that may be
    the value of an option does not count.
    """
    paths = []
    previous = ""
    for word in arguments:
        is_value = _OPTION_WITH_VALUE.fullmatch(previous) is not None
        is_path = "*" in word or (folder / word).exists()
        if is_path and not is_value and not word.startswith("-"):
            paths.append(word)
        previous = word
    return paths


def _covers(paths: Sequence[str], below: PurePosixPath) -> bool:
    """Return whether one of the paths, or a path that a pattern may stand for, holds tests of a part."""
    return any(
        "*" in path or below.is_relative_to(path) or PurePosixPath(path).is_relative_to(below)
        for path in paths
    )


def _manifest_texts(folder: Path, language: str) -> list[str]:
    patterns = [*_MANIFESTS_OF_LANGUAGE[language].split(), *_LINKING_FILES]
    texts = []
    for name in file_names(folder):
        if any(fnmatch(name, pattern) for pattern in patterns):
            texts.append(read_text(folder / name) or "")
    return texts


def _is_named(below: PurePosixPath, texts: Sequence[str]) -> bool:
    """Return whether a text names the first folder of a path, or has a pattern for any folder."""
    name = rf"(?<![\w-]){re.escape(below.parts[0])}(?![\w-])"
    any_folder = r"(?:^|[\"'\s])(?:\./)?\*"
    return any(re.search(f"{name}|{any_folder}", text) for text in texts)


def _languages(command: str) -> set[str]:
    """Return the languages whose test programs a command names."""
    words = re.split(r"[\s/;&|()]+", command)
    return {_LANGUAGE_OF_PROGRAM[word] for word in words if word in _LANGUAGE_OF_PROGRAM}


def _may_run_anything(root: Path, command: str) -> bool:
    return "JavaScript" in _languages(command) and bool(_RUNS_ANYTHING.search(test_script(root)))


def _was_run(part: _Part, ran: Sequence[str]) -> bool:
    """Return whether a shell command may have run the tests of a part: it names the part's folder, or
    for the whole repository the program, and speaks of tests.
    """
    program = part.test_command.split()[0]
    name = re.escape(part.folder.name or program)
    word = re.compile(rf"(?<![\w-]){name}(?![\w-])")
    return any(word.search(command) and "test" in command for command in ran)
